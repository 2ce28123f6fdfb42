"""The timeline of both ends, and the two requests between which a fault fell."""

from __future__ import annotations

from typing import Any

from odradek.certify.lints.timeline import guilty_pair, timeline, title
from odradek.certify.plans.faults import BY_NAME
from odradek.certify.plans.moments import Moment
from odradek.certify.plans.plan import Injection, Plan
from tests.odradek.certify.traces import commit, entry, fetch, insert, offsets, post, produce, sql, trace


def plan(fault: str, on: str, ordinal: int, **matchers: str) -> Plan:
    return Plan((Injection(Moment(on, tuple(matchers.items()), ordinal, ""), BY_NAME[fault]),))


def written(number: int, **more: Any) -> list[Any]:
    return [insert("results", f"o{number}", 5, tx=number), commit(number, **more)]


def shown(text: str) -> list[str]:
    """The lines without their times and connections."""
    return [" ".join((line[14:24] + line[48:]).split()) for line in text.splitlines()[2:]]


def test_the_timeline_has_the_decisive_requests_of_both_ends_with_the_faults() -> None:
    found = trace(
        *(entry("Metadata"), fetch("in", found=False), fetch("in", count=3), sql("SELECT 1 FROM results")),
        *(written(1), produce("out"), offsets("in", 1), post("{}", key="k", status=503)),
        *(insert("results", "o2", 5, tx=2, error="40P01"), commit(2, tag="ROLLBACK")),
        written(3, outcome="answer_lost"),
    )
    text = timeline(found, plan("lose-answer", "postgres:COMMIT", 3), [(10**15, "instance 1 is killed")])
    assert text.splitlines()[0] == title(found) == "Kafka and http and postgres"
    assert shown(text) == [
        "Kafka Fetch in #2 3 records -> ok",
        "postgres INSERT results #1 [o1, 5] -> ok, 1 row",
        "postgres COMMIT #1 -> ok",
        "Kafka Produce out #1 1 records -> ok",
        "Kafka OffsetCommit in #1 0@1 -> ok",
        "http POST /v1/payments #1 key k {} -> 503",
        "postgres INSERT results #2 [o2, 5] -> 40P01",
        "postgres COMMIT #2 -> ok, ROLLBACK",
        "postgres INSERT results #3 [o3, 5] -> ok, 1 row",
        "postgres COMMIT #3 -> the response is lost",
        "fault lose-answer at postgres:COMMIT #3",
        "instance 1 is killed",
    ]


def test_a_run_without_services_has_no_timeline_of_both_ends() -> None:
    assert title(trace(produce("out"))) == ""


def test_the_fault_fell_between_the_request_that_was_handled_and_the_next_one() -> None:
    after = trace(written(1), offsets("in", 1), written(2), written(3), offsets("in", 2))
    assert guilty_pair(after, plan("kill-after", "postgres:COMMIT", 2)).startswith("postgres COMMIT #2 at")
    assert ", then OffsetCommit in #2 at" in guilty_pair(after, plan("kill-after", "postgres:COMMIT", 2))


def test_the_pair_of_a_request_that_was_not_handled_ends_with_it() -> None:
    before = trace(written(1), produce("out") | {"outcome": "unanswered"})
    pair = guilty_pair(before, plan("lose-request", "Produce", 1))
    assert pair.startswith("postgres COMMIT #1 at")
    assert ", then Produce out #1 at" in pair


def test_there_is_no_pair_without_a_fault_that_was_hit() -> None:
    assert guilty_pair(trace(written(1)), plan("kill-after", "postgres:COMMIT", 2)) == ""
    assert guilty_pair(trace(produce("out")), plan("kill-after", "Produce", 1)) == "", "no service"
