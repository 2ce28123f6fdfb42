"""One run: the broker brought back to the state after seeding, the job started, faults staged, outputs collected."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from odradek.certify.exchanges import Exchange, exchanges
from odradek.certify.jobs.job import Grace, Job
from odradek.certify.judging.check import asked
from odradek.certify.judging.findings import Ending, Outputs
from odradek.certify.plans.plan import Plan
from odradek.certify.runs.arrivals import Arrivals
from odradek.certify.runs.cluster import Cluster, Ours
from odradek.certify.runs.commits import Commits
from odradek.certify.runs.foreign import Foreign
from odradek.certify.runs.holding import OnHold
from odradek.certify.runs.observation import Observation
from odradek.certify.runs.patience import Patience
from odradek.certify.runs.progress import IsRight, Progress
from odradek.certify.runs.seeding import SEEDER
from odradek.certify.runs.settling import Settling
from odradek.certify.runs.staging import Staging
from odradek.certify.runs.telling import Tell, Telling
from odradek.certify.runs.until import Until
from odradek.certify.runs.waiting import End, Watch
from odradek.certify.workload import Workload
from odradek.errors import NotFound
from odradek.remote import ENTRIES_MAX
from odradek.topics import Record

LATE_S: Final = 0.2
"""What the broker and the job get for a request that arrives after the end."""
LOG_LINES: Final = 40
"""Of the job's output in a run."""


@dataclass(slots=True)
class Run:
    """What came of one plan."""

    plan: Plan
    outputs: Outputs
    hits: list[int]
    """Of each fault of the plan."""
    took_s: float
    exits: list[tuple[int, int]]
    """(instance, exit code) of those that ended by themselves."""
    notes: list[str]
    """What was done to the job and the broker, in order."""
    log: str
    """The end of what the job printed."""
    clock_was_moved: bool = False
    """So the times of its trace are none of the job's."""
    without_effect: dict[int, str] = field(default_factory=dict)
    """Of faults of the plan that struck and changed nothing: why, by their place in the plan."""
    until: Until = field(default_factory=Until)
    """What it was waited for; of the first run without faults what was chosen, where that was left to it."""
    settled_s: float = 0.0
    """How long behind the end the outputs were written to."""
    last_request: int = 0
    """Its number in the trace, where instances were started once more when the run was over; 0: the last one there is."""
    trace: list[Exchange] = field(default_factory=list)
    """With its evidence only (`Stage.add_evidence`), as are the timelines of its transactional ids."""
    timelines: dict[str, str] = field(default_factory=dict)

    @property
    def is_reached(self) -> bool:
        """All faults of the plan have struck."""
        return all(self.hits)

    @property
    def is_effective(self) -> bool:
        """They struck, and each of them mattered: a run without a failure says something."""
        return self.is_reached and not self.without_effect


class Stage:
    """A broker that is kept warm, with the job's input in it.

    with Stage(workload) as stage:
        run = stage.run(plan, deadline_s=30)
    """

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.until = workload.until
        """Of the next run: what the first run has chosen, where that is left to it."""
        self._directory = Path(tempfile.mkdtemp(prefix="odradek-certify-"))
        self.cluster: Cluster = Foreign(workload) if workload.upstream else Ours(workload)
        self.grace = Grace(workload.grace_s)
        self._runs = 0

    def __enter__(self) -> Stage:
        try:
            self.cluster.start()
            self.last = self._last_offsets()
            self.commits = Commits(self.cluster.handle.trace)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.cluster.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _last_offsets(self) -> dict[tuple[str, int], int]:
        """The last offset that a read_committed reader gets, by input partition."""
        found = self.cluster.records(sorted(self.workload.inputs))
        return {(each.topic, each.partition): each.offset for each in found}

    def run(
        self,
        plan: Plan,
        deadline_s: float,
        patience_s: float | None = None,
        is_right: Callable[[Outputs], bool | None] | None = lambda outputs: True,
        on_hold: OnHold | None = None,
        settle_s: float = 0.0,
        tell: Tell | None = None,
        *,
        may_repeat: bool = False,
    ) -> Run:
        """``patience_s``: how long the job may ask for no change; without it only the deadline counts.

        A job that is done gets a moment more: it may write behind its commit. ``settle_s`` is how long it did so without
        faults (`Run.settled_s`). Where its outputs are right by ``is_right`` they have to be still for so long, else for
        longer; where ``is_right`` is None the whole moment passes. With ``on_hold`` the run stands still at each fault,
        while that call lasts. ``tell`` gets lines about the run while it goes on. ``may_repeat``: the request that is hit is
        sent again outside of any transaction, so that right outputs may not stay so.
        """
        self.cluster.restore()
        self._runs += 1
        data = self._directory / str(self._runs)
        data.mkdir()
        self.cluster.handle.trace.start()
        self.commits.follow()
        take = _Take(self, plan, data, Patience(deadline_s, patience_s), is_right, on_hold is not None)
        take.may_repeat = may_repeat
        try:
            run = take.performed(on_hold, settle_s, tell)
        finally:
            take.end()
            shutil.rmtree(data, ignore_errors=True)
        self.until = run.until
        return run

    def add_evidence(self, run: Run) -> Run:
        """The trace and the timelines of the newest run. They cost more than the run itself, and most runs need none."""
        handle = self.cluster.handle
        run.trace = [
            each
            for each in exchanges(self._entries(run))
            if each.transactional_id != SEEDER  # who writes to the input in the midst of a run is not the job
        ]
        ids = dict.fromkeys(each.transactional_id for each in run.trace if each.transactional_id)
        for each in ids:
            with contextlib.suppress(NotFound):  # its InitProducerId was refused
                run.timelines[each] = handle.timeline(each).text
        return run

    def _entries(self, run: Run) -> list[dict[str, Any]]:
        found = self.cluster.handle.trace.entries(limit=ENTRIES_MAX)
        return [each for each in found if not run.last_request or each["number"] <= run.last_request]


class _Take:
    """One run on a stage: its job, its faults, and what came of it."""

    def __init__(
        self,
        stage: Stage,
        plan: Plan,
        data: Path,
        patience: Patience,
        is_right: Callable[[Outputs], bool | None] | None,
        holds: bool,
    ) -> None:
        self._workload, self._cluster, self._plan, self._data = stage.workload, stage.cluster, plan, data
        self._patience, self._until, self._last = patience, stage.until, stage.last
        self._values = {
            "bootstrap": self._cluster.bootstrap_servers,
            "data": str(data),
            "run": plan.id if plan else "reference",
        }
        workload = self._workload
        self._job = Job(workload.command, self._values, data, workload.restart(self._until))
        self._grace = stage.grace
        self._progress = Progress(
            self._cluster,
            self._job,
            workload.outputs,
            self._last,
            lambda: self._checked(self._read(_NOT_OVER)),
            stage.commits,
        )
        self._staging = Staging(self._cluster, self._job, plan, self._is_done, workload.seeds, holds=holds)
        self.may_repeat = False
        self._is_not_yet = False
        """The check has asked to be asked again."""
        self._judged_by = is_right
        if is_right is None and not plan and workload.check is not None:
            self._judged_by = lambda outputs: not outputs.said
        self._is_right: IsRight | None = self._says if self._judged_by is not None else None
        self._observation = Observation(self._cluster.handle)
        self._arrivals = Arrivals(self._job, self._observation, workload.instances)
        self._last_request = 0

    def _is_done(self) -> bool:
        return self._progress.state(self._until, self._is_right) == (True, False)

    def _says(self, outputs: Outputs) -> bool | None:
        assert self._judged_by is not None
        is_right = self._judged_by(outputs)
        return None if self._is_not_yet else is_right

    def performed(self, on_hold: OnHold | None, settle_s: float, tell: Tell | None) -> Run:
        began = time.monotonic()
        telling = Telling(tell, self._data, self._job.exits) if tell is not None else None
        self._staging.begin()
        for number in range(1, self._workload.instances + 1):
            self._job.start(number)
        watch = Watch(
            self._job, self._staging, self._progress, self._patience, self._until, self._is_right, telling
        )
        end = watch.wait(on_hold)
        if not self._until.is_chosen:
            self._until = watch.until
            self._staging.notes.append(f"done when {self._until.words} (--until {self._until})")
        settled_s = self._settle(end, settle_s)
        if self._staging.release():
            time.sleep(LATE_S)
        hits = self._staging.hits()
        self._staging.end()
        outputs = self._final(end, settle_s)
        return Run(
            plan=self._plan,
            outputs=outputs,
            hits=hits,
            took_s=end.at_s - began - self._patience.held_s,
            exits=[(each.instance, each.code) for each in self._job.exits],
            notes=self._staging.notes,
            log="\n".join(self._job.last_lines(LOG_LINES)),
            clock_was_moved=self._staging.time.was_moved,
            without_effect=self._staging.without_effect,
            until=self._until,
            settled_s=settled_s,
            last_request=self._last_request,
        )

    def _settle(self, end: End, settle_s: float) -> float:
        if end.ending is not Ending.FINISHED:
            return 0.0
        settling = Settling(
            self._job,
            self._staging,
            self._progress,
            self._arrivals,
            self._patience,
            self._is_right,
            may_repeat=self.may_repeat,
        )
        return settling.wait(end.at_s, settle_s if self._plan else None)

    def end(self) -> None:
        self._staging.end()
        self._job.end()

    # -- what came of it -----------------------------------------------------------------------------------------

    def _final(self, end: End, settle_s: float) -> Outputs:
        self._job.freeze()  # what it does when it is asked to end is no part of the run
        outputs = self._read(end)
        if _may_be_unfinished(end, self._until):
            first = self._checked(replace(outputs, ending=Ending.FINISHED, why_not=""))
            return first if self._is_all_right(first) else self._once_more(first, settle_s)
        self._job.end(self._grace)  # what it holds locked is free for the check
        final = self._checked(outputs)
        if end.ending is not Ending.IDLE or self._until.what != "lag" or self._judged_by is None:
            return final
        finished = replace(final, ending=Ending.FINISHED, why_not="")
        if not self._is_all_right(finished):
            return final
        # Asked before, while the job was alive, a check may have met what the job holds locked.
        self._staging.notes.append("lag=0 has not come, but the job is at rest, and its outputs are right")
        return finished

    def _read(self, end: End) -> Outputs:
        self._cluster.revive()
        topics = self._workload.outputs
        open_now = self._cluster.open_transactions(topics)
        written = self._cluster.records(topics, "read_uncommitted")
        committed = (
            [each for each in written if each.outcome in (None, "committed")]
            if not open_now
            else self._cluster.records(topics)
        )
        return Outputs(committed, written, end.ending, end.why_not, open_now)

    def _checked(self, outputs: Outputs) -> Outputs:
        """With what the user's check says of them, while the broker and the folder of the run are there."""
        if self._workload.check is None:
            return outputs
        started = {*range(1, self._workload.instances + 1), *(each.number for each in self._job.alive)}
        values = {**self._values, "instance": " ".join(map(str, sorted(started)))}
        again: list[None] = []
        folder = self._workload.command.directory
        said = asked(self._workload.check, outputs.committed, values, lambda: again.append(None), folder)
        self._is_not_yet = bool(again)
        return replace(outputs, said=said)

    def _is_all_right(self, outputs: Outputs) -> bool:
        return self._judged_by is None or self._judged_by(outputs) is True

    def _once_more(self, first: Outputs, settle_s: float) -> Outputs:
        """What a supervisor would do: all instances are started again. What then comes was unfinished, and not lost."""
        self._last_request = self._observation.newest()
        for number in range(1, self._workload.instances + 1):
            self._job.start(number)
        self._staging.notes.append("all instances have ended with code 0; they are started once more")
        self._patience.begins_again()

        def has_come(outputs: Outputs) -> bool:
            return self._is_all_right(outputs) or self._is_all_right(_together(first, outputs))

        parts = self._job, self._staging, self._progress, self._patience
        self._settle(Watch(*parts, Until("check"), has_come).wait(None), settle_s)
        if not has_come(self._checked(self._read(_NOT_OVER))):
            return first
        why = f"all instances ended with code 0 before the input was done (--until {self._until})"
        return replace(first, ending=Ending.UNFINISHED, why_not=why)


_NOT_OVER: Final = End(Ending.FINISHED, 0.0)
"""Outputs that are looked at meanwhile are judged as if the run were over."""


def _may_be_unfinished(end: End, until: Until) -> bool:
    """All instances have ended with code 0, and nothing says that the input is done."""
    if end.ending is Ending.FINISHED:
        return until.what == "exit"
    return end.ending is Ending.UNFINISHED and until.what != "lag"


def _together(first: Outputs, second: Outputs) -> Outputs:
    """What is new in the second, behind the first: what a job that starts from the beginning writes again does not count."""
    known = {_row(each) for each in first.committed}
    new = [each for each in second.committed if _row(each) not in known]
    return replace(second, committed=[*first.committed, *new])


def _row(record: Record) -> tuple[object, ...]:
    return record.topic, record.key, record.value
