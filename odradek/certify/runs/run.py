"""One run: restore the broker to the state after seeding, start the job, inject faults, collect the outputs."""

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
from odradek.certify.judging.check import run_check
from odradek.certify.judging.findings import Ending, Outputs
from odradek.certify.lints import timeline
from odradek.certify.plans.plan import Plan
from odradek.certify.runs.acknowledged import Acknowledged
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
from odradek.certify.services.feeding import Feeding
from odradek.certify.services.service import Services
from odradek.certify.workload import Workload
from odradek.errors import NotFound
from odradek.remote import ENTRIES_MAX
from odradek.topics import Record

LATE_S: Final = 0.2
"""How long the broker and the job may take to handle requests that are released at the end of a run, in seconds."""
LOG_LINES: Final = 40
"""Maximum number of output lines of the job that are kept of a run."""


@dataclass(slots=True)
class Run:
    """The result of running one plan."""

    plan: Plan
    outputs: Outputs
    hits: list[int]
    """Number of hits of each fault of the plan."""
    took_s: float
    exits: list[tuple[int, int]]
    """(instance, exit code) of the instances that ended by themselves."""
    notes: list[str]
    """The actions on the job and the broker, in order."""
    log: str
    """The last lines that the job printed."""
    noted: list[tuple[int, str]] = field(default_factory=list)
    """The actions while the job was running, with their times in us since the epoch."""
    clock_was_moved: bool = False
    """Whether a clock was advanced, so that times in the trace do not show how long the job took."""
    without_effect: dict[int, str] = field(default_factory=dict)
    """For faults of the plan that were hit without effect: index in the plan -> reason."""
    until: Until = field(default_factory=Until)
    """The condition that the run waited for; for the first run without faults and ``auto``, the selected condition."""
    settled_s: float = 0.0
    """How long the job still wrote to the outputs after the end of its work, in seconds."""
    last_request: int = 0
    """Trace number of the last request before all instances were started again at the end; 0 if they were not."""
    trace: list[Exchange] = field(default_factory=list)
    """The exchanges of the run. Filled only by `Stage.add_evidence`, as are the timelines of its transactional ids."""
    timelines: dict[str, str] = field(default_factory=dict)

    @property
    def is_reached(self) -> bool:
        """Whether all faults of the plan were hit."""
        return all(self.hits)

    @property
    def is_effective(self) -> bool:
        """Whether all faults were hit and each had an effect, so that a run without a failure is significant."""
        return self.is_reached and not self.without_effect


class Stage:
    """A broker that keeps running from run to run, and contains the job's input.

    with Stage(workload) as stage:
        run = stage.run(plan, deadline_s=30)
    """

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.until = workload.until
        """The condition for the end of the next runs: the user's, or, for ``auto``, that selected by the first run."""
        self._directory = Path(tempfile.mkdtemp(prefix="odradek-certify-"))
        self.cluster: Cluster = Foreign(workload) if workload.upstream else Ours(workload)
        self.services = Services(workload.stages, workload.service_outputs, workload.feeds)
        self.grace = Grace(workload.grace_s)
        self._runs = 0

    def __enter__(self) -> Stage:
        try:
            self.cluster.start()
            self.services.start()
            found = self.cluster.records(sorted(self.workload.inputs))
            self.offsets = [((each.topic, each.partition), each.offset) for each in found]
            """Partition and offset of each input record that a read_committed consumer reads."""
            self.last = dict(self.offsets)
            """The last offset of each input partition."""
            self.commits = Commits(self.cluster.handle.trace)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        with contextlib.ExitStack() as stack:  # an error of one does not keep the others open
            stack.callback(shutil.rmtree, self._directory, ignore_errors=True)
            stack.callback(self.services.close)
            stack.callback(self.cluster.close)

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
        """Run the job under this plan.

        ``patience_s`` is how long the job may go without a request that changes something; if it is None, only the deadline
        counts.

        A job may still write after the end of its work. ``settle_s`` is how long it did so without faults
        (`Run.settled_s`). The outputs must be unchanged for that long if ``is_right`` accepts them, otherwise longer; if
        ``is_right`` is None, for `settling.REFERENCE_S`. ``on_hold`` is called at each fault, and holds the run until it
        returns. ``tell`` is called with lines about the progress. ``may_repeat`` means that a client may send the hit
        request again outside any transaction, so that correct outputs may become wrong later.
        """
        self.cluster.restore()
        self._runs += 1
        data = self._directory / str(self._runs)
        data.mkdir()
        self.services.restore(data, {"bootstrap": self.cluster.bootstrap_servers})
        if self.cluster.moves_time:
            self.services.follow(self.cluster.handle.clock)
        self.cluster.handle.trace.start()
        self.commits.follow()
        take = _RunInProgress(
            self, plan, data, Patience(deadline_s, patience_s), is_right, on_hold is not None
        )
        take.may_repeat = may_repeat
        try:
            run = take.performed(on_hold, settle_s, tell)
        finally:
            take.end()
            shutil.rmtree(data, ignore_errors=True)
        self.until = run.until
        return run

    def add_evidence(self, run: Run) -> Run:
        """Add the broker's trace and timelines to ``run``, which must be this stage's last run. Returns ``run``.

        The queries take longer than the run itself, and most runs need no evidence.
        """
        handle = self.cluster.handle
        found = [
            each
            for each in exchanges(self._entries(run))
            if each.transactional_id
            != SEEDER  # the seeder writes to the input during a run, and is not part of the job
        ]
        calls = [each.exchange() for each in self.services.calls()]
        run.trace = sorted([*found, *calls], key=lambda each: each.arrived_us) if calls else found
        ids = dict.fromkeys(each.transactional_id for each in run.trace if each.transactional_id)
        if calls:
            run.timelines[timeline.title(run.trace)] = timeline.timeline(run.trace, run.plan, run.noted)
        for each in ids:
            with contextlib.suppress(NotFound):  # its InitProducerId was rejected
                run.timelines[each] = handle.timeline(each).text
        return run

    def _entries(self, run: Run) -> list[dict[str, Any]]:
        # Rows and requests are found in records by their values.
        found = self.cluster.handle.trace.entries(limit=ENTRIES_MAX, values=bool(self.services.names))
        return [each for each in found if not run.last_request or each["number"] <= run.last_request]


class _RunInProgress:
    """A run in progress: its job, its faults, and its result."""

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
        self._services = stage.services
        self._feeding = Feeding(stage.workload.feeds, data)
        self._patience, self._until, self._last = patience, stage.until, stage.last
        self._values = {
            "bootstrap": self._cluster.bootstrap_servers,
            "data": str(data),
            "run": plan.id if plan else "reference",
            **self._services.values(),
            **self._feeding.values(),
        }
        workload = self._workload
        self._job = Job(workload.command, self._values, data, workload.restart(self._until))
        self._grace = stage.grace
        self._progress = Progress(
            self._cluster,
            self._services,
            self._job,
            workload.outputs,
            self._last,
            lambda: self._checked(self._read(_NOT_OVER)),
            stage.commits,
            Acknowledged(self._cluster.handle.trace, stage.offsets),
        )
        self._staging = Staging(
            self._cluster, self._services, self._job, plan, self._is_done, workload.seeds, holds=holds
        )
        self.may_repeat = False
        self._is_not_yet = False
        """Whether the user's check has ended with exit code 75 ("not yet")."""
        self._judged_by = is_right
        if is_right is None and not plan and workload.check is not None:
            self._judged_by = lambda outputs: not outputs.said
        self._is_right: IsRight | None = self._says if self._judged_by is not None else None
        self._observation = Observation(self._cluster.handle)
        self._arrivals = Arrivals(self._job, self._observation, workload.instances, self._services)
        self._last_request = 0

    def _is_done(self) -> bool:
        return self._feeding.is_over and self._progress.state(self._until, self._is_right) == (True, False)

    def _says(self, outputs: Outputs) -> bool | None:
        assert self._judged_by is not None
        is_right = self._judged_by(outputs)
        return None if self._is_not_yet else is_right

    def performed(self, on_hold: OnHold | None, settle_s: float, tell: Tell | None) -> Run:
        began = time.monotonic()
        telling = Telling(tell, self._data, self._job.exits) if tell is not None else None
        self._staging.begin()
        self._feeding.begin()
        for number in range(1, self._workload.instances + 1):
            self._job.start(number)
        watch = Watch(
            self._job, self._staging, self._progress, self._patience, self._until, self._is_right, telling
        )
        watch.is_fed = lambda: self._feeding.is_over
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
            notes=[*self._staging.notes, *self._feeding.rejected],
            noted=self._staging.noted,
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
        self._feeding.end()
        self._job.end()

    # -- result --------------------------------------------------------------------------------------------------

    def _final(self, end: End, settle_s: float) -> Outputs:
        self._job.freeze()  # writes after SIGTERM are not part of the run
        outputs = self._read(end)
        if _may_be_unfinished(end, self._until):
            first = self._checked(replace(outputs, ending=Ending.FINISHED, why_not=""))
            return first if self._is_all_right(first) else self._once_more(first, settle_s)
        self._job.end(self._grace)  # releases locks that the check may need
        final = self._checked(outputs)
        if end.ending is not Ending.IDLE or self._until.what != "lag" or self._judged_by is None:
            return final
        finished = replace(final, ending=Ending.FINISHED, why_not="")
        if not self._is_all_right(finished):
            return final
        # An earlier call of the check, while the job was alive, may have failed because of the job's locks.
        self._staging.notes.append(
            "lag=0 was not reached, but the job is at rest, and its outputs are correct"
        )
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
        elsewhere = self._services.records()
        return Outputs(
            [*committed, *elsewhere],
            [*written, *elsewhere],
            end.ending,
            end.why_not,
            open_now,
            self._services.open_transactions(),
            file_names=self._services.file_names,
        )

    def _checked(self, outputs: Outputs) -> Outputs:
        """Run the user's check on the outputs, and return the outputs with the check's findings (`Outputs.said`).

        The check runs while the broker and the run's directory still exist.
        """
        if self._workload.check is None:
            return outputs
        started = {*range(1, self._workload.instances + 1), *(each.number for each in self._job.alive)}
        values = {**self._values, "instance": " ".join(map(str, sorted(started)))}
        again: list[None] = []
        folder = self._workload.command.directory
        said = run_check(self._workload.check, outputs.committed, values, lambda: again.append(None), folder)
        self._is_not_yet = bool(again)
        return replace(outputs, said=said)

    def _is_all_right(self, outputs: Outputs) -> bool:
        return self._judged_by is None or self._judged_by(outputs) is True

    def _once_more(self, first: Outputs, settle_s: float) -> Outputs:
        """Start all instances again, as a supervisor might, to find out whether they write the missing records.

        Returns ``first``. If the restarted instances write the missing records, its ending is `Ending.UNFINISHED`:
        the job ended too early, and no record is lost.
        """
        self._last_request = self._observation.newest()
        for number in range(1, self._workload.instances + 1):
            self._job.start(number)
        self._staging.notes.append("all instances have ended with code 0 and are started again")
        self._patience.begins_again()

        def has_come(outputs: Outputs) -> bool:
            return self._is_all_right(outputs) or self._is_all_right(_together(first, outputs))

        parts = self._job, self._staging, self._progress, self._patience
        self._settle(Watch(*parts, Until("check"), has_come).wait(None), settle_s)
        if not has_come(self._checked(self._read(_NOT_OVER))):
            return first
        why = f"all instances ended with code 0 before the input was processed (--until {self._until})"
        return replace(first, ending=Ending.UNFINISHED, why_not=why)


_NOT_OVER: Final = End(Ending.FINISHED, 0.0)
"""The `End` of outputs that are read and judged before the run is over."""


def _may_be_unfinished(end: End, until: Until) -> bool:
    """Whether missing records may still be written: all instances ended with code 0, perhaps before all input was read."""
    if end.ending is Ending.FINISHED:
        return until.what == "exit"
    return end.ending is Ending.UNFINISHED and until.what != "lag"


def _together(first: Outputs, second: Outputs) -> Outputs:
    """The first outputs, plus the records of the second that the first do not contain.

    A record that a restarted job wrote again is left out.
    """
    known = {_row(each) for each in first.committed}
    new = [each for each in second.committed if _row(each) not in known]
    return replace(second, committed=[*first.committed, *new])


def _row(record: Record) -> tuple[object, ...]:
    return record.topic, record.key, record.value
