"""A pytest plugin that writes results about clients and Kafka's tools for the compatibility page.

    @pytest.mark.client("franz-go")        on a test file (``pytestmark``) or a class: the client that it tests
    @pytest.mark.feature("transactions")   on a test: the features (of FEATURES) that it shows, one or several
    @pytest.mark.tool("kafka-topics")      on a test of one of Kafka's command-line tools

Each test with ``client`` and ``feature``, or with ``tool``, writes lines of JSON to ``.cache/compatibility/``, one for each
feature. A test that was not run writes none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = Path(__file__).resolve().parents[2] / ".cache" / "compatibility"

FEATURES: Final = (
    "topics and settings",
    "produce and read",
    "every codec",
    "partitioner",
    "idempotence",
    "transactions",
    "fencing",
    "read_committed",
    "classic group",
    "classic group, static members",
    "consumer group (KIP-848)",
    "consumer group, static members",
    "consumer group, regular expressions",
    "groups change their protocol",
    "share groups",
    "exactly-once loop",
    "exactly-once loop, members killed",
    "exactly-once loop, broker killed",
    "exactly-once loop in a consumer group",
    "state stores and internal topics",
    "administration",
    "metrics of clients (KIP-714)",
)
"""The features on the compatibility page, in their order."""


LEFT_OUT: Final = "left out"
"""Outcome of a test that does not run because a program is not installed."""


def subjects_of(item: pytest.Item) -> list[dict[str, str]]:
    """Clients, features and tools of a test, as fields of its result lines; empty for other tests."""
    named = {
        mark: found.args
        for mark in ("client", "feature", "tool")
        if (found := item.get_closest_marker(mark)) is not None
    }
    if "tool" in named:
        return [{"tool": named["tool"][0]}]
    if "client" in named:
        return [{"client": named["client"][0], "feature": feature} for feature in named.get("feature", ())]
    return []


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "client(name): the client that it tests, for the compatibility page")
    config.addinivalue_line("markers", "feature(name, ...): what the test shows, for the compatibility page")
    config.addinivalue_line("markers", "tool(name): the Kafka tool that it tests, for the compatibility page")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for subject in subjects_of(item):
            feature = subject.get("feature")
            if feature is not None and feature not in FEATURES:
                raise pytest.UsageError(
                    f"{item.nodeid}: {feature!r} is not in tests/compatibility/verdicts.py"
                )


def note_left_out(items: Iterable[pytest.Item]) -> None:
    """Write the outcome "left out" for tests that do not run."""
    for item in items:
        for subject in subjects_of(item):
            keep({**subject, "test": item.nodeid, "outcome": LEFT_OUT})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call" or report.failed:
        for subject in subjects_of(item):
            keep({**subject, "test": item.nodeid, "outcome": report.outcome})
    return report


def keep(line: Mapping[str, object]) -> None:
    """Append a result line to this worker's file.

    If several lines have the same test and subject (a feature of a client, or a tool), the last one is used.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    with (FOLDER / f"{worker}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
