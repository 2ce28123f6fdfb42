"""The verdict of a certificate."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.certify.certificate import Certificate
from odradek.certify.judging.findings import Finding, Kind
from odradek.certify.outcome import ACCEPTABLE, EXIT_CODES, Verdict
from odradek.certify.plans.exploration import Coverage
from odradek.certify.plans.requirements import KILLS, WAITS_S, required, wait_s
from tests.odradek.certify.certificates import LOST, OUTSIDE, certificate, failure

UNFINISHED = Finding(Kind.UNFINISHED, "all instances ended with code 0")


def with_(found: Certificate, **more: Any) -> Certificate:
    for name, value in more.items():
        setattr(found, name, value)
    return found


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (certificate(whole=True), Verdict.CLEAN),
        (certificate(clean=7), Verdict.INCOMPLETE),
        (certificate(), Verdict.INCOMPLETE),
        (with_(certificate(whole=True), mechanisms=[]), Verdict.NO_PROMISE),
        (with_(certificate(whole=True), caps=[OUTSIDE]), Verdict.NO_PROMISE),
        (with_(certificate(clean=7), mechanisms=[]), Verdict.NO_PROMISE),
        (with_(certificate(whole=True), interrupted=True), Verdict.INTERRUPTED),
        (with_(certificate(whole=True), unfinished=[failure(UNFINISHED)]), Verdict.INCOMPLETE),
        (with_(certificate(), not_judged="two runs differ"), Verdict.NOT_JUDGED),
        # A failure takes precedence over everything else.
        (with_(certificate(failure(LOST), whole=True), interrupted=True, mechanisms=[]), Verdict.FAILED),
    ],
)
def test_the_verdict_is_the_first_that_holds(found: Certificate, verdict: Verdict) -> None:
    assert found.verdict is verdict


def test_each_verdict_has_an_exit_code_of_its_own() -> None:
    assert sorted(EXIT_CODES.values()) == [0, 1, 2, 3, 4, 130]
    assert set(EXIT_CODES) == set(Verdict)
    assert {each.exit_code for each in ACCEPTABLE} == {3, 4}


def test_without_a_kill_nothing_is_clean() -> None:
    found = certificate(whole=True)
    assert found.exploration is not None
    for (kind, fault), _ in list(found.cells.items()):
        if fault in KILLS:
            found.exploration.cells[kind, fault] = Coverage.NO_EFFECT
    found.exploration.needed = [each for each in found.needed if each.fault not in KILLS]
    assert found.unmet == []
    assert found.verdict is Verdict.INCOMPLETE


def test_what_is_needed_is_what_the_job_asks_for() -> None:
    """A certificate requires faults only at APIs that the job uses: a job without transactions needs no faults at EndTxn."""
    found = certificate()
    assert found.exploration is not None
    moments = found.exploration.moments
    needed = required(moments, 1, found.exploration.reaches)
    assert {each.on for each in needed} <= {each.on for each in moments}
    assert ("EndTxn", "kill-after") in {(each.on, each.fault) for each in needed}
    plain = [each for each in moments if each.on not in ("EndTxn", "TxnOffsetCommit")]
    assert not {"EndTxn", "TxnOffsetCommit"} & {
        each.on for each in required(plain, 1, found.exploration.reaches)
    }


def test_what_is_left_out_is_not_needed() -> None:
    found = certificate()
    assert found.exploration is not None
    needed = required(found.exploration.moments, 1, found.exploration.reaches, ["freeze"])
    assert all(each.fault != "freeze" for each in needed)


@pytest.mark.parametrize(
    ("clients", "library"),
    [
        ({"confluent-kafka-python": "2.16.1-rdkafka-2.16.0"}, "librdkafka"),
        ({"kafka-python": "3.0.0"}, "kafka-python"),
        ({"kgo": "1.20"}, "kgo"),
    ],
)
def test_how_long_a_client_waits_goes_by_its_library(clients: dict[str, str], library: str) -> None:
    assert wait_s(clients) == WAITS_S[library]


def test_an_unknown_client_is_given_the_longest_wait() -> None:
    assert wait_s({"someone": "1"}) == max(WAITS_S.values())
    assert wait_s({}) == max(WAITS_S.values())
