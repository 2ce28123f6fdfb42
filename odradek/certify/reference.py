"""The runs without faults: what is right, how long a run takes, and what the job's requests are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from odradek.certify.certificate import Certificate
from odradek.certify.exchanges import time_outs_s
from odradek.certify.judging.agreement import agreed, compared
from odradek.certify.judging.comparison import Compare
from odradek.certify.judging.diagnosis import bad
from odradek.certify.judging.findings import Finding, Kind, Outputs, Reference, failed, judge
from odradek.certify.judging.mechanisms import ELSEWHERE, FENCED, STABLE, caps, mechanisms, warnings
from odradek.certify.judging.rows import Fields
from odradek.certify.lints import Evidence, Lint, changing_ids, lint
from odradek.certify.lints.causes import diagnosed
from odradek.certify.observer import Observer
from odradek.certify.plans.exploration import Exploration
from odradek.certify.plans.moments import moments, patterns, roles
from odradek.certify.plans.plan import Plan
from odradek.certify.runs.run import Run, Stage
from odradek.certify.workload import LONGEST_S, Workload
from odradek.errors import OdradekError

REST_S: Final = 60.0
"""A job that asks for no change so long in a run without faults, and is not done, does not come to an end."""
LINES_MAX: Final = 8
"""Last lines of the job that are shown where it cannot be judged."""


_MISSING: Final = frozenset({Kind.LOST, Kind.TORN})
_LAST_VALUES: Final = frozenset({Kind.CHANGED, Kind.REORDERED})
_OTHER: Final = frozenset({Kind.CHANGED, Kind.UNEXPECTED, Kind.REORDERED})


class NotJudged(OdradekError):
    """There is nothing to compare with: a run without faults did not finish or wrote nothing, or two of them differ."""


@dataclass(frozen=True, slots=True)
class Judge:
    """Says of a run's outputs what is wrong with them."""

    workload: Workload
    expected: Reference | None
    """None where the check alone judges."""
    deadline_s: float
    time_outs_s: float
    """The time-outs of the job's clients, where the cluster's time cannot be moved."""
    settled_s: float = 0.0
    """How long the job wrote behind its end."""
    warned: tuple[Lint, ...] = ()
    """What the runs without faults have shown."""
    may_come_late: bool = True
    """Outputs are written outside of the transaction of the positions."""

    def __call__(self, outputs: Outputs) -> list[Finding]:
        """By the outputs of the reference run, and by the user's check where there is one."""
        return judge(self.expected, outputs)

    def failed(self, outputs: Outputs) -> bool:
        return failed(self(outputs))

    def is_right(self, outputs: Outputs) -> bool | None:
        """None where records are missing, and nothing else is wrong, which may come as long as the job is alive.

        Not of a job that writes in the transaction of its positions: what is behind them does not come any more.
        """
        failures = {each.kind for each in self(outputs) if each.kind.is_failure}
        if failures and self.may_come_late and failures <= self._may_be_mended:
            return None
        return not failures

    @property
    def _may_be_mended(self) -> frozenset[Kind]:
        """By records that are still to come; the last value of a key may be another one then."""
        is_keyed = self.expected is not None and self.expected.how is Compare.KEYED
        return _MISSING | _LAST_VALUES if is_keyed else _MISSING

    def doubts(self, findings: Sequence[Finding]) -> bool:
        """A field that happened to be the same in two runs without faults (the hour, a host) may explain these findings."""
        is_compared = self.expected is not None and self.workload.expected is None
        return is_compared and any(each.kind in _OTHER for each in findings)

    def diagnosed(self, run: Run, findings: Sequence[Finding]) -> list[Lint]:
        """Why, by the evidence of this run alone; empty: unknown."""
        return diagnosed(seen(self.workload, run), bad(run, findings, self.expected, self.warned))


def refer(stage: Stage, certificate: Certificate, observer: Observer) -> Judge:
    """Run the job twice without faults. `NotJudged` says why there is nothing to compare with."""
    one = _finished(stage, certificate.workload, observer, 1)
    certificate.workload = workload = replace(certificate.workload, until=one.until)
    _judged_alone(workload, one)
    two = _finished(stage, workload, observer, 2)
    expected, ignored = _expected(certificate, one.outputs, two.outputs)
    _learn(stage, certificate, (one, two), ignored)
    time_outs = 0.0 if stage.cluster.moves_time else time_outs_s(one.trace)
    deadline_s = workload.deadline_s(certificate.reference_s) + time_outs
    settled_s = max(one.settled_s, two.settled_s)
    in_transactions = {FENCED, STABLE} & {each.name for each in certificate.mechanisms}
    may_come_late = bool(certificate.caps or not in_transactions)
    return Judge(
        workload, expected, deadline_s, time_outs, settled_s, tuple(certificate.lints), may_come_late
    )


_EMPTY: Final = (
    "compared: nothing; the outputs are empty without faults, and the check alone says what is right"
)


def _expected(certificate: Certificate, one: Outputs, two: Outputs) -> tuple[Reference | None, Fields]:
    """(what each run has to come to, the fields that are not compared). Where two runs differ the check alone judges."""
    workload = certificate.workload
    how, also = workload.compare, workload.compare_also
    ignored, lines = agreed(one.committed, two.committed, how, workload.ignored, also)
    if how is Compare.NONE:
        certificate.remarks.append(compared(how))
        return None, ignored
    if lines:
        said = f"two runs without faults came to other outputs ({len(one.committed)} and {len(two.committed)} records)"
        if workload.check is None:
            advice = "Name what may differ with --ignore, or say with --check what is right"
            raise NotJudged("\n".join([f"{said}. {advice}", *lines]))
        if workload.expected is None:
            certificate.remarks.append(f"{said}, so the check alone judges: {lines[0]}")
            return None, ignored
    is_empty = workload.expected is None and not one.committed
    certificate.remarks.append(_EMPTY if is_empty else compared(how, also))
    records = workload.expected if workload.expected is not None else one.committed
    expected = Reference(records, how, ignored, also)
    if workload.expected is not None:
        _refuse("without faults: ", judge(expected, one))
    return expected, ignored


def controlled(stage: Stage, certificate: Certificate, judge: Judge) -> Judge:
    """One more run without faults, behind outputs of a kind that none had: what differs there too is not the fault's doing.

    Fields that differ are left out from now on. `NotJudged` if the run differs without them.
    """
    run = stage.run(Plan(), judge.deadline_s, REST_S, is_right=None)
    expected = judge.expected
    if not run.outputs.finished or expected is None:
        return judge
    ignored, lines = agreed(
        expected.records, run.outputs.committed, expected.how, expected.ignored, expected.also
    )
    if lines:
        said = "a third run without faults came to other outputs than the first one"
        if judge.workload.check is None:
            raise NotJudged("\n".join([said, *lines]))
        certificate.remarks.append(f"{said}, so the check alone judges: {lines[0]}")
        return replace(judge, expected=None)
    if ignored == expected.ignored:
        return judge
    certificate.ignored = ignored
    return replace(judge, expected=replace(expected, ignored=ignored))


def _finished(stage: Stage, workload: Workload, observer: Observer, number: int) -> Run:
    """What is right is not known yet: it gets the whole moment in which a job may write on."""
    observer.says("the job starts" if number == 1 else "the job starts once more")
    deadline_s = workload.deadline_s(LONGEST_S)
    patience_s = max(REST_S, workload.patience_s or 0.0)
    run = stage.run(Plan(), deadline_s, patience_s, is_right=None, tell=observer.says)
    stage.add_evidence(run)
    if not run.outputs.finished:
        said = [f"the job did not finish without faults: {run.outputs.why_not}", *_refusals(run)]
        raise NotJudged("\n".join([*said, *_last_lines(run)]))
    return run


def _judged_alone(workload: Workload, run: Run) -> None:
    """The first run is judged before there is a second one."""
    if workload.check is not None:
        _refuse("without faults ", run.outputs.said)
    elif not run.outputs.committed:
        topics = sorted({name for each in run.trace if each.api == "Produce" for name in each.topics})
        wrote = f"it wrote to {', '.join(topics)}" if topics else "it wrote nothing at all"
        outputs = ", ".join(workload.outputs)
        raise NotJudged(
            "\n".join(
                [f"without faults the job left no committed record in {outputs}: {wrote}", *_last_lines(run)]
            )
        )


def _learn(stage: Stage, certificate: Certificate, runs: tuple[Run, Run], ignored: Fields) -> None:
    workload = certificate.workload
    one, two = runs
    ours, theirs = seen(workload, one), seen(workload, two)
    certificate.ignored = ignored
    certificate.reference_s = max(one.took_s, two.took_s)
    lints = [*lint(ours), *changing_ids(ours, theirs)]
    certificate.clients = _clients(one)
    found = moments(one.trace, roles(one.trace) | patterns(one.trace, two.trace))
    certificate.mechanisms = mechanisms(ours, theirs, workload.compare, has_check=workload.check is not None)
    certificate.lints = warnings(lints, certificate.mechanisms)
    certificate.caps = caps(lints, certificate.mechanisms)
    certificate.exploration = Exploration(
        found,
        workload.nodes,
        certificate.seed,
        stage.cluster.reaches,
        workload.left_out,
        is_elsewhere=any(each.name == ELSEWHERE for each in certificate.mechanisms),
    )
    certificate.runs = 2


def seen(workload: Workload, run: Run) -> Evidence:
    outputs = frozenset(workload.outputs)
    return Evidence(run.trace, workload.inputs, outputs, not run.clock_was_moved)


def _refuse(said: str, findings: Sequence[Finding]) -> None:
    """The job cannot be judged if there is a failure: the first one says why."""
    for finding in (each for each in findings if each.kind.is_failure):
        raise NotJudged("\n".join([said + finding.sentence, *finding.evidence]))


def _last_lines(run: Run) -> list[str]:
    """What the job printed last, before the end of the run."""
    return [f"  {line}" for line in run.log.splitlines()[-LINES_MAX:]]


def _refusals(run: Run) -> list[str]:
    """The newest request of each API that the broker has refused."""
    return list({each.api: each.line for each in run.trace if each.errors}.values())


def _clients(run: Run) -> dict[str, str]:
    return {
        str(each.request.get("client_software_name")): str(each.request.get("client_software_version"))
        for each in run.trace
        if each.api == "ApiVersions" and each.request.get("client_software_name")
    }
