"""Input that a share group consumes: moments, lints, and what the group's deliveries explain of the outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import ShareConsumer

from odradek.certify.jobs.command import Command
from odradek.certify.judging.comparison import Compare, Difference
from odradek.certify.judging.deliveries import explained, letter
from odradek.certify.judging.findings import Ending, Kind, Outputs, Reference, judge
from odradek.certify.judging.mechanisms import SHARED, mechanisms
from odradek.certify.judging.rows import row
from odradek.certify.lints import Evidence, share_groups
from odradek.certify.lints import lint as lints_of
from odradek.certify.lints.causes import diagnosed
from odradek.certify.lints.evidence import Lint
from odradek.certify.lints.failures import Bad, Place
from odradek.certify.lints.progress import positions_elsewhere
from odradek.certify.plans.faults import BY_NAME, Reach, applies
from odradek.certify.plans.moments import moments
from odradek.certify.plans.requirements import required
from odradek.certify.runs.acknowledged import Acknowledged
from odradek.certify.runs.cluster import Ours
from odradek.certify.runs.observation import Observation, last_closed
from odradek.certify.runs.progress import is_lag_zero
from odradek.certify.share_groups import acknowledgements, deliveries
from odradek.certify.workload import Seed, Workload
from odradek.topics import Record
from tests.odradek.certify.traces import end, entry, produce, share_acknowledge, share_fetch, trace
from tests.support.clients import eventually

REFUSED = "INVALID_RECORD_STATE"


def seen(*entries: Any) -> Evidence:
    return Evidence(trace(*entries), frozenset({"in"}), frozenset({"out"}))


def names(found: Iterator[Lint]) -> list[str]:
    return [each.name for each in found]


# -- the trace ---------------------------------------------------------------------------------------------------------


def test_deliveries_are_those_of_records() -> None:
    marker = {"base_offset": 2, "last_offset": 2, "count": 1, "control": True}
    data = {"base_offset": 0, "last_offset": 1, "count": 2}
    run = trace(share_fetch((0, 2, 3), batches=[data, marker]), share_fetch((3, 3, 1), outcome="answer_lost"))
    found = [(each.key, each.offset, each.delivery_count, each.is_received) for each in deliveries(run)]
    assert found == [(("in", 0), 0, 3, True), (("in", 0), 1, 3, True), (("in", 0), 3, 1, False)]


def test_each_offset_has_its_type_and_its_result() -> None:
    run = trace(
        share_acknowledge((0, 2, [1, 0, 3]), (5, 6, [2])),
        share_fetch(accepts=(7, 7), error=REFUSED),
        share_acknowledge((8, 8, [1]), outcome="in_progress"),
        {
            **share_acknowledge((9, 9, [1])),
            "answer": {"error": "SHARE_SESSION_NOT_FOUND", "responses": []},
        },
    )
    found = [(each.offset, each.type, each.error) for each in acknowledgements(run)]
    assert found == [
        *((0, 1, "NONE"), (1, 0, "NONE"), (2, 3, "NONE"), (5, 2, "NONE"), (6, 2, "NONE")),
        *((7, 1, REFUSED), (8, 1, ""), (9, 1, "SHARE_SESSION_NOT_FOUND")),
    ]


def test_moments_of_a_share_group() -> None:
    run = trace(
        entry("ShareGroupHeartbeat", {"group_id": "g"}),
        share_fetch((0, 1, 1)),
        share_fetch((2, 3, 1), accepts=(0, 1)),
        share_acknowledge((2, 3, [1])),
        share_fetch(),
    )
    found = moments(run)
    assert [(each.on, each.ordinal, each.phase) for each in found] == [
        ("ShareGroupHeartbeat", 1, ""),
        ("ShareFetch", 1, "records"),
        ("ShareFetch", 2, "acknowledges"),
        ("ShareAcknowledge", 1, ""),
        ("ShareFetch", 3, "nothing"),
    ]
    assert {each.matchers for each in found} == {(("group", "g"),)}
    records, accepts, idle = (each for each in found if each.on == "ShareFetch")
    for fault, where in (
        ("expire-locks", (False, True)),
        ("late-records", (True, True)),
        ("kill-after", (True, True)),
    ):
        assert (applies(BY_NAME[fault], records), applies(BY_NAME[fault], accepts)) == where
    assert not any(applies(each, idle) for each in BY_NAME.values())
    needed = {(each.on, each.fault) for each in required(found, 1, tuple(Reach))}
    assert {("ShareFetch", "expire-locks"), ("ShareAcknowledge", "expire-locks")} <= needed
    assert ("ShareFetch", "expire-locks") not in {
        (each.on, each.fault) for each in required([records], 1, tuple(Reach))
    }


def test_each_record_of_the_input_is_accepted_or_rejected() -> None:
    entries = [
        {**share_acknowledge((0, 1, [1, 3])), "number": 5},
        {**share_acknowledge((2, 2, [1]), outcome="in_progress"), "number": 6},
        {**share_fetch(accepts=(3, 3)), "number": 4},
    ]

    def found(since: int, api: str, limit: int) -> list[dict[str, Any]]:
        return [each for each in entries if each["api"] == api and each["number"] > since]

    wanted = [(("in", 0), offset) for offset in range(4)]
    assert last_closed(entries[:2], 0) == 5
    acknowledged = Acknowledged(cast(Any, SimpleNamespace(entries=found)), wanted)
    assert not acknowledged.are_all
    entries[1]["outcome"] = "answered"
    assert acknowledged.are_all


# -- lints -------------------------------------------------------------------------------------------------------------


def test_accepted_before_the_output_is_written() -> None:
    early = seen(share_fetch((0, 1, 1)), share_acknowledge((0, 1, [1])), produce("out", count=2))
    assert names(share_groups.acknowledged_early(early, 2)) == ["acknowledged-early"]
    by_poll = seen(
        share_fetch((0, 1, 1)), produce("out"), share_fetch(accepts=(0, 1)), produce("out", base=1)
    )
    (found,) = share_groups.acknowledged_early(by_poll, 2)
    assert (found.name, found.sentence.partition(":")[0]) == (
        "acknowledged-by-poll",
        "ShareFetch accepts the 2nd record when 1 of 2 outputs are written",
    )
    right = seen(share_fetch((0, 1, 1)), produce("out", count=2), share_acknowledge((0, 1, [1])))
    assert not names(share_groups.acknowledged_early(right, 2))
    assert not names(share_groups.acknowledged_early(early, 3))  # another number of outputs per record
    released = seen(share_fetch((0, 1, 1)), share_acknowledge((0, 1, [2])), produce("out", count=2))
    assert not names(share_groups.acknowledged_early(released, 2))


def test_a_lock_that_ran_out() -> None:
    late = share_acknowledge((0, 0, [1]), error=REFUSED)
    (found,) = share_groups.never_renews(seen(share_fetch((0, 0, 1), lock_ms=2500), late))
    assert "in-0@0" in found.sentence
    assert "the lock of 2.5 s" in found.sentence
    renewed = share_acknowledge((0, 0, [4]))
    assert not names(share_groups.never_renews(seen(share_fetch((0, 0, 1)), renewed, late)))
    never_had = share_acknowledge((0, 0, [1]), error=REFUSED, member="other")
    assert not names(share_groups.never_renews(seen(share_fetch((0, 0, 1)), never_had)))
    lost = share_acknowledge((0, 0, [1]), error="NOT_LEADER_OR_FOLLOWER")
    assert not names(share_groups.never_renews(seen(share_fetch((0, 0, 1)), lost)))


def test_a_member_that_died_with_locks() -> None:
    taken, again = share_fetch((0, 0, 1)), share_fetch((0, 0, 2), member="other")
    assert names(share_groups.redelivered(seen(taken, again))) == ["died-with-locks"]
    alive = entry("ShareGroupHeartbeat", {"group_id": "g", "member_id": "m"})
    assert names(share_groups.redelivered(seen(taken, again, alive))) == ["redelivered"]
    released = share_acknowledge((0, 0, [2]))
    assert names(share_groups.redelivered(seen(taken, released, again))) == ["redelivered"]
    unseen = share_fetch((0, 0, 1), outcome="answer_lost")
    assert not names(share_groups.redelivered(seen(unseen, again)))


def test_released_up_to_the_limit() -> None:
    release = share_acknowledge((0, 0, [2]))
    loop = [share_fetch((0, 0, 1)), release, share_fetch((0, 0, 2)), release]
    (found,) = share_groups.released_to_limit(seen(*loop))
    assert found.sentence.startswith("in-0@0 was released 2 times, the last time at delivery 2")
    accepted = [share_fetch((0, 0, 3)), share_acknowledge((0, 0, [1]))]
    assert not names(share_groups.released_to_limit(seen(*loop, *accepted)))
    assert not names(share_groups.released_to_limit(seen(*loop, share_fetch((0, 0, 3)))))
    assert not names(share_groups.released_to_limit(seen(*loop[:2])))


@pytest.mark.parametrize(
    ("marker", "first", "is_found"), [("ABORT", 0, True), ("COMMIT", 0, False), ("ABORT", 2, False)]
)
def test_records_of_aborted_transactions(marker: str, first: int, is_found: bool) -> None:
    batches: list[dict[str, Any]] = [
        {"base_offset": 0, "last_offset": 1, "count": 2, "producer_id": 4},
        {"base_offset": 2, "last_offset": 2, "control": True, "marker": marker, "producer_id": 4},
        {"base_offset": 3, "last_offset": 3, "count": 1, "producer_id": -1},
    ]
    found = lints_of(seen(share_fetch((first, 3, 1), batches=batches)))
    assert [each.name for each in found] == (["read-uncommitted"] if is_found else [])


def diagnosis(*entries: Any, kinds: set[Kind], copies: tuple[int, ...] = ()) -> list[str]:
    repeated = (tuple(Place("out", 0, offset) for offset in copies),) if copies else ()
    missing = ((),) if Kind.LOST in kinds else ()
    bad = Bad(frozenset(kinds), repeated, missing, frozenset({"out"}), expected=1)
    return [each.name for each in diagnosed(seen(*entries), bad)]


def test_the_causes_of_a_failure() -> None:
    fetched, accepted = share_fetch((0, 0, 1)), share_acknowledge((0, 0, [1]))
    assert diagnosis(fetched, accepted, kinds={Kind.LOST}) == ["acknowledged-early"]
    assert diagnosis(fetched, produce("out"), accepted, kinds={Kind.LOST}) == []
    release = share_acknowledge((0, 0, [2]))
    loop = [fetched, release, share_fetch((0, 0, 2)), release]
    assert diagnosis(*loop, kinds={Kind.LOST}) == ["released-to-limit"]
    again = [produce("out"), share_fetch((0, 0, 2), member="other"), produce("out", base=1)]
    assert diagnosis(fetched, *again, kinds={Kind.DUPLICATED}, copies=(0, 1)) == ["died-with-locks"]
    late = share_acknowledge((0, 0, [1]), error=REFUSED)
    found = diagnosis(fetched, *again, late, kinds={Kind.DUPLICATED}, copies=(0, 1))
    assert found[0] == "never-renews"
    before = [fetched, share_fetch((0, 0, 2), member="other"), produce("out"), produce("out", base=1)]
    resent = [fetched, produce("out"), produce("out", base=1), share_fetch((0, 0, 2), member="other")]
    assert diagnosis(*before, kinds={Kind.DUPLICATED}, copies=(0, 1)) == ["died-with-locks"]
    assert "died-with-locks" not in diagnosis(*resent, kinds={Kind.DUPLICATED}, copies=(0, 1))


def test_a_share_group_is_a_mechanism_for_at_least_once_only() -> None:
    run = seen(share_fetch((0, 0, 1)), produce("out", tx="t"), end("t"))
    assert [each.name for each in mechanisms(run, run, Compare.ROWS, has_check=False)] == []
    found = mechanisms(run, run, Compare.ROWS, has_check=False, is_at_least_once=True)
    assert [each.name for each in found] == [SHARED]
    assert positions_elsewhere(run) is None


# -- what deliveries explain -------------------------------------------------------------------------------------------


def record(value: str | None, offset: int, headers: dict[str, str] | None = None) -> Record:
    return Record("out", 0, offset, 0, None, value, tuple((headers or {}).items()), 7, 0, False, None)


def kinds(
    *entries: Any, wrote: list[Record], expected: int = 1, may_reject: bool = False, finished: bool = True
) -> dict[Kind, int]:
    """The findings of a run, as kind -> number of records. Without faults the outputs are "a", "b", …"""
    reference = Reference([record(value, at) for at, value in enumerate("abcdefgh"[:expected])], Compare.ROWS)
    outputs = Outputs(wrote, wrote, Ending.FINISHED if finished else Ending.IDLE)

    def explain(difference: Difference) -> Difference:
        return explained(difference, reference, outputs, seen(*entries), may_reject=may_reject)

    findings = judge(reference, outputs, explain)
    return {each.kind: int(each.sentence.split()[0]) for each in findings if each.kind is not Kind.STUCK}


TWICE = [record("a", 0), record("a", 1)]


def test_duplicates_of_redelivered_input_are_told_from_others() -> None:
    fetched, again = share_fetch((0, 0, 1)), share_fetch((0, 0, 2))
    first, second = produce("out"), produce("out", base=1)
    assert kinds(fetched, first, again, second, wrote=TWICE) == {Kind.REDELIVERED: 1}
    assert kinds(fetched, again, first, second, wrote=TWICE) == {Kind.REDELIVERED: 1}
    assert kinds(fetched, first, second, again, wrote=TWICE) == {Kind.DUPLICATED: 1}
    assert kinds(fetched, first, second, wrote=TWICE) == {Kind.DUPLICATED: 1}
    unseen = share_fetch((0, 0, 1), outcome="answer_lost")
    assert kinds(unseen, again, first, second, wrote=TWICE) == {Kind.DUPLICATED: 1}
    assert kinds(again, first, second, wrote=TWICE) == {
        Kind.REDELIVERED: 1
    }  # the trace begins after the first delivery
    elsewhere = produce("other", base=1)
    assert kinds(fetched, first, again, elsewhere, wrote=TWICE) == {
        Kind.DUPLICATED: 1
    }  # the write is not seen


def test_a_redelivery_explains_as_many_duplicates_as_a_record_has_outputs() -> None:
    fetched, again = share_fetch((0, 1, 1)), share_fetch((0, 0, 2))
    wrote = [record(value, at) for at, value in enumerate("abab")]
    run = [fetched, produce("out", count=2), again, produce("out", base=2), produce("out", base=3)]
    assert kinds(*run, wrote=wrote, expected=2) == {Kind.DUPLICATED: 1, Kind.REDELIVERED: 1}
    # One output per two records, or three: it is not known which record has which output.
    assert kinds(*run, wrote=[*wrote, record("c", 4)], expected=3) == {Kind.REDELIVERED: 2}


LETTER = {
    "__dlq.errors.topic": "in",
    "__dlq.errors.partition": "0",
    "__dlq.errors.offset": "1",
    "__dlq.errors.group": "g",
}


def test_a_dead_letter_may_be_sent_twice() -> None:
    one, other = record(None, 0, LETTER), record("a", 0, {"trace": "1"})
    assert (letter(one), letter(other), letter(row(one))) == ((("in", 0), 1), None, (("in", 0), 1))
    reference = Reference([one], Compare.ROWS)
    outputs = Outputs([one, one], [one, one])
    found = explained(reference.difference(outputs.committed), reference, outputs, seen(), may_reject=False)
    assert (found.duplicated, found.redelivered.total()) == (Counter(), 1)


def test_missing_outputs_of_rejected_input() -> None:
    fetched, rejects = share_fetch((0, 1, 1)), share_acknowledge((0, 1, [1, 3]))
    run = [fetched, produce("out"), rejects]
    assert kinds(*run, wrote=[record("a", 0)], expected=2) == {Kind.LOST: 1}
    assert kinds(*run, wrote=[record("a", 0)], expected=2, may_reject=True) == {Kind.REJECTED: 1}
    both = [fetched, share_acknowledge((0, 1, [1]))]
    assert kinds(*both, wrote=[record("a", 0)], expected=2, may_reject=True) == {Kind.LOST: 1}
    assert kinds(*run, wrote=[], expected=2, may_reject=True) == {
        Kind.LOST: 2
    }  # one was rejected, two are missing
    dead = [record("a", 0), record(None, 1, LETTER)]
    assert kinds(*run, wrote=dead, expected=2, may_reject=True) == {Kind.REJECTED: 2}
    assert kinds(*both, wrote=dead, expected=2, may_reject=True) == {Kind.LOST: 1, Kind.UNEXPECTED: 1}
    assert kinds(*run, wrote=dead, expected=2, may_reject=True, finished=False)[Kind.UNEXPECTED] == 1


# -- a broker ----------------------------------------------------------------------------------------------------------


def test_a_share_group_gets_its_partitions_at_once_and_its_lag_is_shown(tmp_path: Path) -> None:
    seeds = tuple(Seed("in", value, partition=0) for value in ("a", "b", "c"))
    configs = {"g": {"share.auto.offset.reset": "earliest", "share.isolation.level": "read_committed"}}
    command = Command.parse("true", tmp_path)
    cluster = Ours(Workload(command, ("out",), ("in:1", "out:1"), seeds, group_configs=configs))
    try:
        cluster.start()
        cluster.handle.trace.start()
        wanted = [((each.topic, each.partition), each.offset) for each in cluster.records(["in"])]
        acknowledged = Acknowledged(cluster.handle.trace, wanted)
        consumer = ShareConsumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
        consumer.subscribe(["in"])
        eventually(lambda: len(consumer.poll(0.1)) == len(seeds))
        assert not acknowledged.are_all
        assert not is_lag_zero(cluster.groups(), {("in", 0): wanted[-1][1]})
        observation = Observation(cluster.handle)
        assert (observation.newest_delivery() > 0, observation.lock_ms()) == (True, 30_000)
        assert observation.newest_delivery() == observation.newest_writes_and_work()[0]
        consumer.commit_sync(30)
        eventually(lambda: acknowledged.are_all)
        (found,) = cluster.groups()[0]["shares"]
        assert found["lag"] < len(seeds)
        consumer.close()
    finally:
        cluster.close()
