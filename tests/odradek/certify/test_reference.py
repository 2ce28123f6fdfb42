"""The expected outputs come from two runs without faults."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from odradek.certify.certificate import Certificate
from odradek.certify.jobs.command import Command
from odradek.certify.judging.comparison import Compare
from odradek.certify.judging.findings import Finding, Kind, Outputs, Reference
from odradek.certify.outcome import NotJudged
from odradek.certify.plans.plan import Plan
from odradek.certify.reference import Judge, _expected, controlled
from odradek.certify.runs.run import Run, Stage
from odradek.certify.workload import Workload
from tests.odradek.certify.test_comparison import record

JOB = Workload(Command.parse("true"), ("out",))
ONE, OTHER = Outputs([record("a"), record("b")], []), Outputs([record("a"), record("c")], [])


def test_two_runs_that_are_the_same_say_what_is_right() -> None:
    certificate = Certificate(JOB, 1)
    expected, ignored = _expected(certificate, ONE, ONE)
    assert expected is not None
    assert len(expected.rows) == 2
    assert (ignored, certificate.remarks) == (
        frozenset(),
        ["compared: topic, key, value, headers (--compare rows)"],
    )


def test_two_runs_that_differ_show_the_records() -> None:
    with pytest.raises(NotJudged) as raised:
        _expected(Certificate(JOB, 1), ONE, OTHER)
    assert str(raised.value).splitlines()[1:] == ["in run 1 only: out: b", "in run 2 only: out: c"]


def test_where_two_runs_differ_the_check_alone_judges_and_a_remark_says_so() -> None:
    certificate = Certificate(replace(JOB, check="true"), 1)
    expected, _ = _expected(certificate, ONE, OTHER)
    assert expected is None
    (remark,) = certificate.remarks
    assert "so only the check decides: in run 1 only: out: b" in remark


def test_what_the_user_expects_is_compared_beside_the_check() -> None:
    told = replace(JOB, check="true", expected=tuple(ONE.committed))
    expected, _ = _expected(Certificate(told, 1), ONE, OTHER)
    assert expected is not None
    with pytest.raises(NotJudged, match="without faults: 1 record missing"):
        _expected(Certificate(told, 1), OTHER, OTHER)


@pytest.mark.parametrize(
    ("workload", "outputs", "remark"),
    [
        (replace(JOB, check="true", compare=Compare.NONE), ONE, "compared: nothing; only the check decides"),
        (
            replace(JOB, check="true"),
            Outputs([], []),
            "compared: nothing; the outputs are empty without faults",
        ),
    ],
)
def test_where_nothing_is_compared_a_remark_says_so(
    workload: Workload, outputs: Outputs, remark: str
) -> None:
    certificate = Certificate(workload, 1)
    _expected(certificate, outputs, outputs)
    assert certificate.remarks[0].startswith(remark)


# -- a further run without faults -----------------------------------------------------------------------------------


def hour(text: str, *values: str) -> Outputs:
    return Outputs([record(f'{{"n": {each}, "hour": "{text}"}}', each) for each in values], [])


def judge_of(outputs: Outputs, workload: Workload = JOB) -> Judge:
    return Judge(workload, Reference(outputs.committed, Compare.ROWS), 60.0, 0.0)


def stage_of(outputs: Outputs) -> Stage:
    run = Run(Plan(), outputs, [], 0.0, [], [], "")
    return cast(Stage, SimpleNamespace(run=lambda *words, **more: run))


@pytest.mark.parametrize("kind", list(Kind))
def test_other_records_are_doubted_and_what_is_missing_or_there_twice_is_not(kind: Kind) -> None:
    findings = [Finding(Kind.LOST, ""), Finding(kind, "")]
    assert judge_of(ONE).doubts(findings) == (kind in (Kind.CHANGED, Kind.UNEXPECTED, Kind.REORDERED))
    assert not judge_of(ONE, replace(JOB, expected=tuple(ONE.committed))).doubts(findings)
    assert not Judge(JOB, None, 60.0, 0.0).doubts(findings)


def test_a_field_that_was_the_same_by_chance_is_left_out_after_one_more_run() -> None:
    certificate, judge = Certificate(JOB, 1), judge_of(hour("10", "1", "2"))
    later = hour("11", "1", "2")
    assert judge.failed(later)
    judge = controlled(stage_of(later), certificate, judge)
    assert certificate.ignored == {"hour"}
    assert not judge.failed(hour("12", "1", "2"))
    assert [each.kind for each in judge(hour("12", "1", "1", "2"))] == [Kind.DUPLICATED]


def test_one_more_run_that_is_the_same_changes_nothing() -> None:
    judge = judge_of(hour("10", "1"))
    assert controlled(stage_of(hour("10", "1")), Certificate(JOB, 1), judge) is judge


def test_one_more_run_that_differs_leaves_nothing_to_compare_with() -> None:
    judge = judge_of(ONE)
    with pytest.raises(NotJudged, match="in run 2 only: out: c"):
        controlled(stage_of(OTHER), Certificate(JOB, 1), judge)
    checked = replace(JOB, check="true")
    certificate = Certificate(checked, 1)
    assert controlled(stage_of(OTHER), certificate, judge_of(ONE, checked)).expected is None
    assert "so only the check decides" in certificate.remarks[0]


def test_last_values_of_keys_may_still_come() -> None:
    keyed = Judge(JOB, Reference([record("10", "k")], Compare.KEYED), 60.0, 0.0)
    assert keyed.is_right(Outputs([record("7", "k")], [])) is None
    assert keyed.is_right(Outputs([record("10", "k")], [])) is True
    assert judge_of(ONE).is_right(OTHER) is False
