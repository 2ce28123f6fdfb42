"""One run: the broker brought back to the state after seeding, the job started, faults staged, outputs collected."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from odradek.certify.cluster import Cluster, Ours
from odradek.certify.exchanges import Exchange, exchanges
from odradek.certify.foreign import Foreign
from odradek.certify.holding import HeldMoment, OnHold
from odradek.certify.idleness import Idleness
from odradek.certify.job import Job, wait_until
from odradek.certify.observation import Observation
from odradek.certify.patience import Patience
from odradek.certify.plan import Plan
from odradek.certify.seeding import SEEDER
from odradek.certify.staging import Staging
from odradek.certify.verdict import Ending, Outputs
from odradek.certify.workload import Workload
from odradek.deadlines import stretched
from odradek.errors import NotFound, OdradekError
from odradek.remote import ENTRIES_MAX
from odradek.topics import Record

LOOK_PAUSE_S: Final = 0.02
LATE_S: Final = 0.2
"""What the broker and the job get for a request that arrives after the end."""
SETTLES_S: Final = stretched(0.5)
"""What a job that is done gets to write what is missing."""


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
        self._directory = Path(tempfile.mkdtemp(prefix="odradek-certify-"))
        self.cluster: Cluster = Foreign(workload) if workload.upstream else Ours(workload)
        self._observation = Observation(self.cluster.handle)
        self._runs = 0
        self._idleness = Idleness()

    def __enter__(self) -> Stage:
        try:
            self.cluster.start()
            self._last = self._last_offsets()
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
        is_right: Callable[[Outputs], bool] | None = lambda outputs: True,
        on_hold: OnHold | None = None,
    ) -> Run:
        """``patience_s``: how long the job may ask for no change; without it only the deadline counts.

        A job whose outputs are not right yet when it is done gets a moment more: it may write behind its commit; the whole
        moment where ``is_right`` is None. With ``on_hold`` the run stands still at each fault of the plan, for as long as
        that call takes.
        """
        self.cluster.restore()
        self._runs += 1
        data = self._directory / str(self._runs)
        data.mkdir()
        self.cluster.handle.trace.start()
        values = {
            "bootstrap": self.cluster.bootstrap_servers,
            "data": str(data),
            "run": plan.id if plan else "reference",
        }
        job = Job(self.workload.command, values, data / "job.log", self.workload.restarts)
        staging = Staging(
            self.cluster,
            job,
            plan,
            lambda: self._state(job) == (True, False),
            self.workload.seeds,
            holds=on_hold is not None,
        )
        self._idleness = Idleness()
        began = time.monotonic()
        patience = Patience(deadline_s, patience_s)
        try:
            staging.begin()
            for number in range(1, self.workload.instances + 1):
                job.start(number)
            why_not = self._wait(job, staging, patience, on_hold)
            took_s = time.monotonic() - began - patience.held_s
            if not why_not:
                self._settle(is_right)
            if staging.release():
                time.sleep(LATE_S)
            hits = staging.hits()
        finally:
            staging.end()
            job.end()
        outputs = self._outputs(why_not)
        exits = [(each.instance, each.code) for each in job.exits]
        log = _tail(data / "job.log")
        shutil.rmtree(data, ignore_errors=True)
        moved = staging.time.was_moved
        return Run(plan, outputs, hits, took_s, exits, staging.notes, log, moved, staging.without_effect)

    def _wait(self, job: Job, staging: Staging, patience: Patience, on_hold: OnHold | None) -> str:
        """Until the run is done; else why it is not."""
        until = self.workload.until
        while True:
            if on_hold is not None and (held := staging.next_held()) is not None:
                patience.stood_still(self._stand_still(held, on_hold))
            job.supervise()
            if self._may_be_over(job) and staging.is_over:
                # Looked at again: an act that is over by now has started what it starts.
                has_ended = job.has_ended
                is_done, is_open = self._state(job)
                if is_done and is_open and staging.time.ends_open_transactions(are_left=has_ended):
                    patience.begins_again()
                elif is_done and (not is_open or until.what in ("exit", "idle")):
                    return ""
                elif has_ended:
                    return f"all instances have ended before {until}"
            staging.time.keep()
            if patience.asks_now() and (said := patience.over(self._observation.newest_write())):
                if patience.has_no_time or not staging.time.ends_rest():
                    return f"{until} has not come: {said}"
                patience.begins_again()
            time.sleep(LOOK_PAUSE_S)

    def _may_be_over(self, job: Job) -> bool:
        return job.has_ended or self._state(job)[0]

    def _settle(self, is_right: Callable[[Outputs], bool] | None) -> None:
        if is_right is None:
            time.sleep(SETTLES_S)
        else:
            wait_until(partial(self._are_outputs, is_right), SETTLES_S)

    def _are_outputs(self, is_right: Callable[[Outputs], bool]) -> bool:
        try:
            return is_right(self._outputs(""))
        except OdradekError:
            return False  # a node was killed since, and is on its way

    def _stand_still(self, held: HeldMoment, on_hold: OnHold) -> float:
        """How long it took, in seconds."""
        began = time.monotonic()
        on_hold(held)
        self._idleness.begin_again()
        held.go_on()
        return time.monotonic() - began

    # -- when it is done -----------------------------------------------------------------------------------------

    def _state(self, job: Job) -> tuple[bool, bool]:
        """Whether the job has done its work, and if so, whether an open transaction holds up readers of the outputs."""
        try:
            is_done = self._has_done_its_work(job)
            return is_done, is_done and bool(self._open())
        except OdradekError:
            return False, False  # a node is on its way

    def _has_done_its_work(self, job: Job) -> bool:
        until = self.workload.until
        if until.what == "exit":
            return not job.alive and bool(job.completed)
        if until.what == "records":
            return len(self._records()) >= until.number
        if until.what == "idle":
            return self._idle_s() >= until.number
        return self._lag_is_zero()

    def _lag_is_zero(self) -> bool:
        committed = [
            {(each["topic"], each["partition"]): each["committed"] for each in group["offsets"]}
            for group in self.cluster.groups()
        ]
        reading = [each for each in committed if any(key in each for key in self._last)]
        return bool(reading) and all(
            (each.get(key) or 0) > last for each in reading for key, last in self._last.items()
        )

    def _records(self) -> list[Record]:
        return self.cluster.records(self.workload.outputs)

    def _open(self) -> list[str]:
        """Transactions that hold up readers of the outputs."""
        return self.cluster.open_transactions(self.workload.outputs)

    def _idle_s(self) -> float:
        """How long ago the job has asked for a change last, or was let go; 0 before the first one."""
        newest = self._observation.newest_write()
        return self._idleness.lasts_s(newest) if newest else 0.0

    # -- what came of it -----------------------------------------------------------------------------------------

    def _outputs(self, why_not: str) -> Outputs:
        self.cluster.revive()
        open_now = self._open()
        written = self.cluster.records(self.workload.outputs, "read_uncommitted")
        committed = (
            [each for each in written if each.outcome in (None, "committed")]
            if not open_now
            else self._records()
        )
        return Outputs(committed, written, Ending.IDLE if why_not else Ending.FINISHED, why_not, open_now)

    def add_evidence(self, run: Run) -> Run:
        """The trace and the timelines of the newest run. They cost more than the run itself, and most runs need none."""
        handle = self.cluster.handle
        run.trace = [
            each
            for each in exchanges(handle.trace.entries(limit=ENTRIES_MAX))
            if each.transactional_id != SEEDER  # who writes to the input in the midst of a run is not the job
        ]
        ids = dict.fromkeys(each.transactional_id for each in run.trace if each.transactional_id)
        for each in ids:
            with contextlib.suppress(NotFound):  # its InitProducerId was refused
                run.timelines[each] = handle.timeline(each).text
        return run


def _tail(path: Path, bytes_max: int = 4000) -> str:
    return path.read_bytes()[-bytes_max:].decode("utf-8", "replace") if path.exists() else ""
