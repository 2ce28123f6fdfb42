"""A pytest plugin: what a run has shown of clients and of Kafka's tools, for the page of compatibility.

    @pytest.mark.client("franz-go")        on a test file (``pytestmark``) or a class: whose test it is
    @pytest.mark.feature("transactions")   on a test: what of FEATURES it shows; several, where it shows several
    @pytest.mark.tool("kafka-topics")      on a test of one of Kafka's command-line tools

Each test with ``client`` and ``feature``, or with ``tool``, leaves lines of JSON in ``.cache/compatibility/``, one for each
feature. The page is made from these lines; a test that was not run leaves none.
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
    "exactly-once loop",
    "exactly-once loop, members killed",
    "exactly-once loop, broker killed",
    "exactly-once loop in a consumer group",
    "state stores and internal topics",
    "administration",
    "metrics of clients (KIP-714)",
)
"""The columns of the page, in their order."""


LEFT_OUT: Final = "left out"
"""The outcome of a test that is not run because a program is not installed."""


def subjects_of(item: pytest.Item) -> list[dict[str, str]]:
    """What the page says the test is about; nothing where it says nothing of it."""
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
    config.addinivalue_line("markers", "client(name): whose test it is, for the page of compatibility")
    config.addinivalue_line(
        "markers", "feature(name, ...): what the test shows, for the page of compatibility"
    )
    config.addinivalue_line("markers", "tool(name): of which of Kafka's tools the test is, for the page")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for subject in subjects_of(item):
            feature = subject.get("feature")
            if feature is not None and feature not in FEATURES:
                raise pytest.UsageError(
                    f"{item.nodeid}: {feature!r} is not in tests/compatibility/verdicts.py"
                )


def note_left_out(items: Iterable[pytest.Item]) -> None:
    """What these tests show is not known: they are not run."""
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
    """Each worker has a file of its own, and only ever appends to it: the last line of a test and feature counts."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    with (FOLDER / f"{worker}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
