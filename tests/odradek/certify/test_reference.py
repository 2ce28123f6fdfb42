"""What the two runs without faults say is right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.certify.certificate import Certificate
from odradek.certify.command import Command
from odradek.certify.comparison import Compare
from odradek.certify.reference import NotJudged, _expected
from odradek.certify.verdict import Outputs
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
    assert "so the check alone judges: in run 1 only: out: b" in remark


def test_what_the_user_expects_is_compared_beside_the_check() -> None:
    told = replace(JOB, check="true", expected=tuple(ONE.committed))
    expected, _ = _expected(Certificate(told, 1), ONE, OTHER)
    assert expected is not None
    with pytest.raises(NotJudged, match="without faults: 1 record missing"):
        _expected(Certificate(told, 1), OTHER, OTHER)


@pytest.mark.parametrize(
    ("workload", "outputs", "remark"),
    [
        (replace(JOB, check="true", compare=Compare.NONE), ONE, "compared: nothing; the check alone judges"),
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
