"""Certificates made without a run, for tests of reports."""

from __future__ import annotations

from odradek.certify.certificate import Certificate, Failure
from odradek.certify.jobs.command import Command
from odradek.certify.judging.findings import Ending, Finding, Kind, Outputs
from odradek.certify.judging.mechanisms import Mechanism
from odradek.certify.lints import Lint
from odradek.certify.plans.exploration import Coverage, Exploration
from odradek.certify.plans.faults import BY_NAME
from odradek.certify.plans.moments import Moment, moments
from odradek.certify.plans.plan import Injection, Plan
from odradek.certify.runs.run import Run
from odradek.certify.workload import Workload
from tests.odradek.certify.traces import fetch, init, trace, transaction

COMMIT = Moment("EndTxn", (("transactional_id", "a"),), 2, "commit")
OUTSIDE = Lint("offsets-outside", "the consumer commits outside of the transaction", "OffsetCommit v8")


def failure(*findings: Finding, fault: str = "lose-answer") -> Failure:
    plan = Plan((Injection(COMMIT, BY_NAME[fault]),))
    run = Run(plan, Outputs((), (), Ending.FINISHED), [1], 1.0, [], ["instance 1 is killed"], "")
    return Failure(plan, list(findings), run, [OUTSIDE], came_back=4, tried=5)


LOST = Finding(Kind.LOST, "2 records missing", ('out: {"id": 1} (never written)', "out: b (never written)"))
REORDERED = Finding(Kind.REORDERED, "1 keys")


BY_CHECK = Mechanism("check", "--check judges each run")


def certificate(
    *failures: Failure, clean: int = 0, whole: bool = False, lints: tuple[Lint, ...] = ()
) -> Certificate:
    """A certificate with ``failures``, and with ``clean`` cells (pairs of moment and fault) that did not fail.

    With ``whole``, no cell failed except those of ``failures``.
    """
    found = Certificate(Workload(Command(("job",)), ("out",)), seed=1, lints=list(lints))
    found.exploration = Exploration(moments(trace(init("a"), fetch("in"), transaction("a", 5))))
    found.mechanisms = [BY_CHECK]
    for cell in list(found.cells)[: len(found.cells) if whole else clean]:
        found.exploration.cells[cell] = Coverage.CLEAN
    for each in failures:
        found.exploration.cells[each.plan.injections[0].cell] = Coverage.FAILED
    found.failures = list(failures)
    return found
