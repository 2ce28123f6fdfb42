"""One run: the broker brought back to the state after seeding, the job started, faults staged, outputs collected."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from odradek.broker import Broker
from odradek.certify.exchanges import Exchange, exchanges
from odradek.certify.faults import WRITES
from odradek.certify.job import Job
from odradek.certify.plan import Plan
from odradek.certify.seeding import SEEDER, with_aborted, write
from odradek.certify.staging import Staging
from odradek.certify.verdict import Outputs
from odradek.certify.workload import Workload
from odradek.errors import OdradekError
from odradek.topics import Record

LOOK_PAUSE_S: Final = 0.02
ASK_PAUSE_S: Final = 0.25
NEWEST: Final = 100
"""Requests among which the newest change is looked for."""
LATE_S: Final = 0.2
"""What the broker and the job get for a request that arrives after the end."""
ENTRIES_MAX: Final = 10_000


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
    trace: list[Exchange] = field(default_factory=list)
    """With its evidence only (`Stage.add_evidence`), as are the timelines of its transactional ids."""
    timelines: dict[str, str] = field(default_factory=dict)

    @property
    def is_reached(self) -> bool:
        """All faults of the plan have struck."""
        return all(self.hits)


class Patience:
    """Whether a run has to be waited for any longer."""

    def __init__(self, began: float, deadline_s: float, patience_s: float | None) -> None:
        self._deadline, self._deadline_s, self._patience_s = began + deadline_s, deadline_s, patience_s
        self._newest_ms, self._since = -1, began
        self._asked = began

    def asks_now(self) -> bool:
        """Not at each look: the answer costs a request."""
        now = time.monotonic()
        if now - self._asked < ASK_PAUSE_S:
            return False
        self._asked = now
        return True

    def over(self, newest_ms: int) -> str:
        """Why it is over, by when the job has asked for a change last; nothing while it is not."""
        now = time.monotonic()
        if newest_ms != self._newest_ms:
            self._newest_ms, self._since = newest_ms, now
        if now > self._deadline:
            return f"{self._deadline_s:.0f} s have passed"
        if self._patience_s is not None and now - self._since > self._patience_s:
            return f"the job has asked for no change in {self._patience_s:.0f} s"
        return ""


class Stage:
    """A broker that is kept warm, with the job's input in it.

    with Stage(workload) as stage:
        run = stage.run(plan, deadline_s=30)
    """

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self._directory = Path(tempfile.mkdtemp(prefix="odradek-certify-"))
        self.broker = Broker(
            nodes=workload.nodes,
            topics=workload.topics,
            settings=dict(workload.settings),
        )
        self._runs = 0

    def __enter__(self) -> Stage:
        self.broker.start()
        try:
            write(self.broker.bootstrap_servers, with_aborted(self.workload.seeds))
            self._last = self._last_offsets()
            self._snapshot = self.broker.snapshot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.broker.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _last_offsets(self) -> dict[tuple[str, int], int]:
        """The last offset that a read_committed reader gets, by input partition."""
        found: dict[tuple[str, int], int] = {}
        for topic in sorted(self.workload.inputs):
            for record in self.broker.records(topic):
                found[topic, record.partition] = record.offset
        return found

    def run(self, plan: Plan, deadline_s: float, patience_s: float | None = None) -> Run:
        """``patience_s``: how long the job may ask for no change; without it only the deadline counts."""
        self._snapshot.restore()
        self._runs += 1
        data = self._directory / str(self._runs)
        data.mkdir()
        self.broker.trace.start()
        values = {
            "bootstrap": self.broker.bootstrap_servers,
            "data": str(data),
            "run": plan.id if plan else "reference",
        }
        job = Job(self.workload.command, values, data / "job.log", self.workload.restarts)
        staging = Staging(self.broker, job, plan, lambda: self._is_done(job), self.workload.seeds)
        began = time.monotonic()
        try:
            staging.begin()
            for number in range(1, self.workload.instances + 1):
                job.start(number)
            why_not = self._wait(job, staging, Patience(began, deadline_s, patience_s))
            took_s = time.monotonic() - began
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
        return Run(plan, outputs, hits, took_s, exits, staging.notes, log)

    def _wait(self, job: Job, staging: Staging, patience: Patience) -> str:
        """Until the run is done; else why it is not."""
        while True:
            job.supervise()
            has_ended = job.has_ended
            is_done = self._is_done(job)
            if (is_done or has_ended) and staging.is_over:
                return "" if is_done else f"all instances have ended before {self.workload.until}"
            staging.keep_clock()
            if patience.asks_now() and (said := patience.over(self._newest_write_ms())):
                return f"{self.workload.until} has not come: {said}"
            time.sleep(LOOK_PAUSE_S)

    # -- when it is done -----------------------------------------------------------------------------------------

    def _is_done(self, job: Job) -> bool:
        until = self.workload.until
        try:
            if until.what == "exit":
                return not job.alive and bool(job.completed)
            if until.what == "records":
                return len(self._records()) >= until.number and not self._open()
            if until.what == "idle":
                return self._idle_s() >= until.number
            return self._lag_is_zero() and not self._open()
        except OdradekError:
            return False  # a node is on its way

    def _lag_is_zero(self) -> bool:
        groups = self.broker._control.client.get("/v1/views/groups")["groups"]
        committed = [
            {(each["topic"], each["partition"]): each["committed"] for each in group["offsets"]}
            for group in groups
        ]
        reading = [each for each in committed if any(key in each for key in self._last)]
        return bool(reading) and all(
            (each.get(key) or 0) > last for each in reading for key, last in self._last.items()
        )

    def _records(self) -> list[Record]:
        return [record for topic in self.workload.outputs for record in self.broker.records(topic)]

    def _open(self) -> list[str]:
        """Transactions that hold up readers of the outputs."""
        found = []
        for topic in self.broker._control.client.get("/v1/topics")["topics"]:
            if topic["name"] in self.workload.outputs:
                found += [
                    f"{topic['name']}-{each['partition']}: readers stop at offset {each['last_stable_offset']}: {_said(one)}"
                    for each in topic["partitions"]
                    for one in each["open_transactions"]
                ]
        return found

    def _idle_s(self) -> float:
        """How long ago the job has asked for a change last; 0 before the first one."""
        newest_ms = self._newest_write_ms()
        return (self.broker.clock.now_ms - newest_ms) / 1000 if newest_ms else 0.0

    def _newest_write_ms(self) -> int:
        """When the job has asked for a change last, on the broker's clock; 0: never."""
        newest = self.broker.trace.entries(limit=NEWEST, bodies=False)
        return max((int(each["arrived_ms"]) for each in newest if each["api"] in WRITES), default=0)

    # -- what came of it -----------------------------------------------------------------------------------------

    def _outputs(self, why_not: str) -> Outputs:
        broker, topics = self.broker, self.workload.outputs
        for node in broker.nodes.values():
            if node.state in ("killed", "stopped"):
                node.start()
        open_now = self._open()
        written = [record for topic in topics for record in broker.records(topic, "read_uncommitted")]
        committed = (
            [each for each in written if each.outcome in (None, "committed")]
            if not open_now
            else self._records()
        )
        return Outputs(committed, written, not why_not, why_not, open_now)

    def add_evidence(self, run: Run) -> Run:
        """The trace and the timelines of the newest run. They cost more than the run itself, and most runs need none."""
        run.trace = exchanges(self.broker.trace.entries(limit=ENTRIES_MAX))
        ids = dict.fromkeys(each.transactional_id for each in run.trace if each.transactional_id)
        run.timelines = {each: self.broker.timeline(each).text for each in ids if each != SEEDER}
        return run


def _said(transaction: Any) -> str:
    return ", ".join(f"{name} {value}" for name, value in transaction.items() if value is not None)


def _tail(path: Path, bytes_max: int = 4000) -> str:
    return path.read_bytes()[-bytes_max:].decode("utf-8", "replace") if path.exists() else ""
