"""The runs without faults: the expected outputs, the duration of a run, and the job's requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from odradek.certify import share_groups
from odradek.certify.certificate import Certificate
from odradek.certify.exchanges import time_outs_s
from odradek.certify.judging.agreement import agreed, compared
from odradek.certify.judging.comparison import Compare, Difference
from odradek.certify.judging.deliveries import LETTER_COUNT, explained, letter
from odradek.certify.judging.diagnosis import bad
from odradek.certify.judging.findings import Finding, Kind, Outputs, Reference, failed, judge
from odradek.certify.judging.mechanisms import ELSEWHERE, FENCED, STABLE, caps, mechanisms, warnings
from odradek.certify.judging.rows import HEADER, Fields
from odradek.certify.lints import Evidence, Lint, changing, lint
from odradek.certify.lints.causes import diagnosed
from odradek.certify.lints.share_groups import never_renews
from odradek.certify.observer import Observer
from odradek.certify.outcome import NotJudged
from odradek.certify.plans.exploration import Exploration
from odradek.certify.plans.moments import moments, patterns, roles
from odradek.certify.plans.plan import Plan
from odradek.certify.runs.run import Run, Stage
from odradek.certify.workload import LONGEST_S, Delivery, Workload

REST_S: Final = 60.0
"""Time without a request that changes anything after which a job without faults is considered not to finish, in seconds."""
LINES_MAX: Final = 8
"""Number of last lines of the job's output that are shown if it cannot be judged."""


_MISSING: Final = frozenset({Kind.LOST, Kind.TORN})
_LAST_VALUES: Final = frozenset({Kind.CHANGED, Kind.REORDERED})
_OTHER: Final = frozenset({Kind.CHANGED, Kind.UNEXPECTED, Kind.REORDERED})


@dataclass(frozen=True, slots=True)
class Judge:
    """The judge of a job's runs: the expected outputs, and the limits that two runs without faults have shown."""

    workload: Workload
    expected: Reference | None
    """The expected outputs; None if only the user's ``--check`` decides whether outputs are correct."""
    deadline_s: float
    time_outs_s: float
    """Sum of the timeouts of the job's clients, in seconds; 0 if the cluster's clock can be advanced."""
    settled_s: float = 0.0
    """How long the job still wrote after the end of its work in the runs without faults, in seconds."""
    warned: tuple[Lint, ...] = ()
    """Lints of the job's runs without faults."""
    delivery: Delivery = Delivery.EXACTLY_ONCE
    may_come_late: bool = True
    """Whether the job may write outputs after the commit of their offsets: they are not in one transaction."""

    def __call__(self, outputs: Outputs) -> list[Finding]:
        """The findings of the outputs, from the comparison with the reference and from the user's check."""
        return judge(self.expected, outputs)

    def needs_trace(self, findings: Sequence[Finding]) -> bool:
        """Whether the trace of the run may show that the findings are no failures: `of_run` then replaces them."""
        kinds = {each.kind for each in findings}
        may_be_rejected = self.workload.may_reject and bool(kinds & {*_MISSING, Kind.UNEXPECTED})
        return self.delivery is Delivery.AT_LEAST_ONCE and (Kind.DUPLICATED in kinds or may_be_rejected)

    def of_run(self, run: Run) -> list[Finding]:
        """The findings of a run with its trace, in which the deliveries of share groups explain some differences."""

        def explain(difference: Difference) -> Difference:
            assert self.expected is not None
            evidence = seen(self.workload, run)
            may_reject = self.workload.may_reject
            return explained(difference, self.expected, run.outputs, evidence, may_reject=may_reject)

        return judge(self.expected, run.outputs, explain)

    def failed(self, outputs: Outputs) -> bool:
        return failed(self(outputs))

    def is_right(self, outputs: Outputs) -> bool | None:
        """Whether the outputs are correct; None if only records are missing that a running job may still write.

        Never None for a job that writes its outputs and offsets in one transaction: no records follow its commit.
        """
        failures = {each.kind for each in self(outputs) if each.kind.is_failure}
        if self.delivery is Delivery.AT_LEAST_ONCE:
            # At the end of the run the trace shows whether they are allowed.
            failures.discard(Kind.DUPLICATED)
        if failures and self.may_come_late and failures <= self._may_be_mended:
            return None
        return not failures

    @property
    def _may_be_mended(self) -> frozenset[Kind]:
        """Kinds of findings that may disappear when the job writes more records.

        With ``keyed``, more records may also correct the last value of a key. Rows of a database may
        also be updated and deleted.
        """
        if any(not each.stage.startswith("http") for each in self.workload.service_outputs):
            return _MISSING | _OTHER
        is_keyed = self.expected is not None and self.expected.how is Compare.KEYED
        return _MISSING | _LAST_VALUES if is_keyed else _MISSING

    def doubts(self, findings: Sequence[Finding]) -> bool:
        """Whether a field that was equal in the reference runs by chance may explain the findings.

        Such a field is the current hour, or the name of a host.
        """
        is_compared = self.expected is not None and self.workload.expected is None
        return is_compared and any(each.kind in _OTHER for each in findings)

    def diagnosed(self, run: Run, findings: Sequence[Finding]) -> list[Lint]:
        """The causes of the findings that the evidence of the run shows; empty if unknown."""
        return diagnosed(seen(self.workload, run), bad(run, findings, self.expected, self.warned))


def refer(stage: Stage, certificate: Certificate, observer: Observer) -> Judge:
    """Run the job twice without faults, and return the judge of later runs.

    Raises `NotJudged` if these two runs give no expected outputs.
    """
    one = _finished(stage, certificate.workload, observer, 1)
    certificate.workload = workload = replace(certificate.workload, until=one.until)
    certificate.delivery = _delivery(workload, one)
    if any(letter(each) is not None for each in one.outputs.committed):
        workload = replace(workload, ignored=workload.ignored | {HEADER + LETTER_COUNT})
        certificate.workload = workload
    _judged_alone(workload, one)
    _refuse_late(workload, one)
    two = _finished(stage, workload, observer, 2)
    expected, ignored = _expected(certificate, one.outputs, two.outputs)
    _learn(stage, certificate, (one, two), ignored)
    time_outs = 0.0 if stage.cluster.moves_time else time_outs_s(one.trace)
    deadline_s = workload.deadline_s(certificate.reference_s) + time_outs
    settled_s = max(one.settled_s, two.settled_s)
    in_transactions = {FENCED, STABLE} & {each.name for each in certificate.mechanisms}
    may_come_late = bool(certificate.caps or not in_transactions or workload.service_outputs)
    return Judge(
        workload,
        expected,
        deadline_s,
        time_outs,
        settled_s,
        tuple(certificate.lints),
        certificate.delivery,
        may_come_late,
    )


def _delivery(workload: Workload, run: Run) -> Delivery:
    """What the job promises: what the user says, otherwise at least once if a share group consumes the input."""
    is_shared = share_groups.consumes(run.trace, workload.inputs)
    if workload.delivery is Delivery.AT_LEAST_ONCE and not is_shared:
        inputs = ", ".join(sorted(workload.inputs))
        raise NotJudged(f"--delivery at-least-once: no share group consumes {inputs or 'an input'}")
    return workload.delivery or (Delivery.AT_LEAST_ONCE if is_shared else Delivery.EXACTLY_ONCE)


_EMPTY: Final = "compared: nothing; the outputs are empty without faults, so only the check decides"


def _expected(certificate: Certificate, one: Outputs, two: Outputs) -> tuple[Reference | None, Fields]:
    """(the expected outputs, the fields that are not compared). The outputs are None if only the check decides.

    Raises `NotJudged` if the two runs differ and there is no check, or if the first one does not match ``--expect``.
    """
    workload = certificate.workload
    how, also = workload.compare, workload.compare_also
    ignored, lines = agreed(one.committed, two.committed, how, workload.ignored, also)
    if how is Compare.NONE:
        certificate.remarks.append(compared(how))
        return None, ignored
    if lines:
        said = f"two runs without faults had different outputs ({len(one.committed)} and {len(two.committed)} records)"
        if workload.check is None:
            advice = "Exclude what may differ with --ignore, or judge the outputs with --check"
            raise NotJudged("\n".join([f"{said}. {advice}", *lines]))
        if workload.expected is None:
            certificate.remarks.append(f"{said}, so only the check decides: {lines[0]}")
            return None, ignored
    is_empty = workload.expected is None and not one.committed
    certificate.remarks.append(_EMPTY if is_empty else compared(how, also))
    records = workload.expected if workload.expected is not None else one.committed
    expected = Reference(records, how, ignored, also)
    if workload.expected is not None:
        _refuse("without faults: ", judge(expected, one))
    return expected, ignored


def controlled(stage: Stage, certificate: Certificate, judge: Judge) -> Judge:
    """Run the job once more without faults, to find more fields that differ between runs without faults.

    Returns a judge that ignores these fields. Raises `NotJudged` if the runs differ in other ways and there is no
    check.
    """
    run = stage.run(Plan(), judge.deadline_s, REST_S, is_right=None)
    expected = judge.expected
    if not run.outputs.finished or expected is None:
        return judge
    ignored, lines = agreed(
        expected.records, run.outputs.committed, expected.how, expected.ignored, expected.also
    )
    if lines:
        said = "a third run without faults had different outputs than the first one"
        if judge.workload.check is None:
            raise NotJudged("\n".join([said, *lines]))
        certificate.remarks.append(f"{said}, so only the check decides: {lines[0]}")
        return replace(judge, expected=None)
    if ignored == expected.ignored:
        return judge
    certificate.ignored = ignored
    return replace(judge, expected=replace(expected, ignored=ignored))


def _finished(stage: Stage, workload: Workload, observer: Observer, number: int) -> Run:
    """Run the job without faults. As correct outputs are unknown, the run waits until the job writes nothing more."""
    observer.says("the job starts" if number == 1 else "the job starts again")
    deadline_s = workload.deadline_s(LONGEST_S)
    patience_s = max(REST_S, workload.patience_s or 0.0)
    run = stage.run(Plan(), deadline_s, patience_s, is_right=None, tell=observer.says)
    stage.add_evidence(run)
    if not run.outputs.finished:
        said = [f"the job did not finish without faults: {run.outputs.why_not}", *_refusals(run)]
        raise NotJudged("\n".join([*said, *_last_lines(run)]))
    return run


def _judged_alone(workload: Workload, run: Run) -> None:
    """Raise `NotJudged` if the first run alone shows that the job cannot be judged: no output, or the check refuses."""
    if any(not each.stage for each in workload.service_outputs):
        from odradek.certify.services.files import unreadable

        for reason in filter(None, map(unreadable, run.outputs.committed)):
            raise NotJudged(f"without faults the job left a file that no reader can read: {reason}")
    if workload.check is not None:
        _refuse("without faults ", run.outputs.said)
    elif not run.outputs.committed:
        topics = sorted({name for each in run.trace if each.api == "Produce" for name in each.topics})
        wrote = f"it wrote to {', '.join(topics)}" if topics else "it wrote nothing"
        outputs = ", ".join(workload.output_names)
        said = [f"without faults the job wrote no committed record to {outputs}: {wrote}"]
        if share_groups.consumes(run.trace, workload.inputs):
            said.append(_BEGINS)
        raise NotJudged("\n".join([*said, *_last_lines(run)]))


_BEGINS: Final = (
    "a share group begins at the end of a topic, unless its share.auto.offset.reset says otherwise: "
    "--group-config GROUP:share.auto.offset.reset=earliest"
)


def _refuse_late(workload: Workload, run: Run) -> None:
    """Raise `NotJudged` if records were processed again without any fault, because their locks had run out.

    How often depends on the time, so the runs cannot be compared, unless repetitions do not count.
    """
    if workload.check is None and workload.compare is not Compare.KEYED:
        late = next(never_renews(seen(workload, run)), None)
        if late is not None:
            raise NotJudged(f"without faults records were delivered again: {late.sentence} ({late.link})")


def _learn(stage: Stage, certificate: Certificate, runs: tuple[Run, Run], ignored: Fields) -> None:
    workload = certificate.workload
    one, two = runs
    ours, theirs = seen(workload, one), seen(workload, two)
    certificate.ignored = ignored
    certificate.reference_s = max(one.took_s, two.took_s)
    lints = [*lint(ours), *changing(ours, theirs)]
    certificate.clients = _clients(one)
    found = moments(one.trace, roles(one.trace) | patterns(one.trace, two.trace))
    certificate.mechanisms = mechanisms(
        ours,
        theirs,
        workload.compare,
        has_check=workload.check is not None,
        is_at_least_once=certificate.delivery is Delivery.AT_LEAST_ONCE,
        files=(one.outputs.file_names, two.outputs.file_names),
    )
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
    outputs = frozenset(workload.output_names)
    return Evidence(run.trace, workload.inputs, outputs, not run.clock_was_moved)


def _refuse(said: str, findings: Sequence[Finding]) -> None:
    """Raise `NotJudged` with the prefix ``said`` and the first failure among the findings; return if there is none."""
    for finding in (each for each in findings if each.kind.is_failure):
        raise NotJudged("\n".join([said + finding.sentence, *finding.evidence]))


def _last_lines(run: Run) -> list[str]:
    """The last lines that the job printed."""
    return [f"  {line}" for line in run.log.splitlines()[-LINES_MAX:]]


def _refusals(run: Run) -> list[str]:
    """The last rejected request of each API."""
    return list({each.api: each.line for each in run.trace if each.errors}.values())


def _clients(run: Run) -> dict[str, str]:
    return {
        str(each.request.get("client_software_name")): str(each.request.get("client_software_version"))
        for each in run.trace
        if each.api == "ApiVersions" and each.request.get("client_software_name")
    }
