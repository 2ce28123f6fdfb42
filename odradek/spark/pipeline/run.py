"""The supervisor of a run: it starts and kills the programs, starts them again, and compares the results at the end."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odradek.deadlines import stretched
from odradek.demo import flights
from odradek.demo.doomed import restart_doomed
from odradek.errors import OdradekError
from odradek.process import BrokerFailed, BrokerProcess
from odradek.spark import processes
from odradek.spark.pipeline import clients, expected
from odradek.spark.pipeline.job import EXACTLY_ONCE, JVM_KILLED
from odradek.spark.pipeline.plan import BROKER_POINTS, SINK_POINTS, Kills, Plan, draw
from odradek.spark.pipeline.programs import Program
from odradek.spark.pipeline.proof import audited
from odradek.spark.pipeline.show import Show
from odradek.spark.pipeline.verdict import Outcome, compare, sees_planted_errors
from odradek.spark.sink import points

if TYPE_CHECKING:
    from odradek.spark.audit import Report

SOURCE, SINK = "flights", "delays"
SOURCE_PARTITIONS, SINK_PARTITIONS = 4, 3
TRANSACTION_FLIGHTS: Final = 1000
GIVING_UP_MAX = 10
"""Maximum number of restarts after a program failed by itself, as it may when another process is killed."""
LEAD_BATCHES = 2
"""Maximum lead of the producer over the job, in micro-batches, so that both are running when a process is killed."""
POLL_S = 0.1


class PipelineFailed(OdradekError):
    """The run did not finish, or its result would prove nothing: for example, a planned kill did not happen."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run.

    ``flights``: the number of flights to write, None for all. ``bootstrap``: the address of a Kafka cluster; for
    None, the run starts a broker. ``data_dir``: the directory of the segment files to audit; unused if the run starts a
    broker."""

    directory: Path
    seed: int
    flights: int | None = None
    per_batch: int = 30_000
    bootstrap: str | None = None
    data_dir: Path | None = None
    out: Path | None = None
    kills: Kills = field(default_factory=Kills)
    sink_format: str = EXACTLY_ONCE
    timeout_s: float = stretched(600.0)


@dataclass(slots=True)
class Heard:
    """The progress that the producer and the job have reported so far."""

    written: int = 0
    """Number of flights that the producer has committed."""
    read: int = 0
    """Number of flights that the job has read."""
    batches: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Rows in, rows out and late rows of each micro-batch."""
    aborted: int = 0
    inside: bool = False
    """Whether the producer has begun a transaction and not ended it."""

    @property
    def rows_out(self) -> int:
        return sum(rows for _, rows, _ in self.batches.values())

    @property
    def late(self) -> int:
        return sum(rows for _, _, rows in self.batches.values())


@dataclass(slots=True)
class Toll:
    """The kills so far: their number for workers, and for the other processes the place of each kill in the run."""

    driver: list[str] = field(default_factory=list)
    broker: list[str] = field(default_factory=list)
    worker: int = 0
    producer: list[str] = field(default_factory=list)
    gave_up: int = 0

    @property
    def total(self) -> int:
        return len(self.driver) + len(self.broker) + self.worker + len(self.producer)


class Pipeline:
    """One run. ``run`` returns its outcome; ``show`` displays its progress and figures."""

    def __init__(self, settings: Settings, show: Show, total: int) -> None:
        self.settings = settings
        self.show = show
        self.total = total
        self.heard, self.toll = Heard(), Toll()
        self.rng = random.Random(settings.seed)
        self.plan = self._plan()
        self.broker = None if settings.bootstrap else self._own_broker()
        self.bootstrap = settings.bootstrap or ""
        # The user's Kafka may already have topics of these names, with offsets and decisions of an earlier run.
        run = f"-{settings.seed:06d}" if settings.bootstrap else ""
        self.source, self.sink = SOURCE + run, SINK + run
        self.producer: Program | None = None
        self.job: Program | None = None

    def _plan(self) -> Plan:
        batches = -(-self.total // self.settings.per_batch)
        kills, has_points = self.settings.kills, self.settings.sink_format == EXACTLY_ONCE
        ahead = LEAD_BATCHES * self.settings.per_batch // TRANSACTION_FLIGHTS
        return draw(self.rng, kills, batches, self.total // TRANSACTION_FLIGHTS, ahead, has_points)

    def _own_broker(self) -> BrokerProcess:
        topics = [f"{SOURCE}:{SOURCE_PARTITIONS}", f"{SINK}:{SINK_PARTITIONS}"]
        return BrokerProcess(self.settings.directory / "broker", topics=topics)

    # ---- the run

    def run(self) -> Outcome:
        try:
            return self._run()
        finally:
            for program in (self.job, self.producer):
                if program is not None:
                    program.kill()
            if self.broker is not None:
                self.broker.close()

    def _run(self) -> Outcome:
        self._start()
        self._work()
        self.show.say("reading the statistics as a read_committed consumer")
        observed = clients.read_delays(self.bootstrap, self.sink, "read_committed")
        everything = clients.read_delays(self.bootstrap, self.sink, "read_uncommitted")
        wanted = expected.statistics(flights.data_file(), self.settings.flights)
        difference = compare(wanted, observed)
        if not difference and not sees_planted_errors(wanted, observed):
            raise PipelineFailed(
                "the comparison does not find a planted error, so its verdict proves nothing"
            )
        outcome = Outcome(difference, self._audit())
        self.show.report(self._figures(len(observed), len(everything) - len(observed)), outcome)
        return outcome

    def _audit(self) -> Report | None:
        """Audit the segment files; None if their directory is unknown. Stops the broker if the run started one."""
        data_dir = self.settings.data_dir
        if self.broker is not None:
            self.broker.terminate()
            data_dir = self.broker.data_dir
        if data_dir is None:
            return None
        self.show.say("auditing the segment files")
        out = self.settings.out or self.settings.directory / "audit"
        return audited(data_dir, out, self.source, self.sink, self.show.say)

    def _start(self) -> None:
        if self.broker is not None:
            self._arm_and_start()
            self.bootstrap = self.broker.bootstrap
        else:
            clients.create_topics(
                self.bootstrap, {self.source: SOURCE_PARTITIONS, self.sink: SINK_PARTITIONS}
            )
        directory, module = self.settings.directory, "odradek.spark.pipeline"
        arguments = [self.bootstrap, self.source, SOURCE_PARTITIONS, "--flights", self.total]
        self.producer = Program(f"{module}.producer", arguments, directory, self._hear_producer)
        topics = ["--source", self.source, "--partitions", SOURCE_PARTITIONS, "--sink", self.sink]
        ways = ["--checkpoint", directory / "checkpoint", "--per-batch", self.settings.per_batch]
        ways += ["--format", self.settings.sink_format]
        self.job = Program(
            f"{module}.job", ["--bootstrap", self.bootstrap, *topics, *ways], directory, self._hear_job
        )
        self.show.say(f"{self.bootstrap}: {self.total:,} flights into {self.source}, delays into {self.sink}")
        self.producer.start()
        self._start_job()

    def _start_job(self) -> None:
        """Start the driver so that it is killed at the next sink step of the plan, if there is one left."""
        assert self.job is not None
        environment = {}
        if self.plan.sink_points:
            point, times = self.plan.sink_points[0]
            environment[points.VARIABLE] = f"{point}:nth={times}=driver"
        self.job.start(environment)

    def _arm_and_start(self) -> None:
        """Start the broker so that it is killed at the next crash point of the plan, if there is one left."""
        assert self.broker is not None
        point = None
        if self.plan.broker_points:
            name, passage = self.plan.broker_points[0]
            point = f"{name}:{passage}"
        restart_doomed(self.broker, point)

    def _work(self) -> None:
        assert self.job is not None
        assert self.producer is not None
        began = time.monotonic()
        while self.job.exit_code != 0:
            if time.monotonic() - began > self.settings.timeout_s:
                raise PipelineFailed(
                    f"only {self.heard.read:,} of {self.total:,} flights were read in {self.settings.timeout_s:.0f} s"
                )
            self._look_after_broker()
            self._look_after_producer()
            self._look_after_job()
            self._kill_what_is_due()
            self.producer.tell(self.heard.read + LEAD_BATCHES * self.settings.per_batch)
            heard = self.heard
            self.show.progress(heard.written, heard.read, len(heard.batches), heard.rows_out, self.toll.total)
            time.sleep(POLL_S)
        if not self.plan.is_done:
            raise PipelineFailed(f"the job finished before all kills were carried out: {self.plan.left()}")

    # ---- the output of the programs

    def _hear_producer(self, words: list[str]) -> None:
        assert self.producer is not None
        word, number = words[0], int(words[1])
        self.heard.inside = word == "begin"
        if word == "commit":
            self.heard.written = max(self.heard.written, number)
        elif word == "abort":
            self.heard.aborted += 1
        elif word == "begin" and self.plan.producer and number >= self.plan.producer[0] * self.total:
            # Kill at once: the transaction would have ended before the next turn of the loop in `_work`.
            self.plan.producer.pop(0)
            self.toll.producer.append(f"in the transaction of flight {number:,}")
            self.producer.kill()

    def _hear_job(self, words: list[str]) -> None:
        if words[0] == "batch":
            batch, rows_in, rows_out, late, row, _ = map(int, words[1:])
            self.heard.batches[batch] = rows_in, max(rows_out, 0), late
            self.heard.read = max(self.heard.read, row + 1)

    # ---- kills and restarts

    def _look_after_broker(self) -> None:
        if self.broker is None or self.broker.is_running:
            return
        if not self.plan.broker_points:
            raise BrokerFailed(f"the broker ended unexpectedly, with exit code {self.broker.exit_code}")
        where = BROKER_POINTS[self.plan.broker_points.pop(0)[0]]
        self.toll.broker.append(where)
        self.show.say(f"broker killed {where}; restarting")
        self._arm_and_start()

    def _look_after_producer(self) -> None:
        assert self.producer is not None
        if self.producer.exit_code in (None, 0):
            return
        if self.producer.exit_code > 0:
            self._count_giving_up(self.producer)
        else:
            self.show.say(f"producer killed {self.toll.producer[-1]}; restarting")
        self.producer.start()

    def _look_after_job(self) -> None:
        assert self.job is not None
        if self.job.exit_code in (None, 0):
            return
        if self.job.exit_code == JVM_KILLED and self.plan.sink_points:
            where = SINK_POINTS[self.plan.sink_points.pop(0)[0]]
            self.toll.driver.append(where)
            self.show.say(f"driver killed {where}; restarting")
        elif self.job.exit_code > 0:
            self._count_giving_up(self.job)
        self._start_job()

    def _count_giving_up(self, program: Program) -> None:
        self.toll.gave_up += 1
        complaint = program.complaint()
        self.show.say(f"the {program.name} failed ({complaint}); restarting")
        if self.toll.gave_up > GIVING_UP_MAX:
            raise PipelineFailed(f"the {program.name} has failed too often: {complaint}")

    def _kill_what_is_due(self) -> None:
        assert self.job is not None
        share = self.heard.read / self.total
        if self.plan.driver and not self.plan.sink_points and share >= self.plan.driver[0]:
            self.plan.driver.pop(0)
            self.job.kill()
            self.toll.driver.append(f"after flight {self.heard.read:,}")
            self.show.say(f"driver killed {self.toll.driver[-1]}, with its workers; restarting")
            return
        if not self.plan.worker or share < self.plan.worker[0]:
            return
        if pids := processes.python_workers(self.job.pid):
            self.plan.worker.pop(0)
            processes.kill(self.rng.choice(pids))
            self.toll.worker += 1
            self.show.say(f"a worker killed after flight {self.heard.read:,}")

    # ---- the report

    def _figures(self, rows_out: int, uncommitted: int) -> dict[str, str]:
        heard, toll = self.heard, self.toll
        return {
            "flights": f"{self.total:,}",
            "producer transactions aborted": f"{heard.aborted:,}",
            "micro-batches": f"{len(heard.batches):,}",
            "rows written (read_committed)": f"{rows_out:,}",
            "rows aborted": f"{uncommitted:,}",
            "late flights": f"{heard.late:,}",
            "driver kills": listed(toll.driver),
            "worker kills": str(toll.worker),
            "producer kills": listed(toll.producer),
            "broker kills": listed(toll.broker),
        }


def listed(places: list[str]) -> str:
    return f"{len(places)} ({'; '.join(places)})" if places else "0"
