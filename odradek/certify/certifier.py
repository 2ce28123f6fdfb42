"""The certifier: two reference runs, then plans one after the other, and for each failure its shortest plan and diagnosis.

certificate = Certifier(workload, budget_s=600).run()
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from odradek.certify import settings
from odradek.certify.check import asked
from odradek.certify.comparison import Fields, compare, differing_fields, rows
from odradek.certify.exchanges import time_outs_s
from odradek.certify.exploration import Coverage, Exploration
from odradek.certify.holding import OnHold
from odradek.certify.lints import Evidence, Lint, changing_ids, lint
from odradek.certify.lints.clients import only_broker_dropped
from odradek.certify.moments import moments, patterns
from odradek.certify.plan import Cell, Plan
from odradek.certify.run import Run, Stage
from odradek.certify.verdict import Finding, Outputs, Reference, judge, kinds_of, stuck
from odradek.certify.workload import LONGEST_S, PATIENCE_S, Workload
from odradek.durations import seconds
from odradek.errors import OdradekError

TRIES: Final = 5
"""How often a failure is tried again: one that comes back each time is certain, another one seldom."""
Verdict = Literal["clean", "failed", "none"]
Progress = Callable[["Certificate", str], None]


def _quiet(certificate: Certificate, text: str) -> None:
    """No progress is shown."""


class NotDeterministic(OdradekError):
    """Two runs without faults came to other outputs."""


@dataclass(slots=True)
class Failure:
    """A plan under which the job is wrong."""

    plan: Plan
    findings: list[Finding]
    run: Run
    diagnosis: list[Lint]
    came_back: int = 0
    tried: int = 0

    @property
    def is_seldom(self) -> bool:
        return self.came_back < self.tried

    @property
    def kinds(self) -> tuple[str, ...]:
        return kinds_of(self.findings)


@dataclass(slots=True)
class Certificate:
    """What is known of the job so far."""

    workload: Workload
    seed: int
    exploration: Exploration | None = None
    reference_s: float = 0.0
    ignored: Fields = frozenset()
    lints: list[Lint] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    runs: int = 0
    began: float = field(default_factory=time.monotonic)
    took_s: float = 0.0
    clients: dict[str, str] = field(default_factory=dict)
    """Client libraries with their versions, as their ApiVersions requests name them."""

    @property
    def is_clean(self) -> bool:
        return not self.failures

    @property
    def verdict(self) -> Verdict:
        """None if no fault has struck."""
        if self.failures:
            return "failed"
        return "clean" if Coverage.CLEAN in self.cells.values() else "none"

    @property
    def cells(self) -> Mapping[Cell, Coverage]:
        """None before the moments are known."""
        return self.exploration.cells if self.exploration is not None else {}

    def covered(self) -> Counter[Coverage]:
        return Counter(self.cells.values())


class Certifier:
    """One job and its budget."""

    def __init__(
        self,
        workload: Workload,
        budget_s: float,
        *,
        seed: int = 1,
        stages: int = 1,
        failures_max: int | None = None,
        progress: Progress = _quiet,
    ) -> None:
        self._workload, self._budget_s, self._stages = workload, budget_s, stages
        self._failures_max = failures_max
        self._progress = progress
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self.certificate = Certificate(workload, seed)

    @classmethod
    def of(
        cls, options: Mapping[str, Any], directory: Path, budget: str, progress: Progress = _quiet
    ) -> Certifier:
        """By the options of the command and of ``certify.toml``; ``budget`` is that of options that name none.

        ``directory`` is where files and the job are. ``ValueError`` says what is wrong.
        """
        return cls(
            settings.workload(options, directory),
            seconds(str(options.get("budget") or budget)),
            seed=int(options.get("seed") or 1),
            stages=int(options.get("stages") or 1),
            failures_max=options.get("failures"),
            progress=progress,
        )

    def run(self) -> Certificate:
        """Until the budget is over, or ``failures_max`` failures are found."""
        certificate = self.certificate
        with Stage(self._workload) as stage:
            self._reference(stage)
            self._plans = self._numbered()
            others = [threading.Thread(target=self._beside, daemon=True) for _ in range(self._stages - 1)]
            for thread in others:
                thread.start()
            self._work(stage)
            for thread in others:
                thread.join()
        if self._errors:
            raise self._errors[0]
        certificate.took_s = time.monotonic() - certificate.began
        return certificate

    def again(self, plan: Plan, times: int, on_hold: OnHold | None = None) -> list[tuple[Run, list[Finding]]]:
        """The plan, so often, and what was wrong each time. With ``on_hold`` each run stands still at its faults."""
        with Stage(self._workload) as stage:
            self._reference(stage)
            tries = []
            for _ in range(times):
                run, findings = self._tried(stage, plan, on_hold)
                tries.append((stage.add_evidence(run), findings))
            return tries

    # -- what is right ------------------------------------------------------------------------------------------

    def _reference(self, stage: Stage) -> None:
        certificate, workload = self.certificate, self._workload
        deadline_s = workload.deadline_s(LONGEST_S)
        # What is right is not known yet: each gets the whole moment in which a job may write on.
        one, two = (stage.add_evidence(stage.run(Plan(), deadline_s, None, is_right=None)) for _ in range(2))
        for each in (one, two):
            if not each.outputs.finished:
                said = [f"the job did not finish without faults: {each.outputs.why_not}", *_refusals(each)]
                raise OdradekError("\n".join([*said, each.log]))
        if workload.check is not None:
            _refuse("without faults ", asked(workload.check, one.outputs.committed))
        ignored = workload.ignored
        first, second = one.outputs.committed, two.outputs.committed
        if compare(rows(first, ignored), rows(second, ignored), workload.compare):
            ignored |= differing_fields(first, second)
        difference = compare(rows(first, ignored), rows(second, ignored), workload.compare)
        if difference and workload.check is None:
            raise NotDeterministic(
                f"two runs without faults came to other outputs ({len(first)} and {len(second)} records). Name what may "
                "differ with --ignore, or say with --check what is right"
            )
        self._expected = Reference(first, workload.compare, ignored)
        if workload.expected is not None:
            self._expected = Reference(workload.expected, workload.compare, ignored)
            _refuse("without faults: ", judge(self._expected, one.outputs))
        certificate.ignored = ignored
        certificate.reference_s = max(one.took_s, two.took_s)
        ours, theirs = self._seen(one), self._seen(two)
        certificate.lints = [*lint(ours), *changing_ids(ours, theirs)]
        certificate.clients = _clients(one)
        found = moments(one.trace, patterns(one.trace, two.trace))
        certificate.exploration = Exploration(found, workload.nodes, certificate.seed, stage.cluster.reaches)
        self._time_outs_s = 0.0 if stage.cluster.moves_time else time_outs_s(one.trace)
        certificate.runs = 2
        self._progress(certificate, "the job is the same twice without faults")
        self._begun = time.monotonic()

    def _seen(self, run: Run) -> Evidence:
        outputs = frozenset(self._workload.outputs)
        return Evidence(run.trace, self._workload.inputs, outputs, not run.clock_was_moved)

    # -- plans --------------------------------------------------------------------------------------------------

    def _numbered(self) -> Iterator[Plan]:
        assert self.certificate.exploration is not None
        tried: set[str] = set()
        for plan in self.certificate.exploration.plans():
            if plan.id not in tried:
                tried.add(plan.id)
                yield plan

    def _next(self) -> Plan | None:
        with self._lock:
            if self._stop.is_set() or time.monotonic() - self._begun > self._budget_s:
                return None
            return next(self._plans, None)

    def _beside(self) -> None:
        try:
            with Stage(self._workload) as stage:
                self._work(stage)
        except BaseException as error:
            self._errors.append(error)

    def _work(self, stage: Stage) -> None:
        while (plan := self._next()) is not None:
            run, findings = self._tried(stage, plan)
            if findings and run.is_reached:
                self._failed(stage, plan, stage.add_evidence(run), findings)

    def _tried(self, stage: Stage, plan: Plan, on_hold: OnHold | None = None) -> tuple[Run, list[Finding]]:
        deadline_s = self._workload.deadline_s(self.certificate.reference_s) + self._time_outs_s
        is_right = None if _hits_outside(plan) else lambda outputs: not self._judged(outputs)
        run = stage.run(plan, deadline_s, self._patience_s(plan), is_right, on_hold)
        findings = self._judged(run.outputs)
        with self._lock:
            certificate = self.certificate
            certificate.runs += 1
            if certificate.exploration is not None:
                certificate.exploration.learned(
                    plan, reached=run.is_reached, failed=bool(findings) and run.is_reached
                )
            self._progress(certificate, str(plan))
        return run, findings

    def _judged(self, outputs: Outputs) -> list[Finding]:
        """By the user's check where there is one, else by the outputs of the reference run."""
        if self._workload.check is None:
            return judge(self._expected, outputs)
        return [*stuck(outputs), *asked(self._workload.check, outputs.committed)]

    def _patience_s(self, plan: Plan) -> float | None:
        """None where a client waits for its own time-out."""
        if any(each.fault.is_slow for each in plan.injections):
            return None
        patience_s = self._workload.patience_s
        if patience_s is None:
            patience_s = PATIENCE_S + self._time_outs_s
        return patience_s + self.certificate.reference_s

    def _failed(self, stage: Stage, plan: Plan, run: Run, findings: list[Finding]) -> None:
        shorter = self._shrunk(stage, plan)
        if shorter is not None:
            plan, run, findings = shorter
        failure = Failure(plan, findings, run, self._diagnosed(run), 1, 1)
        for _ in range((TRIES if self._is_news(failure) else 2) - 1):
            again, found = self._tried(stage, plan)
            failure.tried += again.is_reached
            failure.came_back += bool(found) and again.is_reached
        with self._lock:
            known = any(each.plan.id == plan.id for each in self.certificate.failures)
            if not known:
                self.certificate.failures.append(failure)
            if self._failures_max and len(self.certificate.failures) >= self._failures_max:
                self._stop.set()
            self._progress(self.certificate, f"{', '.join(failure.kinds)}: {plan}")

    def _diagnosed(self, run: Run) -> list[Lint]:
        """What the run's own trace shows, and what was seen without faults already: times, ids of two starts."""
        found = lint(self._seen(run))
        if stuck(run.outputs) and (dropped := only_broker_dropped(run.trace, run.exits)) is not None:
            found.insert(0, dropped)
        names = {each.name for each in found}
        return found + [each for each in self.certificate.lints if each.name not in names]

    def _is_news(self, failure: Failure) -> bool:
        """No other failure has the same faults and kinds: those of one cause need not all be tried so often."""

        def cause(one: Failure) -> tuple[object, ...]:
            return one.kinds, [each.fault.name for each in one.plan.injections]

        return all(cause(each) != cause(failure) for each in self.certificate.failures)

    def _shrunk(self, stage: Stage, plan: Plan) -> tuple[Plan, Run, list[Finding]] | None:
        """The fewest injections of the plan that fail still; None if it takes all of them."""
        for left_out in range(len(plan)) if len(plan) > 1 else ():
            fewer = Plan(plan.injections[:left_out] + plan.injections[left_out + 1 :])
            run, findings = self._tried(stage, fewer)
            if findings and run.is_reached:
                stage.add_evidence(run)
                return self._shrunk(stage, fewer) or (fewer, run, findings)
        return None


def _refuse(said: str, findings: list[Finding]) -> None:
    """The job cannot be judged if there is a finding: the first one says why."""
    for finding in findings:
        raise OdradekError("\n".join([said + finding.sentence, *finding.evidence]))


def _refusals(run: Run) -> list[str]:
    """The newest request of each API that the broker has refused."""
    return list({each.api: each.line for each in run.trace if each.errors}.values())


def _clients(run: Run) -> dict[str, str]:
    return {
        str(each.request.get("client_software_name")): str(each.request.get("client_software_version"))
        for each in run.trace
        if each.api == "ApiVersions" and each.request.get("client_software_name")
    }


def _hits_outside(plan: Plan) -> bool:
    """No transaction waits for the request that was hit: what a client sends again comes when the job is done already."""
    return any(
        each.moment.on == "Produce" and "transactional_id" not in dict(each.moment.matchers)
        for each in plan.injections
    )
