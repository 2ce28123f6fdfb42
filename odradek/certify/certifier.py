"""The certifier: two runs of a job without faults, then one run for each plan of faults.

The plan of each failure is shrunk, and the failure is diagnosed.

certificate = Certifier(workload, budget_s=600).run()
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from odradek.certify import outcome, settings
from odradek.certify.certificate import Certificate, Failure
from odradek.certify.judging.findings import Finding, Kind
from odradek.certify.lints import Lint
from odradek.certify.observer import Observer, Quiet
from odradek.certify.outcome import NotJudged
from odradek.certify.plans.exploration import Coverage
from odradek.certify.plans.plan import Plan
from odradek.certify.plans.requirements import SIDE_BY_SIDE
from odradek.certify.reference import controlled, refer
from odradek.certify.runs.holding import OnHold
from odradek.certify.runs.run import Run, Stage
from odradek.certify.workload import PATIENCE_S, Workload
from odradek.deadlines import stretched
from odradek.durations import seconds
from odradek.errors import OdradekError

TRIES: Final = 5
"""Number of runs of a plan that has failed.

A failure that comes back in each run is reported as certain, any other failure as seldom.
"""
ENDS_S: Final = stretched(20.0)
"""Maximum time for ending the job of a parallel run, in seconds."""
BUDGET_S: Final[Mapping[str, float]] = {"full": 600.0, "pr": 60.0}
"""Default budget of each profile, in seconds."""


class Certifier:
    """The certification of one job within a budget."""

    def __init__(
        self,
        workload: Workload,
        budget_s: float,
        *,
        seed: int = 1,
        stages: int = 1,
        profile: str = "full",
        failures_max: int | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._workload, self._budget_s, self._stages = workload, budget_s, stages
        self._failures_max = failures_max
        self._observer = observer or Quiet()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._beside: list[tuple[Stage, threading.Thread]] = []
        self.certificate = Certificate(workload, seed, profile)

    @classmethod
    def of(
        cls,
        options: Mapping[str, Any],
        directory: Path,
        budget: str | None = None,
        observer: Observer | None = None,
    ) -> Certifier:
        """Create a certifier from the options of the command and of ``certify.toml``.

        ``budget`` is the default for options without a budget; it takes precedence over the profile's budget. ``directory``
        is the base of relative paths and the working directory of the job. Raises ``ValueError`` for invalid options.
        """
        profile = str(options.get("profile") or "full")
        if profile not in BUDGET_S:
            raise ValueError(f"{profile!r}: a profile is one of {', '.join(BUDGET_S)}")
        said = options.get("budget") or budget
        return cls(
            settings.workload(options, directory),
            settings.named("--budget", seconds, said) if said else BUDGET_S[profile],
            seed=int(options.get("seed") or 1),
            stages=int(options.get("stages") or 1),
            profile=profile,
            failures_max=options.get("failures"),
            observer=observer,
        )

    def run(self) -> Certificate:
        """Run plans until the budget is used up, or ``failures_max`` failures are found.

        If the job cannot be judged, `Certificate.not_judged` has the reason. After SIGINT and SIGTERM the certificate
        contains the results so far, with the verdict "interrupted".
        """
        certificate = self.certificate
        try:
            with Stage(self._workload) as stage:
                self._explore(stage)
        except NotJudged as error:
            certificate.not_judged = str(error)
        except (KeyboardInterrupt, SystemExit):  # SIGINT and SIGTERM
            certificate.interrupted = True
        finally:
            self._end_beside()
            certificate.took_s = time.monotonic() - certificate.began
        if self._errors:
            raise self._errors[0]
        return certificate

    def again(
        self, plan: Plan, times: int, on_hold: OnHold | None = None
    ) -> Iterator[tuple[Run, list[Finding], list[Lint]]]:
        """Run the plan ``times`` times, and yield each run with its findings and the causes of the findings.

        ``on_hold`` is called at each fault; the run continues when ``on_hold`` returns. Raises `NotJudged` if runs
        without faults give no expected outputs.
        """
        with Stage(self._workload) as stage:
            self._judge = refer(stage, self.certificate, self._observer)
            for _ in range(times):
                run, findings = self._tried(stage, plan, on_hold)
                stage.add_evidence(run)
                yield run, findings, self._judge.diagnosed(run, findings) if findings else []

    # -- plans --------------------------------------------------------------------------------------------------

    def _explore(self, stage: Stage) -> None:
        certificate = self.certificate
        self._judge = refer(stage, certificate, self._observer)
        exploration = certificate.exploration
        assert exploration is not None
        self._begun = certificate.plans_began = time.monotonic()
        is_full = certificate.profile == "full"
        self._plans = _numbered(exploration.plans(is_full=is_full))
        self._slow = _numbered(exploration.slow(is_full=is_full))
        self._observer.begins(certificate, self._budget_s)
        # One run at a time can use the topics of a foreign cluster, and the state of a service that is not restored.
        is_alone = (
            bool(self._workload.upstream)
            or any(each.is_shared for each in self._workload.stages)
            or stage.services.has_server_wide_names
        )
        for _ in range(0 if is_alone else self._stages - 1):
            self._start(self._work)
        if not is_alone and exploration.has_slow and self._has_time(certificate.wait_s):
            for _ in range(SIDE_BY_SIDE):
                self._start(self._work_slowly)
        self._work(stage)
        if is_alone:
            self._work_slowly(stage)
        if self._stop.is_set():  # enough failures are found: stop the parallel runs
            self._end_beside()
        for _, thread in self._beside:
            thread.join()

    def _start(self, work: Callable[[Stage], None]) -> None:
        stage = Stage(self.certificate.workload)

        def beside() -> None:
            try:
                with stage:
                    work(stage)
            except BaseException as error:
                if not self._stop.is_set():
                    self._errors.append(error)
                    self._stop.set()

        thread = threading.Thread(target=beside, daemon=True)
        self._beside.append((stage, thread))
        thread.start()

    def _end_beside(self) -> None:
        """Stop the parallel runs by closing their brokers. Each run then ends the processes of its job."""
        self._stop.set()
        for stage, _ in self._beside:
            with contextlib.suppress(OdradekError, OSError):
                stage.cluster.close()
        for _, thread in self._beside:
            thread.join(ENDS_S)

    def _has_time(self, takes_s: float = 0.0) -> bool:
        return time.monotonic() - self._begun + takes_s <= self._budget_s

    def _next(self, plans: Iterator[Plan], takes_s: float = 0.0) -> Plan | None:
        with self._lock:
            if self._stop.is_set() or not self._has_time(takes_s):
                return None
            return next(plans, None)

    def _work(self, stage: Stage) -> None:
        while (plan := self._next(self._plans)) is not None:
            self._try(stage, plan)

    def _work_slowly(self, stage: Stage) -> None:
        while (plan := self._next(self._slow, self.certificate.wait_s)) is not None:
            self._try(stage, plan)

    def _try(self, stage: Stage, plan: Plan) -> None:
        try:
            run, findings = self._tried(stage, plan, is_first=True)
        except NotJudged as error:
            self.certificate.not_judged = str(error)
            self._stop.set()
            return
        if run.is_reached and any(each.kind not in _ALLOWED for each in findings):
            self._failed(stage, plan, run if run.trace else stage.add_evidence(run), findings)

    def _controlled(self, stage: Stage, run: Run) -> list[Finding]:
        """Run the job once more without faults, and return the findings of ``run``, judged again.

        Fields that differ between runs without faults are ignored.
        """
        stage.add_evidence(run)  # evidence exists only for the stage's last run
        self._judge = controlled(stage, self.certificate, self._judge)
        with self._lock:
            self.certificate.runs += 1
        findings = self._judge(run.outputs)
        return self._judge.of_run(run) if self._judge.needs_trace(findings) else findings

    def _tried(
        self, stage: Stage, plan: Plan, on_hold: OnHold | None = None, *, is_first: bool = False
    ) -> tuple[Run, list[Finding]]:
        judge = self._judge
        patience_s = self._patience_s(plan)
        deadline_s = judge.deadline_s + (0.0 if patience_s is not None else self.certificate.wait_s)
        run = stage.run(
            plan,
            deadline_s,
            patience_s,
            judge.is_right,
            on_hold,
            judge.settled_s,
            may_repeat=_hits_outside(plan),
        )
        findings = judge(run.outputs)
        if judge.needs_trace(findings):
            findings = judge.of_run(stage.add_evidence(run))
        if is_first and run.is_reached and judge.doubts(findings):
            findings = self._controlled(stage, run)
        with self._lock:
            certificate = self.certificate
            certificate.runs += 1
            certificate.redelivered += any(each.kind is Kind.REDELIVERED for each in findings)
            if certificate.exploration is not None:
                reason = "; ".join(run.without_effect.values())
                certificate.exploration.learned(plan, _coverage(run, findings), reason)
            self._observer.progress(certificate, str(plan))
        return run, findings

    def _patience_s(self, plan: Plan) -> float | None:
        """How long the job may send no request that changes anything before it counts as stuck, in seconds.

        None if the plan makes a client wait for its own request timeout.
        """
        if any(each.fault.is_slow for each in plan.injections):
            return None
        patience_s = self._workload.patience_s
        if patience_s is None:
            patience_s = PATIENCE_S + self._judge.time_outs_s
        return patience_s + self.certificate.reference_s

    def _failed(self, stage: Stage, plan: Plan, run: Run, findings: list[Finding]) -> None:
        """Shrink, diagnose and report the failure, then repeat it.

        The report comes before the repetitions, because repeating a stuck run takes long.
        """
        shorter = self._shrunk(stage, plan)
        if shorter is not None:
            plan, run, findings = shorter
        failure = Failure(plan, findings, run, self._judge.diagnosed(run, findings), 1, 1)
        is_failure = any(each.kind.is_failure for each in findings)
        certificate = self.certificate
        with self._lock:
            found = certificate.failures if is_failure else certificate.unfinished
            if any(each.plan.id == plan.id for each in found):
                return
            is_news = self._is_news(failure)
            found.append(failure)
            self._observer.found(certificate, failure)
        if is_failure:
            self._repeat(stage, failure, TRIES if is_news else 2)
        if self._failures_max and len(certificate.failures) >= self._failures_max:
            self._stop.set()

    def _repeat(self, stage: Stage, failure: Failure, times: int) -> None:
        """Run the failure's plan again, and count the runs in which the failure comes back.

        Plans with a slow fault are repeated only while the budget lasts.
        """
        is_slow = any(each.fault.is_slow for each in failure.plan.injections)
        for _ in range((2 if is_slow else times) - 1):
            if is_slow and not self._has_time(self.certificate.wait_s):
                return
            again, found = self._tried(stage, failure.plan)
            failure.tried += again.is_reached
            failure.came_back += again.is_reached and any(each.kind.is_failure for each in found)

    def _is_news(self, failure: Failure) -> bool:
        """Whether no other failure has the same faults and the same kinds of findings.

        A failure that resembles an earlier one is repeated less often.
        """

        def cause(one: Failure) -> tuple[object, ...]:
            return one.kinds, [each.fault.name for each in one.plan.injections]

        return all(cause(each) != cause(failure) for each in self.certificate.failures)

    def _shrunk(self, stage: Stage, plan: Plan) -> tuple[Plan, Run, list[Finding]] | None:
        """Return (a smaller plan that still fails, its run, its findings).

        None if each fault of ``plan`` is necessary for the failure.
        """
        for left_out in range(len(plan)) if len(plan) > 1 else ():
            fewer = Plan(plan.injections[:left_out] + plan.injections[left_out + 1 :])
            run, findings = self._tried(stage, fewer)
            if run.is_reached and any(each.kind.is_failure for each in findings):
                stage.add_evidence(run)
                return self._shrunk(stage, fewer) or (fewer, run, findings)
        return None


_ALLOWED: Final = (Kind.REDELIVERED, Kind.REJECTED)
"""Kinds of findings that are no news: the user allows them."""


def tried_again(tries: Iterator[tuple[Run, list[Finding]]]) -> outcome.Again:
    """Outcome of the tries of one plan: a failure came back, none came back, or no try had an effect."""
    reached = False
    for run, findings in tries:
        if run.is_reached and any(each.kind.is_failure for each in findings):
            return outcome.Again.CAME_BACK
        reached |= run.is_effective
    return outcome.Again.DID_NOT if reached else outcome.Again.NOT_REACHED


def _coverage(run: Run, findings: list[Finding]) -> Coverage:
    """The result of the run, as the state of the cell (class of requests, fault) that its plan tries."""
    if not run.is_reached:
        return Coverage.NOT_REACHED
    if any(each.kind.is_failure for each in findings):
        return Coverage.FAILED
    if any(each.kind is Kind.UNFINISHED for each in findings):
        return Coverage.UNFINISHED
    return Coverage.CLEAN if run.is_effective else Coverage.NO_EFFECT


def _numbered(plans: Iterator[Plan]) -> Iterator[Plan]:
    """Yield ``plans``, without each plan whose id an earlier plan had."""
    tried: set[str] = set()
    for plan in plans:
        if plan.id not in tried:
            tried.add(plan.id)
            yield plan


def _hits_outside(plan: Plan) -> bool:
    """Whether a fault of the plan hits a Produce request outside a transaction.

    The client may send such a request again after the job is done.
    """
    return any(
        each.moment.on == "Produce" and "transactional_id" not in dict(each.moment.matchers)
        for each in plan.injections
    )
