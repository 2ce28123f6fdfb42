"""Each lint sees what it is for, and nothing in the trace of a job that is right."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.certify.lints import Run, changing_ids, lint
from tests.odradek.certify.traces import end, entry, fetch, init, offsets, produce, trace, transaction

Entries = list[Any]


def names(*entries: Any) -> list[str]:
    return [each.name for each in lint(seen(*entries))]


def seen(*entries: Any) -> Run:
    return Run(trace(*entries), frozenset({"in"}), frozenset({"out", "journal"}))


RIGHT: Entries = [
    init("a"),
    fetch("in"),
    transaction("a", 5),
    fetch("in", offset=7),
    transaction("a", 9, committed=False),
    fetch("in", offset=5),
    transaction("a", 12),
]

READ_ON: Entries = [init("a"), fetch("in"), transaction("a", 5), fetch("in", offset=9)]
"""A transaction is committed, and the consumer has read on."""


def test_nothing_is_said_against_a_job_that_is_right() -> None:
    assert names(*RIGHT) == []


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        ("offsets-outside", [init("a"), produce("out", tx="a"), end("a"), offsets("in", 5)]),
        ("offsets-outside", [produce("out"), offsets("in", 5)]),
        ("auto-commit", [init("a"), *(offsets("in", at, at_ms=5000.0 * at) for at in range(1, 5))]),
        ("read-uncommitted", [fetch("in", isolation=0)]),
        ("no-group-metadata", [offsets("in", 5, tx="a", member="")]),
        ("weak-producer", [init("a"), produce("journal", producer=(-1, -1))]),
        ("weak-producer", [produce("out", acks=1)]),
        ("second-producer", [init("a"), produce("journal")]),
        (
            "no-rewind",
            [
                init("a"),
                fetch("in"),
                transaction("a", 5),
                fetch("in", offset=9),
                end("a", committed=False),
                fetch("in", offset=9),
            ],
        ),
        (
            "fatal-error-swallowed",
            [init("a"), end("a", error="PRODUCER_FENCED"), *(fetch("in", offset=at) for at in range(3))],
        ),
        (
            "shared-id",
            [init("a", peer="h:1"), init("a", peer="h:2"), end("a", error="PRODUCER_FENCED")],
        ),
        (
            "short-time-out",
            [
                init("a", timeout_ms=1000),
                entry("AddPartitionsToTxn", tx="a", at_ms=0.0),
                end("a", at_ms=700.0),
            ],
        ),
        (
            "streams-at-least-once",
            [entry("Produce", dict(produce("out")["request"]), client_id="x-StreamThread-1-producer")],
        ),
    ],
)
def test_each_lint_sees_what_it_is_for(name: str, entries: Entries) -> None:
    assert name in names(*entries)


def test_a_producer_that_comes_back_after_a_fatal_error_is_right() -> None:
    fenced = [init("a"), end("a", error="PRODUCER_FENCED")]
    assert names(*fenced, init("a"), *(fetch("in", offset=at) for at in range(3))) == []


def test_a_position_that_was_fetched_again_after_an_abort_is_right() -> None:
    assert (
        names(
            *READ_ON,
            end("a", committed=False),
            fetch("in", offset=9),
            fetch("in", offset=5),
            fetch("in", offset=9),
        )
        == []
    )


def test_spark_is_known_by_its_groups() -> None:
    assert "spark-sink" in names(entry("OffsetFetch", {"group_id": "spark-kafka-source-1"}), produce("out"))


def test_other_topics_are_no_matter() -> None:
    assert (
        names(fetch("lookup", isolation=0), offsets("lookup", 5), produce("elsewhere", producer=(-1, -1)))
        == []
    )


def test_an_id_that_is_another_one_at_each_start() -> None:
    (found,) = changing_ids(seen(init("a-1")), seen(init("a-2")))
    assert found.name == "changing-id"
    assert list(changing_ids(seen(init("a")), seen(init("a")))) == []


def test_a_lint_says_where_it_is_explained() -> None:
    assert lint(seen(fetch("in", isolation=0)))[0].link == "docs/certify.md#read-uncommitted"
