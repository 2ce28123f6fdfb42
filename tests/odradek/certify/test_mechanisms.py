"""Mechanisms of exactly-once are recognised in the trace of a job, and not in traces that only look similar."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.certify.judging.comparison import Compare
from odradek.certify.judging.mechanisms import LIFTED_BY, caps, mechanisms, warnings
from odradek.certify.lints import Evidence, Lint, changing_ids, lint
from tests.odradek.certify.traces import end, entry, fetch, init, offsets, produce, trace, transaction

Entries = list[Any]

ASKS = entry("OffsetFetch", {"group_id": "g"})
"""The request with which a job fetches the group's committed offset, to continue there."""
JOINS = entry("JoinGroup", {"group_id": "g"})


def seen(*entries: Any) -> Evidence:
    return Evidence(trace(*entries), frozenset({"in"}), frozenset({"out", "journal"}))


def found(
    one: Entries, two: Entries | None = None, compare: Compare = Compare.ROWS, *, has_check: bool = False
) -> list[str]:
    two = one if two is None else two
    return [each.name for each in mechanisms(seen(*one), seen(*two), compare, has_check=has_check)]


def streams(number: int) -> Entries:
    """Trace of a KIP-447 job with a random transactional id at each start."""
    name = f"copier-{number}-1"
    return [init(name), ASKS, fetch("in"), *transaction(name, 5)]


def without_member(name: str) -> Entries:
    return [
        init(name),
        ASKS,
        fetch("in"),
        produce("out", tx=name),
        offsets("in", 5, tx=name, member=""),
        end(name),
    ]


FLINK: Entries = [
    entry("DescribeCluster", client_id="copier-enumerator-admin-client"),
    init("copier-0-1"),
    fetch("in"),
    produce("out", tx="copier-0-1"),
    end("copier-0-1"),
    offsets("in", 5),
]
SPARK: Entries = [
    ASKS,
    fetch("in"),
    produce("out", tx="copier-1-0"),
    offsets("__consumer_offsets", 1, tx="copier-driver", member=""),
    end("copier-driver"),
    end("copier-1-0"),
]
SQLITE: Entries = [JOINS, fetch("in"), offsets("in", 5)]
"""Trace of a job with its rows and offsets in a database. The job also commits offsets to Kafka, but never fetches them."""
AT_LEAST_ONCE: Entries = [JOINS, ASKS, fetch("in"), produce("out"), offsets("in", 5)]
AUTO_COMMIT: Entries = [init("a"), ASKS, fetch("in"), produce("out", tx="a"), end("a"), offsets("in", 5)]
"""Trace of a job with auto-commit: no transaction contains its offsets."""


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        (streams(1), streams(2), ["fenced-positions"]),
        (streams(1), streams(1), ["fenced-positions", "stable-id"]),
        (without_member("a"), without_member("a"), ["stable-id"]),
        (without_member("a-1"), without_member("a-2"), []),
        (FLINK, FLINK, ["positions-elsewhere"]),
        (SPARK, SPARK, ["positions-elsewhere"]),
        (SQLITE, SQLITE, ["positions-elsewhere"]),
        (AT_LEAST_ONCE, AT_LEAST_ONCE, []),
        (AUTO_COMMIT, AUTO_COMMIT, []),
    ],
)
def test_possible_mechanisms_are_recognised(one: Entries, two: Entries, expected: list[str]) -> None:
    assert found(one, two) == expected


def test_an_idle_instance_has_its_transactional_id_all_the_same() -> None:
    one, two = ([init("a"), init("b"), *without_member(name)[1:]] for name in ("a", "b"))
    assert found(one, two) == ["stable-id"]


def test_the_user_may_say_what_holds() -> None:
    assert found(AT_LEAST_ONCE, has_check=True) == ["check"]
    assert found(AT_LEAST_ONCE, compare=Compare.KEYED) == ["keyed"]


def test_positions_elsewhere_do_not_hold_records_that_no_transaction_has() -> None:
    assert found([fetch("in"), produce("out")]) == []


def test_a_transaction_with_outputs_alone_beside_one_with_positions_alone_holds_nothing() -> None:
    apart = [
        *(init("a"), ASKS, fetch("in")),
        *(produce("out", tx="a"), end("a")),
        *(offsets("in", 5, tx="b"), end("b")),
    ]
    assert found(apart) == []


def test_a_transaction_that_was_never_committed_shows_nothing() -> None:
    assert found([init("a"), ASKS, fetch("in"), *transaction("a", 5, committed=False)]) == []


def test_a_job_that_reads_its_own_output_may_recognise_it() -> None:
    assert found([*AT_LEAST_ONCE, fetch("out")]) == ["reads-own-output"]
    stage = [*AT_LEAST_ONCE, fetch("out"), offsets("out", 3)]
    assert found(stage) == [], "the next stage of a pipeline commits what it has read"


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        (streams(1), streams(2), []),
        (FLINK, FLINK, []),
        (SQLITE, SQLITE, []),
        (AT_LEAST_ONCE, AT_LEAST_ONCE, ["offsets-outside"]),
        (AUTO_COMMIT, AUTO_COMMIT, ["offsets-outside"]),
        ([*streams(1), produce("journal")], streams(1), ["second-producer"]),
        ([*streams(1), produce("journal", producer=(-1, -1))], streams(1), ["weak-producer"]),
        ([*streams(1), fetch("in", isolation=0)], streams(1), ["read-uncommitted"]),
    ],
)
def test_a_lint_invalidates_a_mechanism(one: Entries, two: Entries, expected: list[str]) -> None:
    ours, theirs = seen(*one), seen(*two)
    lints = [*lint(ours), *changing_ids(ours, theirs)]
    seen_besides = mechanisms(ours, theirs, Compare.ROWS, has_check=False)
    assert [each.name for each in caps(lints, seen_besides)] == expected
    judged = mechanisms(ours, theirs, Compare.ROWS, has_check=True)
    assert caps(lints, judged) == [], "the user's check says what is right"


def test_what_a_certificate_is_not_capped_by() -> None:
    for name in ("changing-id", "no-group-metadata", "short-time-out", "shared-id"):
        assert name not in LIFTED_BY
        assert caps([Lint(name, "")], []) == []


@pytest.mark.parametrize(
    ("one", "two", "compare", "expected"),
    [
        (streams(1), streams(2), Compare.ROWS, []),
        (without_member("a-1"), without_member("a-2"), Compare.ROWS, ["changing-id"]),
        (SQLITE, SQLITE, Compare.ROWS, []),
        (AT_LEAST_ONCE, AT_LEAST_ONCE, Compare.KEYED, []),
        (AT_LEAST_ONCE, AT_LEAST_ONCE, Compare.ROWS, ["offsets-outside"]),
    ],
)
def test_a_harmless_lint_is_no_warning(
    one: Entries, two: Entries, compare: Compare, expected: list[str]
) -> None:
    ours, theirs = seen(*one), seen(*two)
    lints = [*lint(ours), *changing_ids(ours, theirs)]
    besides = mechanisms(ours, theirs, compare, has_check=False)
    assert [each.name for each in warnings(lints, besides)] == expected
