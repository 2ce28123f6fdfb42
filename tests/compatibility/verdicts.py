"""A pytest plugin: what a run has shown of clients and of Kafka's tools, for the page of compatibility.

    @pytest.mark.client("franz-go")        on a test file (``pytestmark``) or a class: whose test it is
    @pytest.mark.feature("transactions")   on a test: what of FEATURES it shows
    @pytest.mark.tool("kafka-topics")      on a test of one of Kafka's command-line tools

Each test with ``client`` and ``feature``, or with ``tool``, leaves a line of JSON in ``.cache/compatibility/``. The page
is made from these lines; a test that was not run leaves none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
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
    "administration",
    "metrics of clients (KIP-714)",
)
"""The columns of the page, in their order."""


def subject_of(item: pytest.Item) -> dict[str, str] | None:
    """What the page says the test is about, or None where it says nothing of it."""
    named = {
        mark: found.args[0]
        for mark in ("client", "feature", "tool")
        if (found := item.get_closest_marker(mark)) is not None
    }
    if "tool" in named:
        return {"tool": named["tool"]}
    if "client" in named and "feature" in named:
        return {"client": named["client"], "feature": named["feature"]}
    return None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "client(name): whose test it is, for the page of compatibility")
    config.addinivalue_line("markers", "feature(name): what the test shows, for the page of compatibility")
    config.addinivalue_line("markers", "tool(name): of which of Kafka's tools the test is, for the page")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        feature = (subject_of(item) or {}).get("feature")
        if feature is not None and feature not in FEATURES:
            raise pytest.UsageError(f"{item.nodeid}: {feature!r} is not in tests/compatibility/verdicts.py")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    subject = subject_of(item)
    if subject is not None and (call.when == "call" or report.failed):
        _keep({**subject, "test": item.nodeid, "outcome": report.outcome})
    return report


def _keep(line: dict[str, str]) -> None:
    """Each worker has a file of its own, and only ever appends to it: the last line of a test counts."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    with (FOLDER / f"{worker}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
