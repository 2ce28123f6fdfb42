"""The certifier names a cause of a failure only if the trace has evidence of it before the wrong records."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from odradek.certify.judging.findings import Kind
from odradek.certify.lints import Evidence, Lint
from odradek.certify.lints.causes import diagnosed
from odradek.certify.lints.failures import Bad, Place, hits
from odradek.certify.plans.faults import BY_NAME
from odradek.certify.plans.moments import Moment
from odradek.certify.plans.plan import Injection, Plan
from tests.odradek.certify.traces import end, entry, fetch, init, offsets, produce, trace

Entries = list[Any]
ONE, TWO = "h:1", "h:2"
ASKS = entry("OffsetFetch", {"group_id": "g"})
JOINS = entry("JoinGroup", {"group_id": "g"})


def of(peer: str, *entries: Any) -> Entries:
    return [each | {"peer": peer} for each in entries]


def seen(*entries: Any) -> Evidence:
    return Evidence(trace(*entries), frozenset({"in"}), frozenset({"out", "journal"}))


def why(bad: Bad, *entries: Any) -> list[str]:
    return [each.name for each in diagnosed(seen(*entries), bad)]


def plan(fault: str, on: str, ordinal: int = 1, **matchers: str) -> Plan:
    return Plan((Injection(Moment(on, tuple(matchers.items()), ordinal, ""), BY_NAME[fault]),))


def transaction(
    tx: str, offset: int, base: int, *, member: str = "m", producer: tuple[int, int] = (7, 0)
) -> Entries:
    return [
        produce("out", tx=tx, base=base, producer=producer),
        offsets("in", offset, tx=tx, member=member, producer=producer),
        end(tx, producer=producer),
    ]


def twice(*places: int, topic: str = "out") -> Bad:
    """A finding of one record that was written at each of these offsets."""
    return Bad(
        frozenset({Kind.DUPLICATED}), repeated=(tuple(Place(topic, 0, each, (7, 0)) for each in places),)
    )


LOST = Bad(frozenset({Kind.LOST}), missing=((),), missing_in=frozenset({"out"}))
"""A record that was never written."""
ABORTED = replace(LOST, missing=((Place("out", 0, 0, (7, 0)),),))
"""A record that exists only in an aborted transaction."""
STUCK = Bad(frozenset({Kind.STUCK}))


def batch_of(count: int, offset: int, base: int) -> Entries:
    return [produce("out", tx="a", base=base, count=count), offsets("in", offset, tx="a"), end("a")]


# -- duplicated records --------------------------------------------------------------------------------------------------

CRASH: Entries = [
    *of(ONE, ASKS, fetch("in", count=5), produce("out", base=0)),
    *of(TWO, ASKS, fetch("in", count=5), produce("out", base=1), offsets("in", 5)),
]
"""Trace of two processes, the first of which died between Produce and OffsetCommit."""


def test_offsets_outside_are_the_cause_if_records_were_read_again() -> None:
    assert why(twice(0, 1), *CRASH) == ["offsets-outside"]


def test_offsets_outside_are_no_cause_for_a_batch_that_was_read_once() -> None:
    once = [ASKS, fetch("in", count=5), produce("out", base=0), produce("out", base=1), offsets("in", 5)]
    assert why(twice(0, 1), *once) == []


def test_offsets_that_are_never_fetched_are_no_cause() -> None:
    """Offsets outside of the transaction are no cause if the job never fetches the offsets that it commits."""
    assert why(twice(0, 1), *(each for each in CRASH if each["api"] != "OffsetFetch")) == []


LOST_ANSWER: Entries = [
    init("a"),
    *transaction("a", 5, 0)[:2],
    end("a") | {"outcome": "answer_lost"},
    init("a"),
]


def test_a_batch_that_was_written_again_without_fetching_offsets() -> None:
    again = [*LOST_ANSWER, *transaction("a", 5, 2, producer=(7, 1))]
    assert why(twice(0, 2), *again) == ["new-producer-same-batch"]
    assert why(twice(0, 9), *again) == [], "another transaction wrote the bad record"
    assert why(LOST, *again) == [], "it loses no record"


def test_outputs_without_their_offsets_in_a_transaction() -> None:
    apart = [init("a"), *transaction("a", 5, 0), produce("out", tx="a", base=2), end("a")]
    again = [fetch("in", offset=5, count=4), *transaction("a", 9, 4)]
    assert why(twice(2, 4), *apart, *again) == ["outputs-without-positions"]
    assert why(twice(0, 4), *apart, *again) == []


ZOMBIE: Entries = [
    JOINS,
    *of(ONE, init("a-1"), produce("out", tx="a-1", base=0)),
    *of(TWO, init("a-2"), *transaction("a-2", 5, 1, member="", producer=(8, 0))),
    *of(ONE, offsets("in", 5, tx="a-1", member=""), end("a-1")),
]
CHANGING = Lint("changing-id", "")


def test_a_zombie_that_commits_what_another_one_has_committed() -> None:
    assert why(twice(0, 1), *ZOMBIE) == ["no-group-metadata"]
    warned = replace(twice(0, 1), warned=(CHANGING,))
    assert why(warned, *ZOMBIE) == ["no-group-metadata", "changing-id"]
    assert why(warned, *ZOMBIE[1:]) == ["changing-id"], (
        "a job that assigns its partitions itself has no member"
    )


def test_missing_fencing_is_no_cause_if_one_producer_wrote_the_record() -> None:
    begun = [JOINS, init("a"), *transaction("a", 5, 0, member=""), *transaction("a", 9, 2, member="")]
    assert why(replace(twice(0, 2), warned=(CHANGING,)), *begun) == []


def test_a_producer_beside_the_transaction_wrote_the_bad_record() -> None:
    beside = [init("a"), produce("journal", base=0), end("a", committed=False), produce("journal", base=1)]
    assert why(twice(0, 1, topic="journal"), *beside) == ["second-producer"]
    assert why(twice(0, 1), *beside) == []


def weak(base: int, at_ms: float) -> dict[str, Any]:
    return produce("out", producer=(-1, -1), base=base, at_ms=at_ms)


def test_a_weak_producer_is_the_reason_for_what_its_client_sent_again() -> None:
    asks = [ASKS, fetch("in", count=5)]
    assert why(twice(0, 1), *asks, weak(0, 5.0), weak(1, 5.0), offsets("in", 5)) == ["weak-producer"]
    crash = [*of(ONE, *asks, weak(0, 5.0)), *of(TWO, *asks, weak(1, 8.0), offsets("in", 5))]
    assert why(twice(0, 1), *crash) == ["offsets-outside"]


def test_an_offset_that_went_back_is_a_cause() -> None:
    back = [
        init("a"),
        *transaction("a", 5, 0),
        offsets("in", 1),
        fetch("in", offset=1),
        *transaction("a", 5, 2),
    ]
    assert "position-back" in why(twice(0, 2), *back)
    assert "position-back" not in why(twice(2, 4), *back, *transaction("a", 6, 4))


def test_a_batch_of_lost_partitions_is_a_cause() -> None:
    revoked = [produce("out", base=0), offsets("in", 5, error="ILLEGAL_GENERATION"), produce("out", base=1)]
    assert why(twice(0, 1), *revoked) == ["revoked-batch"]
    refused = replace(twice(0, 1), plan=plan("fatal-error", "OffsetCommit", group="g"))
    assert why(refused, *revoked) == [], "the certifier refused it"


WAITED: Entries = [
    *(init("a"), fetch("in", count=20)),
    *(each for at in (5, 10) for each in batch_of(5, at, at)),
    *(entry("SyncGroup", {"group_id": "g"}), fetch("in", offset=10, count=10)),
]


def test_a_batch_from_before_a_rebalance_is_a_cause() -> None:
    """A batch is the cause of duplicates if it has waited since before a rebalance.

    Some of its records must have been read again after the rebalance.
    """
    stale = batch_of(8, 15, 20)
    assert why(twice(20, 24), *WAITED, *stale) == ["revoked-batch"]
    assert why(twice(20, 24), *(each for each in WAITED if each["api"] != "SyncGroup"), *stale) == []
    assert why(twice(20, 24), *WAITED, *batch_of(5, 15, 20)) == []


def test_aborted_input_is_the_reason_only_where_input_was_aborted() -> None:
    reads = [fetch("in", isolation=0), produce("out", base=0), produce("out", base=1)]
    unexpected = Bad(frozenset({Kind.UNEXPECTED}))
    assert why(unexpected, *reads) == []
    assert why(replace(unexpected, plan=plan("abort-input", "Fetch")), *reads) == ["read-uncommitted"]


# -- lost records --------------------------------------------------------------------------------------------------------


def test_offsets_that_were_committed_before_the_records_are_a_cause() -> None:
    committed = of(ONE, ASKS, fetch("in", count=5), offsets("in", 5))
    assert why(LOST, *committed, *of(TWO, ASKS, fetch("in", offset=5, found=False))) == ["offsets-outside"]
    assert why(LOST, *committed) == [], "its process continued"


def test_a_batch_that_was_refused_and_whose_positions_were_committed() -> None:
    refused = [ASKS, offsets("in", 1), produce("out", error="INVALID_RECORD"), offsets("in", 5)]
    assert why(LOST, *refused) == ["delivery-ignored"]
    assert "delivery-ignored" not in why(replace(LOST, missing_in=frozenset({"journal"})), *refused)


def test_a_refused_batch_is_not_taken_for_one_of_as_many_records() -> None:
    """A rejected batch is no cause of a lost record if the next batch has as many records, but others.

    Nor is "weak-producer" reported, although the producer of both batches is not idempotent: both got a response.
    """
    single: dict[str, Any] = {"producer": (-1, -1), "count": 1}
    refused = [
        ASKS,
        offsets("in", 1),
        produce("out", error="INVALID_RECORD", **single),
        produce("out", **single),
    ]
    assert why(LOST, *refused, offsets("in", 5)) == ["delivery-ignored"]


def test_a_weak_producer_loses_unacknowledged_records() -> None:
    assert why(LOST, ASKS, produce("out", acks=0), offsets("in", 5)) == ["weak-producer"]
    assert why(LOST, ASKS, produce("out", producer=(-1, -1)), offsets("in", 5)) == []


def test_an_injected_error_that_the_job_ignores_is_a_cause() -> None:
    refused = [init("a"), produce("out", tx="a", error="TOPIC_AUTHORIZATION_FAILED"), end("a")]
    injected = replace(LOST, plan=plan("abortable-error", "Produce", transactional_id="a"))
    assert why(injected, *refused) == ["send-not-awaited"]


NOT_REWOUND: Entries = [
    *(init("a"), fetch("in"), *transaction("a", 5, 0), fetch("in", offset=9)),
    *(produce("out", tx="a", base=2), offsets("in", 9, tx="a"), end("a", committed=False)),
    *(fetch("in", offset=9), *transaction("a", 12, 4)),
]


def test_an_abort_without_a_seek_back_is_a_cause() -> None:
    assert why(ABORTED, *NOT_REWOUND) == ["no-rewind"]
    another = replace(LOST, missing=((Place("out", 0, 0, (99, 0)),),))
    assert why(another, *NOT_REWOUND) == [], "another producer wrote the lost record"
    assert why(twice(0, 4), *NOT_REWOUND) == []


def test_offsets_of_unprocessed_records_are_a_cause() -> None:
    fetched = fetch("in", count=30)
    whole = [each for at in (10, 20) for each in batch_of(10, at, at)]
    assert why(LOST, init("a"), fetched, *whole, *batch_of(4, 30, 30)) == ["positions-ahead"]
    assert why(LOST, init("a"), fetched, *whole, *batch_of(10, 30, 30)) == []


AHEAD = replace(LOST, expected=5)


def test_offsets_that_were_committed_before_their_outputs_are_a_cause() -> None:
    fetched = [ASKS, fetch("in", count=5)]
    early = [*fetched, offsets("in", 5), produce("out", count=2)]
    assert why(AHEAD, *early) == ["positions-ahead"]
    assert why(replace(AHEAD, expected=3), *early) == [], "not each record has an output"
    assert why(AHEAD, *fetched, produce("out", count=5), offsets("in", 5)) == []
    assert why(twice(0, 1), *early) == []


def test_a_job_that_filters_does_not_commit_ahead() -> None:
    filters = [each for count, at in ((3, 10), (7, 20), (1, 30)) for each in batch_of(count, at, at)]
    assert why(LOST, init("a"), fetch("in", count=30), *filters) == []


# -- stuck and unfinished runs -------------------------------------------------------------------------------------------


SHARED: Entries = [
    *of(ONE, init("a"), fetch("in"), *transaction("a", 5, 0)),
    *of(TWO, init("a")),
    *of(ONE, end("a", error="PRODUCER_FENCED")),
]


def test_a_shared_id_is_no_reason_where_the_certifier_has_shared_it() -> None:
    assert "shared-id" in why(STUCK, *SHARED)
    for fault in ("freeze", "second-copy"):
        assert "shared-id" not in why(
            replace(STUCK, plan=plan(fault, "EndTxn", transactional_id="a")), *SHARED
        )


def test_a_fatal_error_that_the_job_ignores_is_a_cause() -> None:
    fenced = [
        init("a"),
        fetch("in"),
        end("a", error="PRODUCER_FENCED"),
        *(fetch("in", offset=5) for _ in range(3)),
    ]
    injected = replace(STUCK, plan=plan("fatal-error", "EndTxn", transactional_id="a"))
    assert why(injected, *fenced) == ["fatal-error-swallowed"]
    assert why(twice(0, 1), *fenced) == []


def test_an_open_transaction_of_an_unused_id_is_a_cause() -> None:
    left = [init("a-1"), produce("out", tx="a-1"), init("a-2"), *transaction("a-2", 5, 2)]
    held_up = replace(STUCK, is_held_up=True, warned=(CHANGING,))
    assert why(held_up, *left) == ["changing-id"]
    assert why(replace(held_up, warned=()), *left) == []


def test_a_run_that_waits_for_offsets_that_are_not_in_kafka() -> None:
    """A job that never fetches its committed offsets is the cause of a stuck run that waits for these offsets."""
    assert why(STUCK, fetch("in"), offsets("in", 3)) == ["positions-elsewhere"]
    assert why(STUCK, ASKS, fetch("in"), offsets("in", 3)) == []
    assert why(replace(STUCK, exits=((1, 1),)), fetch("in"), offsets("in", 3)) == []


def test_an_end_before_the_input_is_done() -> None:
    unfinished = Bad(frozenset({Kind.UNFINISHED}), exits=((1, 0),))
    assert why(unfinished, fetch("in"), offsets("in", 3)) == ["ended-early"]
    assert why(replace(unfinished, exits=((1, 1),)), fetch("in"), offsets("in", 3)) == []


def test_an_end_behind_an_error_is_told_from_one_behind_a_poll() -> None:
    unfinished = Bad(frozenset({Kind.UNFINISHED}), exits=((1, 0),))
    refused = [init("a"), end("a", error="PRODUCER_FENCED")]
    told = [diagnosed(seen(*entries), unfinished)[0].sentence for entries in (refused, [fetch("in")])]
    assert ["PRODUCER_FENCED" in each for each in told] == [True, False]


# -- unknown causes ------------------------------------------------------------------------------------------------------


def test_the_cause_may_be_unknown() -> None:
    right = [
        init("a"),
        ASKS,
        fetch("in"),
        *transaction("a", 5, 0),
        fetch("in", offset=5),
        *transaction("a", 9, 2),
    ]
    for bad in (
        twice(0, 2),
        LOST,
        ABORTED,
        STUCK,
        Bad(frozenset({Kind.REFUSED})),
        Bad(frozenset({Kind.CHANGED})),
    ):
        assert why(bad, *right) == []


def test_of_what_a_check_refuses_only_what_happened_is_a_reason() -> None:
    refused = Bad(frozenset({Kind.REFUSED}))
    assert why(refused, *CRASH) == ["offsets-outside"]
    assert why(refused, ASKS, fetch("in", count=5), offsets("in", 5)) == [], "nothing was read again"


def test_a_topic_that_is_named_by_its_id_alone() -> None:
    """A cause is found for a topic that a Produce request names by its id, as from version 13 on."""
    evidence = seen(*deepcopy(CRASH))
    for each in evidence.exchanges:
        if each.api == "Produce" and each.answer is not None:
            each.request["topic_data"][0].update({"topic_id": "id-7", "topic_name": "out"})
            del each.request["topic_data"][0]["name"]
            each.answer["responses"][0].update({"topic_id": "id-7"})
            del each.answer["responses"][0]["name"]
    assert [each.name for each in diagnosed(evidence, twice(0, 1))] == ["offsets-outside"]


@pytest.mark.parametrize(("ordinal", "expected"), [(1, [0]), (2, [2]), (3, [])])
def test_which_request_a_fault_has_struck(ordinal: int, expected: list[int]) -> None:
    ends = [end("a-7"), end("b"), end("a-8")]
    assert (
        list(hits(trace(*ends), plan("lose-answer", "EndTxn", ordinal, transactional_id="a-*"))) == expected
    )
