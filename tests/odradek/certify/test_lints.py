"""Each lint sees what it is for, and nothing in the trace of a job that is right."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.certify.lints import Evidence, changing_ids, lint
from tests.odradek.certify.traces import end, entry, fetch, init, offsets, produce, trace, transaction

Entries = list[Any]


def names(*entries: Any) -> list[str]:
    return [each.name for each in lint(seen(*entries))]


def seen(*entries: Any) -> Evidence:
    return Evidence(trace(*entries), frozenset({"in"}), frozenset({"out", "journal"}))


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


def test_a_client_that_has_forgotten_its_member_is_told_when_to_ask() -> None:
    joins = entry("JoinGroup", {"group_id": "g"})
    never, once = (
        [joins, *named, offsets("in", 9, tx="a", member="")] for named in ([], [offsets("in", 5, tx="a")])
    )
    told = [
        next(each.sentence for each in lint(seen(*entries)) if each.name == "no-group-metadata")
        for entries in (never, once)
    ]
    assert ["when the records were read" in each for each in told] == [False, True]


def test_nothing_is_said_against_a_job_that_is_right() -> None:
    assert names(*RIGHT) == []


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        ("offsets-outside", [init("a"), produce("out", tx="a"), end("a"), offsets("in", 5)]),
        ("offsets-outside", [produce("out"), offsets("in", 5)]),
        ("auto-commit", [init("a"), *(offsets("in", at, at_ms=5000.0 * at) for at in range(1, 5))]),
        ("read-uncommitted", [fetch("in", isolation=0)]),
        ("no-group-metadata", [entry("JoinGroup", {"group_id": "g"}), offsets("in", 5, tx="a", member="")]),
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
            # A new producer took the place of the one that failed.
            "no-rewind",
            [*READ_ON, init("a"), fetch("in", offset=9)],
        ),
        (
            # Nothing was in the transaction yet: the client sends no EndTxn.
            "no-rewind",
            [
                *READ_ON,
                entry("AddOffsetsToTxn", tx="a", error="GROUP_AUTHORIZATION_FAILED"),
                fetch("in", offset=9),
            ],
        ),
        (
            "send-not-awaited",
            [
                init("a"),
                produce("out", tx="a") | {"answer": {"error": "TOPIC_AUTHORIZATION_FAILED"}},
                end("a"),
            ],
        ),
        (
            # All of it came with one Fetch.
            "no-rewind",
            [init("a"), fetch("in"), transaction("a", 5, committed=False), transaction("a", 9)],
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


def start(number: int, offset: int) -> Entries:
    """A process begins, and reads from this offset on."""
    consumer = fetch("in", offset=offset) | {"peer": f"h:{number}1"}
    asks = [entry("ApiVersions", peer=f"h:{number}{connection}") for connection in (0, 1)]
    return [*asks, init("a", peer=f"h:{number}0"), consumer]


BEGUN: Entries = [*start(1, 0), offsets("in", 5)]


def test_a_start_behind_the_committed_position() -> None:
    assert "reported-early" in names(*BEGUN, *start(2, 9))
    assert "reported-early" not in names(*BEGUN, *start(2, 5))


def test_a_consumer_that_connects_again_reads_on() -> None:
    assert "reported-early" not in names(*BEGUN, *start(2, 5), fetch("in", offset=9) | {"peer": "h:22"})


def test_a_position_that_no_group_keeps_is_not_early() -> None:
    assert names(*start(1, 0), transaction_of_results(), *start(2, 9)) == []


def test_a_producer_that_is_made_anew_is_no_start() -> None:
    assert "reported-early" not in names(
        *BEGUN, init("a", peer="h:20"), fetch("in", offset=9) | {"peer": "h:11"}
    )


def transaction_of_results() -> Entries:
    return [produce("out", tx="a"), end("a")]


def test_an_abort_of_one_instance_is_no_matter_of_another_one() -> None:
    theirs = [init("b"), produce("out", tx="b"), end("b", committed=False)]
    assert names(*READ_ON, *theirs, fetch("in", offset=9), transaction("a", 9)) == []


def test_a_consumer_that_reads_before_the_producer_begins_is_right() -> None:
    assert (
        names(fetch("in"), fetch("in", offset=9), init("a"), fetch("in", offset=9), transaction("a", 9)) == []
    )


def test_positions_that_no_transaction_has_are_kept_elsewhere() -> None:
    results = [produce("out", tx="a"), end("a")]
    again = [init("a"), fetch("in", offset=9), produce("out", tx="a"), end("a")]
    assert (
        names(init("a"), fetch("in"), *results, fetch("in", offset=9), *again, fetch("in", offset=12)) == []
    )


def test_times_behind_a_moved_clock_say_nothing() -> None:
    timed = trace(
        init("a", timeout_ms=1000), entry("AddPartitionsToTxn", tx="a", at_ms=0.0), end("a", at_ms=700.0)
    )
    assert lint(Evidence(timed, frozenset({"in"}), frozenset({"out"}), has_times=False)) == []


def test_records_that_are_tried_again_need_no_fetch() -> None:
    assert (
        names(*READ_ON, transaction("a", 9, committed=False), fetch("in", offset=12), transaction("a", 9))
        == []
    )


def test_positions_of_a_group_without_members_need_no_generation() -> None:
    assert (
        names(init("a"), fetch("in"), produce("out", tx="a"), offsets("in", 5, tx="a", member=""), end("a"))
        == []
    )


def test_spark_is_known_by_its_groups() -> None:
    assert "spark-sink" in names(entry("OffsetFetch", {"group_id": "spark-kafka-source-1"}), produce("out"))


def test_flink_keeps_its_positions_in_checkpoints() -> None:
    enumerator = entry("Metadata", client_id="copier-enumerator-admin-client")
    one, two = ([enumerator, init(f"copier-0-{each}"), fetch("in"), offsets("in", 5)] for each in (1, 2))
    assert names(*one) == []
    assert list(changing_ids(seen(*one), seen(*two))) == []


def test_a_group_without_members_has_no_generation_to_name() -> None:
    assert names(init("a"), offsets("in", 5, tx="a", member="")) == []


def test_other_topics_are_no_matter() -> None:
    assert (
        names(fetch("lookup", isolation=0), offsets("lookup", 5), produce("elsewhere", producer=(-1, -1)))
        == []
    )


def test_an_id_that_is_another_one_at_each_start() -> None:
    (found,) = changing_ids(seen(init("a-1")), seen(init("a-2")))
    assert found.name == "changing-id"
    assert list(changing_ids(seen(init("a")), seen(init("a")))) == []


def test_kafka_streams_chooses_its_ids_itself() -> None:
    one, two = (init(f"app-{number}") | {"client_id": "app-StreamThread-1-producer"} for number in (1, 2))
    assert list(changing_ids(seen(one), seen(two))) == []


def test_a_lint_says_where_it_is_explained() -> None:
    assert lint(seen(fetch("in", isolation=0)))[0].link == "docs/certify.md#read-uncommitted"
