"""A model of a cluster and of Spark in memory, in which every process can be stopped between any two steps.

A step is one request. Processes are greenlets, and the scheduler chooses which one runs next; so a run does not depend on
the scheduling of the machine. A dead process takes no further step; a frozen one takes it later.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import pickle
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from greenlet import getcurrent, greenlet

from odradek.spark.sink.decision import abort_batch, commit_batch
from odradek.spark.sink.decision_record import DIGEST_MODULUS, Answer, SinkState
from odradek.spark.sink.names import Label
from odradek.spark.sink.plan import Plan, Settings, plan_batch
from odradek.spark.sink.store import Store
from odradek.spark.sink.task import Report, run_task
from odradek.spark.wire import (
    Authorization,
    Fenced,
    InitializedProducers,
    InvalidTransaction,
    ProducerId,
    Retriable,
    WireError,
)

OUT = "out"
PLACE = "place"
SETTINGS = Settings("q", PLACE, 900_000)


# A consumer group, and a partition as (topic, number).
Place = tuple[str, tuple[str, int]]


class Dead(BaseException):
    """The exception that ends a killed process."""


@dataclass
class Transaction:
    """The coordinator's state of a transactional id, with its open transaction."""

    producer: ProducerId
    state: str = "Empty"
    partitions: set[tuple[str, int]] = field(default_factory=set)


class Kafka:
    """Coordinators, logs and offsets, with transaction version 1 and the verification of KIP-890.

    EndTxn takes effect at once, with all markers. ``late``: transactional ids of repeated InitProducerId requests whose
    first copy is still under way."""

    def __init__(self) -> None:
        self.ids: dict[str, Transaction] = {}
        self.logs: dict[tuple[str, int], list[tuple[int, int, object]]] = defaultdict(list)
        # Committed offsets, by group and partition.
        self.offsets: dict[Place, tuple[int, str]] = {}
        self.pending: dict[ProducerId, dict[Place, tuple[int, str]]] = defaultdict(dict)
        self.late: list[str] = []
        self.next_producer_id = 1000
        # The only topic for rows; None while it is deleted.
        self.topic_id: bytes | None = _topic_id(1)
        self.topics_made = 1
        self.memory: dict[Place, tuple[int, str]] | None = None
        self.decision_partitions = 4
        # Prefix of the groups that the client is not authorized to access.
        self.refused_groups: str | None = None
        self.verified = True
        self.ended_by_driver: tuple[str, ProducerId] | None = None
        self.deaf_to_driver = False
        self.unheard: tuple[str, ProducerId] | None = None
        self.steps_unheard = 0

    def init(self, transactional_id: str) -> ProducerId:
        known = self.ids.get(transactional_id)
        if known is None:
            known = self.ids[transactional_id] = Transaction(ProducerId(self.next_producer_id, 0))
            self.next_producer_id += 1
            return known.producer
        if known.state == "Ongoing":
            self._close(known, commit=False)
        known.producer = ProducerId(known.producer.producer_id, known.producer.epoch + 1)
        known.state = "Empty"
        return known.producer

    def check_right(self, group: str) -> None:
        if self.refused_groups is not None and group.startswith(self.refused_groups):
            raise Authorization("GROUP_AUTHORIZATION_FAILED", group)

    def delete_topic(self) -> None:
        """Delete the topic with its records. Transactions that wrote to it can still be ended, without effect."""
        self.topic_id = None
        self.logs.clear()

    def create_topic(self) -> None:
        if self.topic_id is None:
            self.topics_made += 1
            self.topic_id = _topic_id(self.topics_made)

    def time_out(self, transactional_id: str) -> None:
        """Abort the open transaction as the coordinator does after its timeout, and fence its producer."""
        known = self.ids[transactional_id]
        assert known.state == "Ongoing"
        self._close(known, commit=False)
        known.producer = ProducerId(known.producer.producer_id, known.producer.epoch + 1)

    def _mine(self, transactional_id: str, producer: ProducerId) -> Transaction:
        known = self.ids.get(transactional_id)
        if known is None or known.producer.producer_id != producer.producer_id:
            raise InvalidTransaction("INVALID_PRODUCER_ID_MAPPING", transactional_id)
        if known.producer.epoch != producer.epoch:
            raise Fenced("PRODUCER_FENCED", transactional_id)
        return known

    def add(self, transactional_id: str, producer: ProducerId, partitions: Iterable[tuple[str, int]]) -> None:
        known = self._mine(transactional_id, producer)
        if known.state != "Ongoing":
            known.state = "Ongoing"
            known.partitions = set()
        known.partitions |= set(partitions)

    def end(self, transactional_id: str, producer: ProducerId, commit: bool) -> None:
        known = self._mine(transactional_id, producer)
        if known.state == "Ongoing":
            self._close(known, commit)
        elif known.state != ("CompleteCommit" if commit else "CompleteAbort"):
            raise InvalidTransaction("INVALID_TXN_STATE", transactional_id)

    def end_late(self, transactional_id: str, producer: ProducerId) -> None:
        """Handle an EndTxn(commit) that arrives long after its sender has sent it again. Errors are ignored."""
        with contextlib.suppress(WireError):
            self.end(transactional_id, producer, True)

    def hear(self, steps: int) -> None:
        """Called once per step. After more than ``steps`` calls, handle the driver's delayed EndTxn (``unheard``)."""
        if self.unheard is not None:
            self.steps_unheard += 1
            if self.steps_unheard > steps:
                self.end_late(*self.unheard)
                self.unheard = None

    def time_out_pending(self) -> None:
        """Drop the pending offset commits, as if an operator had aborted hanging transactions.

        Before KIP-890 nothing else ends these transactions.
        """
        self.pending.clear()

    def _close(self, known: Transaction, commit: bool) -> None:
        producer = known.producer
        known.state = "CompleteCommit" if commit else "CompleteAbort"
        for partition in known.partitions:
            if partition[0] == OUT and self.topic_id is not None:
                self.logs[partition].append((producer.producer_id, producer.epoch, commit))
        moved = self.pending.pop(producer, {})
        if commit:
            self.offsets.update(moved)

    def produce(
        self, transactional_id: str, producer: ProducerId, partition: tuple[str, int], values: Sequence[str]
    ) -> None:
        known = self._mine(transactional_id, producer)
        if known.state != "Ongoing" or partition not in known.partitions:
            raise InvalidTransaction("INVALID_TXN_STATE", transactional_id)
        if self.topic_id is None:
            raise Retriable("UNKNOWN_TOPIC_OR_PARTITION", OUT)
        self.logs[partition] += [(producer.producer_id, producer.epoch, value) for value in values]

    def read_committed(self) -> list[str]:
        """All values whose transaction has a commit marker, sorted."""
        read = []
        for log in self.logs.values():
            outcome: dict[int, bool] = {}
            for producer_id, _, value in reversed(log):
                if isinstance(value, bool):
                    outcome[producer_id] = value
                elif outcome.get(producer_id, False):
                    read.append(str(value))
        return sorted(read)

    def ongoing(self) -> list[str]:
        return [name for name, known in self.ids.items() if known.state == "Ongoing"]


class Process:
    """A greenlet that stops before each of its steps, until the scheduler resumes it."""

    current: ClassVar[Process | None] = None

    def __init__(self, name: str, body: Callable[[], object]) -> None:
        self.name = name
        self.result: object = None
        self.error: Exception | None = None
        self.ended = False
        self.frozen = False
        self.killed = False
        self.waits_for: Callable[[], bool] | None = None
        self._body = body
        self._greenlet = greenlet(self._run)

    def _run(self) -> None:
        try:
            if not self.killed:
                self.result = self._body()
        except Dead:
            pass
        except Exception as error:
            self.error = error
        self.ended = True

    @staticmethod
    def gate() -> None:
        """Stop the current process until its next step. The process calls this before each request."""
        me = Process.current
        assert me is not None
        if not me.killed:
            assert me._greenlet.parent is not None
            me._greenlet.parent.switch()
        if me.killed:
            raise Dead

    @staticmethod
    def wait_for(condition: Callable[[], bool]) -> None:
        me = Process.current
        assert me is not None
        while not condition():
            me.waits_for = condition
            Process.gate()
        me.waits_for = None

    @property
    def runnable(self) -> bool:
        return not (self.ended or self.frozen) and (self.waits_for is None or self.waits_for())

    def step(self) -> None:
        """Run the process until it is about to send its next request, or ends."""
        assert not self.ended
        before, Process.current = Process.current, self
        self._greenlet.parent = getcurrent()
        self._greenlet.switch()
        Process.current = before

    def kill(self) -> None:
        if not self.ended:
            self.killed = True
            self.step()


class Cluster:
    """The client with which a process sends requests to ``Kafka``.

    ``World.lost`` has the transactional ids for which a response to InitProducerId is lost. From the step
    ``World.fails_at`` on, ``World.fails_for`` requests fail.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.kafka = world.kafka
        self.lost = world.lost
        self.knows_the_coordinator = False

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """Context manager for one request, which is a step. It may fail before or after it takes effect."""
        Process.gate()
        at = self.world.fails_at
        fails = 0 <= at <= self.world.steps < at + self.world.fails_for
        if fails and not self.world.heard:
            raise Retriable("REQUEST_TIMED_OUT", f"the request timed out at step {self.world.steps}")
        yield
        if fails:
            raise Retriable("REQUEST_TIMED_OUT", f"the request timed out at step {self.world.steps}")

    def partitions_of(self, topic: str) -> int:
        return self.kafka.decision_partitions

    def topic_ids(self, topics: Iterable[str]) -> dict[str, bytes]:
        with self.request():
            now = self.kafka.topic_id
            return {} if now is None else dict.fromkeys(topics, now)

    def init_producer_ids(self, transactional_ids: Sequence[str], timeout_ms: int) -> InitializedProducers:
        given = InitializedProducers()
        given.uncertain = set()
        for each in transactional_ids:
            with self.request():
                given[each] = self.kafka.init(each)
            if each in self.lost:
                self.lost.discard(each)
                given.uncertain.add(each)
                self.kafka.late.append(each)
        return given

    def add_partitions(self, transactional_id, producer, partitions) -> None:
        with self.request():
            self.kafka.add(transactional_id, producer, partitions)

    def check_transactions(self, open_ones):
        outcomes: dict[str, WireError | None] = {}
        for each, producer, partitions in open_ones:
            try:
                self.add_partitions(each, producer, partitions)
                outcomes[each] = None
            except WireError as error:
                outcomes[each] = error
        return outcomes

    def end_transactions(self, open_ones, commit):
        outcomes: dict[str, WireError | None] = {}
        for each, producer in open_ones:
            try:
                with self.request():
                    if commit and each.endswith("-driver") and self.kafka.deaf_to_driver:
                        self.kafka.deaf_to_driver = False
                        self.kafka.unheard = each, producer
                        raise Retriable("REQUEST_TIMED_OUT", each)
                    self.kafka.end(each, producer, commit)
                    if commit and each.endswith("-driver"):
                        self.kafka.ended_by_driver = each, producer
                outcomes[each] = None
            except WireError as error:
                outcomes[each] = error
        return outcomes

    def fetch_offsets(self, group, partitions):
        kafka = self.kafka
        kafka.check_right(group)
        if kafka.memory is not None and not self.knows_the_coordinator:
            with self.request():
                return _of_group(kafka.memory, group, partitions)
        with self.request():
            Process.wait_for(
                lambda: (
                    not any(
                        each == group and (partitions is None or partition in partitions)
                        for some in kafka.pending.values()
                        for each, partition in some
                    )
                )
            )
        return _of_group(kafka.offsets, group, partitions)

    def commit_offsets(self, transactional_id, producer, group, offsets) -> None:
        self.kafka.check_right(group)
        with self.request():
            self.kafka.add(transactional_id, producer, [("__consumer_offsets", 0)])
        with self.request():
            known = self.kafka.ids[transactional_id]
            if self.kafka.verified and (known.producer != producer or known.state != "Ongoing"):
                self.kafka._mine(transactional_id, producer)
                raise InvalidTransaction("INVALID_TXN_STATE", transactional_id)
            self.kafka.pending[producer].update({(group, each): one for each, one in offsets.items()})
            self.knows_the_coordinator = True

    def list_transactions(self, prefix: str, states: Sequence[str] = ()) -> dict[str, str]:
        with self.request():
            return {
                name: known.state
                for name, known in self.kafka.ids.items()
                if name.startswith(prefix) and (not states or known.state in states)
            }


def _of_group(
    offsets: Mapping[Place, tuple[int, str]], group: str, partitions: Sequence[tuple[str, int]] | None
) -> dict[tuple[str, int], tuple[int, str]]:
    if partitions is None:
        return {partition: one for (each, partition), one in offsets.items() if each == group}
    return {partition: offsets.get((group, partition), (-1, "")) for partition in partitions}


class RowSum:
    """The digest of rows that are strings."""

    def __init__(self, hashed: bool = True) -> None:
        self.rows = 0
        self.digest: int | None = 0 if hashed else None
        self.topics: frozenset[str] = frozenset()

    def add(self, rows: Sequence[str]) -> None:
        self.rows += len(rows)
        self.topics |= {OUT}
        if self.digest is not None:
            self.digest = (self.digest + sum(zlib.crc32(row.encode()) << 24 for row in rows)) % DIGEST_MODULUS


class Writer:
    """A writer that sends each row in a request of its own, to the partition that the row names."""

    def __init__(self, cluster: Cluster, transactional_id: str, producer: ProducerId) -> None:
        self.cluster, self.kafka = cluster, cluster.kafka
        self.transactional_id, self.producer = transactional_id, producer
        self.partitions: frozenset[tuple[str, int]] = frozenset()
        self.topics: dict[str, bytes] = {}

    def write(self, rows: Sequence[str]) -> None:
        for row in rows:
            if OUT not in self.topics:
                with self.cluster.request():
                    # As Kafka's own clients do, create a missing topic.
                    self.kafka.create_topic()
                    assert self.kafka.topic_id is not None
                    self.topics[OUT] = self.kafka.topic_id
            partition = (OUT, sum(row.encode()) % 2)
            if partition not in self.partitions:
                self.cluster.add_partitions(self.transactional_id, self.producer, [partition])
                self.partitions |= {partition}
            with self.cluster.request():
                self.kafka.produce(self.transactional_id, self.producer, partition, [row])

    def flush(self) -> None:
        Process.gate()


@dataclass
class Checkpoint:
    """Spark's checkpoint of a query: the rows of each planned batch, and the committed batches."""

    query_id: str = "query-1"
    offsets: dict[int, tuple[str, ...]] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)


class World:
    """Drivers, workers and a cluster. ``run`` runs one step of one process after the other, until no process can run.
    Its argument ``choose`` selects the process."""

    def __init__(self, batches: Sequence[Sequence[str]], settings: Settings = SETTINGS) -> None:
        self.batches = [tuple(rows) for rows in batches]
        self.settings = settings
        self.kafka = Kafka()
        self.checkpoint = Checkpoint()
        self.processes: list[Process] = []
        # The attempts of each task, by driver, batch and task, in the order of their start.
        self.attempts: dict[tuple[str, int, int], list[Process]] = {}
        self.attempt_ids = itertools.count()
        self.lost: set[str] = set()
        self.fails_at = -1
        self.fails_for = 1
        self.heard = False
        self.now_ms = 1_000_000
        self.steps = 0
        # If not, each run of a batch makes other rows; and if it is not ``steady``, every second run makes one more row.
        self.deterministic = True
        self.steady = True
        self.replays = 0

    def cluster(self) -> Cluster:
        return Cluster(self)

    def spawn(self, name: str, body: Callable[[], object]) -> Process:
        process = Process(name, body)
        self.processes.append(process)
        return process

    # -- Spark ---------------------------------------------------------------------------------------------------

    def start_driver(self, name: str, tasks: Sequence[int], order: int = 1) -> Process:
        """Start a query from its checkpoint, in a new driver process.

        ``tasks``: how many tasks each batch has, in turn. ``order``: with -1 the rows are distributed over the
        tasks in reverse order, as a replay may do.
        """
        return self.spawn(name, lambda: self._drive(name, tasks, order))

    def _drive(self, name: str, tasks: Sequence[int], order: int) -> None:
        while True:
            done = max(self.checkpoint.commits, default=-1)
            batch = done + 1
            if batch == len(self.batches):
                return
            rows = self._rows_of(batch)
            plan = plan_batch(self.cluster(), self.settings, self.now_ms)
            # Spark pickles the writer twice: with the function for the tasks, and alone.
            plan = pickle.loads(pickle.dumps(plan))
            reports = self._tasks(name, plan, batch, rows[::order], tasks[batch % len(tasks)])
            try:
                if any(report is None for report in reports):
                    raise RuntimeError(f"{name}: a task of batch {batch} failed for good")
                commit_batch(self.cluster(), [each for each in reports if each is not None], self.now_ms)
            except Exception:
                abort_batch(self.cluster(), [each for each in reports if each is not None])
                raise
            Process.gate()
            if batch in self.checkpoint.commits:
                raise RuntimeError(f"{name}: another driver has committed batch {batch} to the checkpoint")
            self.checkpoint.commits.add(batch)

    def _rows_of(self, batch: int) -> tuple[str, ...]:
        """The rows of a batch, which is planned once. If the checkpoint has a directory, the plan is a file in it."""
        rows = self.checkpoint.offsets.setdefault(batch, self.batches[batch])
        if self.settings.checkpoint is not None:
            file = Path(self.settings.checkpoint) / "offsets" / str(batch)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(repr(rows), "utf-8")
        if self.deterministic:
            return rows
        self.replays += 1
        more = () if self.steady or self.replays % 2 else ("more",)
        return tuple(f"{row}.{self.replays}" for row in (*rows, *more))

    def _tasks(
        self, name: str, plan: Plan, batch: int, rows: Sequence[str], tasks: int
    ) -> list[Report | None]:
        """Run the tasks; return the report of each task's first successful attempt.

        A frozen or dead attempt is replaced by another one. None for a task whose four attempts all failed.
        """
        done: dict[int, Report | None] = {}
        attempts: dict[int, list[Process]] = {}

        def begin(task: int) -> None:
            label = Label(task, next(self.attempt_ids))
            process = self._attempt(name, plan, batch, rows[task::tasks], label)
            attempts.setdefault(task, []).append(process)

        for task in range(tasks):
            begin(task)

        def look() -> bool:
            for task, some in attempts.items():
                for process in some:
                    if task not in done and process.ended and isinstance(process.result, Report):
                        done[task] = pickle.loads(pickle.dumps(process.result))
                hopeless = all(process.frozen or process.ended for process in some)
                if task not in done and hopeless and len(some) < 4:
                    begin(task)
                elif task not in done and hopeless and all(process.ended for process in some):
                    done[task] = None
            return len(done) == tasks

        Process.wait_for(look)
        return [done[task] for task in range(tasks)]

    def _attempt(self, name: str, plan: Plan, batch: int, rows: Sequence[str], label: Label) -> Process:
        def body() -> Report:
            Process.gate()
            cluster = self.cluster()
            return run_task(
                cluster,
                pickle.loads(pickle.dumps(plan)),
                label,
                batch,
                self.checkpoint.query_id,
                [rows[:1], rows[1:]],
                RowSum(plan.settings.hashed),
                lambda each, producer: Writer(cluster, each, producer),
            )

        process = self.spawn(f"{name}/{plan.number}/{label.task}.{label.attempt_id}", body)
        self.attempts.setdefault((name, batch, label.task), []).append(process)
        return process

    # -- time ----------------------------------------------------------------------------------------------------

    def run(
        self,
        choose: Callable[[list[Process]], Process] = lambda runnable: runnable[-1],
        before_step: Callable[[int], None] = lambda step: None,
        steps_max: int = 5000,
    ) -> None:
        """Run a step of one process after the other until none can run. First call ``before_step`` with its
        number."""
        while True:
            before_step(self.steps)
            runnable = [process for process in self.processes if process.runnable]
            if not runnable:
                return
            choose(runnable).step()
            self.steps += 1
            assert self.steps < steps_max, "the processes do not end"

    def run_once(self, choose: Callable[[list[Process]], Process] = lambda runnable: runnable[-1]) -> None:
        """Run one step (a request) of one process, which ``choose`` selects."""
        runnable = [process for process in self.processes if process.runnable]
        assert runnable, "no process can run"
        choose(runnable).step()
        self.steps += 1

    def close(self) -> None:
        for process in self.processes:
            process.frozen = False
            process.kill()

    # -- checks --------------------------------------------------------------------------------------------------

    @property
    def expected(self) -> list[str]:
        return sorted(row for rows in self.batches for row in rows)

    def last_record(self) -> SinkState:
        """The committed decision record, which must exist."""
        record = self.record()
        assert record is not None
        return record

    def record(self) -> SinkState | None:
        """The committed decision record, or None if there is none."""
        offsets = self.kafka.offsets
        cluster = Cluster(self)
        cluster.fetch_offsets = lambda group, partitions: _of_group(offsets, group, partitions)
        return Store(cluster, self.settings.name, self.settings.topic).read()

    def check_committed_at_most_once(self) -> None:
        read = self.kafka.read_committed()
        assert len(set(read)) == len(read)
        assert set(read) <= set(self.expected)

    def check(self) -> None:
        assert self.kafka.read_committed() == self.expected
        assert self.checkpoint.commits == set(range(len(self.batches)))


def with_answer(world: World, batch: int, plan: int | None = None) -> None:
    """Set the option ``firstBatch`` to ``BATCH@PLAN``; without ``plan``, to the plan of the last decision."""
    if plan is None:
        record = world.record()
        plan = record.decision if record else 0
    world.settings = dataclasses.replace(world.settings, answer=Answer(batch, plan))


def _topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")
