"""Replicas of several nodes in memory: real logs and real controller decisions, a fake clock, no socket, no metadata log.

nodes = Nodes(tmp_path)
nodes.create("t", min_isr=2)
await nodes.append(b"value")
nodes.injection.links.cut(1, 2)
nodes.kill(1)  # the controller elects another leader
nodes.start(1)
await nodes.settle()
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from broker.clock.of_node import NodeClock
from broker.config import broker_config
from broker.injection.points import FaultInjection
from broker.metadata.changes import records_for_config_change, records_for_new_topic
from broker.metadata.deltas import apply
from broker.metadata.elections import (
    record_for_election,
    record_for_isr,
    record_for_reassignment,
    records_for_lost_brokers,
    records_for_unfenced_brokers,
)
from broker.metadata.image import Image
from broker.metadata.listeners import MetadataListener, notify
from broker.metadata.partition_change import Election
from broker.metadata.values import (
    TOPIC_RESOURCE,
    AnyRecord,
    BrokerRegistration,
    MetadataDelta,
    PartitionState,
    Topic,
)
from broker.replicas.maintenance.flushing import Flushing
from broker.replicas.manager import ReplicaManager
from broker.replicas.partition import AppendResult, Partition
from broker.replicas.partition.listeners import PartitionListeners
from broker.replicas.replication.leading import Leading
from protocol.batch import EndTxnMarker, RecordBatch, build_batch
from protocol.errors import ErrorCode
from storage.config import LogConfig
from storage.directory import LogDirectory
from tests.support.clock import FakeClock

TOPIC = "t"
TURNS_MAX = 200
DIRECTORY = uuid.UUID(int=77)
DEFAULTS = {
    "odradek.background.flush.interval.ms": "0",
    # A follower has a new high watermark at once.
    "replica.fetch.wait.max.ms": "0",
}


class Controller:
    """Cluster metadata without a log. The decisions are those of the real controller, and their metadata records are
    committed at once."""

    def __init__(self) -> None:
        self.image = Image()
        self.listeners: list[MetadataListener] = []
        self.refuses_isr = False
        """Whether AlterPartition fails, as with an unreachable controller."""
        self.watch_isr: Callable[[tuple[int, ...]], object] = lambda isr: None
        """A function that is called with the in-sync replicas of each AlterPartition request."""

    @property
    def replication_control(self) -> Controller:
        return self

    @property
    def topics(self) -> dict[str, Topic]:
        return self.image.topics

    @property
    def brokers(self) -> dict[int, BrokerRegistration]:
        return self.image.brokers

    def topic(self, name: str) -> Topic | None:
        return self.image.topics.get(name)

    def topic_by_id(self, topic_id: uuid.UUID | None) -> Topic | None:
        return self.image.topics_by_id.get(topic_id) if topic_id is not None else None

    def subscribe(self, listener: MetadataListener) -> None:
        self.listeners.append(listener)

    def unsubscribe(self, listener: MetadataListener) -> None:
        self.listeners.remove(listener)

    def commit(self, records: Iterable[AnyRecord | None]) -> None:
        changes = MetadataDelta()
        for record in records:
            if record is not None:
                apply(self.image, record, changes)
        for listener in tuple(self.listeners):
            notify(listener, self.image, changes)

    def state(self, name: str = TOPIC, index: int = 0) -> PartitionState:
        return self.image.topics[name].partitions[index]

    def alter_partition(
        self, topic: str, index: int, leader_epoch: int, isr: Sequence[int]
    ) -> Coroutine[object, object, None]:
        # Decide in the leader's turn: one turn later a follower that has just fetched may be cut off.
        self.watch_isr(tuple(isr))
        return self._alter_partition(topic, index, leader_epoch, isr)

    async def _alter_partition(self, topic: str, index: int, leader_epoch: int, isr: Sequence[int]) -> None:
        await asyncio.sleep(0)
        if self.refuses_isr:
            raise ConnectionError("the controller is unreachable")
        known = self.image.topics[topic]
        self.commit([record_for_isr(self.image, known, known.partitions[index], leader_epoch, isr, self)])

    def allows_unclean_election(self, topic: Topic) -> bool:
        return LogConfig.from_properties(topic.configs, LogConfig()).unclean_leader_election_enable

    def min_insync_replicas(self, topic: Topic) -> int:
        return LogConfig.from_properties(topic.configs, LogConfig()).min_insync_replicas


class Nodes:
    """Nodes 1 to ``count``, each with a folder. Methods without a topic use partition 0 of the topic ``t``."""

    def __init__(
        self, path: Path, count: int = 3, settings: dict[str, str] | None = None, seed: int = 0
    ) -> None:
        self.path = path
        self.clock = FakeClock()
        self.injection = FaultInjection()
        self.controller = Controller()
        self.config = broker_config(DEFAULTS | (settings or {}))
        self.random = random.Random(seed)
        self.running: dict[int, ReplicaManager] = {}
        self._clocks: dict[int, NodeClock] = {}
        self._directories: dict[int, LogDirectory] = {}
        for node_id in range(1, count + 1):
            self.controller.brokers[node_id] = BrokerRegistration(
                node_id, 1, uuid.UUID(int=node_id), fenced=False, log_dirs=(DIRECTORY,)
            )
            self._open(node_id)

    # -- start and stop -----------------------------------------------------------------------------------------

    def _open(self, node_id: int) -> None:
        directory = self._directories[node_id] = LogDirectory(self.path / f"node-{node_id}")
        clock: Any = NodeClock(self.clock)
        self._clocks[node_id] = clock
        metadata: Any = self.controller
        config = replace(self.config, node_id=node_id)
        replicas = ReplicaManager(
            node_id, directory, config, clock, metadata, self.random, self.injection, self.running.get
        )
        self.running[node_id] = replicas
        replicas.recover()

    def kill(self, node_id: int, *, tell: bool = True) -> None:
        """Kill a node, as kill -9 does. With ``tell`` the controller notices the kill at once."""
        replicas = self.running.pop(node_id)
        self._clocks[node_id].stop()
        self.controller.unsubscribe(replicas)
        replicas.abandon()
        self._directories.pop(node_id).close(clean=False)
        if tell:
            self.lose(node_id)

    def lose(self, node_id: int) -> None:
        controller = self.controller
        gone = list(records_for_lost_brokers(controller.image, [node_id], controller))
        controller.brokers[node_id] = replace(controller.brokers[node_id], fenced=True)
        controller.commit(gone)

    async def stop(self, node_id: int, *, tell: bool = True) -> None:
        """Stop a node cleanly. With ``tell`` the controller elects other leaders first."""
        if tell:
            self.lose(node_id)
        replicas = self.running.pop(node_id)
        self.controller.unsubscribe(replicas)
        clean = await replicas.close(clean=True)
        self._clocks[node_id].stop()
        self._directories.pop(node_id).close(clean=clean)

    def start(self, node_id: int) -> None:
        self._open(node_id)
        controller = self.controller
        before = controller.brokers[node_id]
        controller.brokers[node_id] = replace(before, epoch=before.epoch + 1, fenced=False)
        controller.commit(records_for_unfenced_brokers(controller.image, [node_id], controller))
        self.running[node_id].start_timers()

    def end(self) -> None:
        for node_id in tuple(self.running):
            self.kill(node_id, tell=False)

    def lead(self, node_id: int) -> None:
        """Make the controller elect a node that is in the ISR."""
        controller = self.controller
        topic, state = controller.image.topics[TOPIC], controller.state()
        order = (node_id, *(each for each in state.replicas if each != node_id))
        topic.partitions[0] = replace(state, replicas=order)
        record = record_for_election(
            controller.image, topic, topic.partitions[0], Election.PREFERRED, controller
        )
        controller.commit([record])

    def reassign(self, *target: int) -> None:
        controller = self.controller
        topic = controller.image.topics[TOPIC]
        controller.commit(
            [record_for_reassignment(controller.image, topic, controller.state(), target, controller)]
        )

    async def settle(self) -> None:
        """Run the event loop until nothing changes without a timer."""
        quiet = 0
        for _ in range(TURNS_MAX):
            self.clock.advance(0)
            await asyncio.sleep(0)
            timers = self.clock.timers
            busy = (timers and timers[0].due_ms <= self.clock.now) or len(asyncio.all_tasks()) > 1
            quiet = 0 if busy else quiet + 1
            if quiet > 2:
                return
        raise AssertionError(f"the nodes still have pending work after {TURNS_MAX} turns of the event loop")

    async def pass_time(self, delay_ms: int) -> None:
        self.clock.advance(delay_ms)
        await self.settle()

    # -- the partition ------------------------------------------------------------------------------------------

    def create(self, replicas: Sequence[int] = (1, 2, 3), min_isr: int = 1, **configs: str) -> None:
        configs = {"min.insync.replicas": str(min_isr)} | {
            name.replace("_", "."): value for name, value in configs.items()
        }
        brokers = self.controller.brokers
        directories = {node_id: DIRECTORY for node_id in brokers}
        self.controller.commit(
            records_for_new_topic(uuid.UUID(int=5), TOPIC, [replicas], configs, directories, directories)
        )

    def configure(self, **configs: str) -> None:
        """Change settings of the topic ``TOPIC``. Keywords have underscores instead of dots."""
        values = {name.replace("_", "."): value for name, value in configs.items()}
        self.controller.commit(records_for_config_change(TOPIC_RESOURCE, TOPIC, values))

    def on(self, node_id: int) -> Partition:
        partition = self.running[node_id].get(TOPIC, 0)
        assert partition is not None
        return partition

    @property
    def leader(self) -> Partition:
        return self.on(self.controller.state().leader)

    @property
    def leading(self) -> Leading:
        """The replication state (`Leading`) of the partition's leader. Fails if the partition has only one replica: its
        leader has no such state."""
        leading = self.leader.leading
        assert isinstance(leading, Leading)
        return leading

    def isr(self) -> tuple[int, ...]:
        return self.controller.state().isr

    def append(
        self,
        *values: bytes,
        producer: tuple[int, int, int] = (-1, -1, -1),
        transactional: bool = False,
        acks: int = -1,
        on: int | None = None,
    ) -> AppendResult:
        """Append one batch at the leader. ``producer`` is (producer id, epoch, base sequence)."""
        producer_id, epoch, sequence = producer
        partition = self.leader if on is None else self.on(on)
        batch = build_batch(
            [(self.clock.now, b"k", value) for value in values],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        guard = None
        if transactional:
            guard = partition.log.producers.start_verification(
                producer_id, epoch, sequence, supports_epoch_bump=False, now_ms=self.clock.now
            )
        return partition.append(RecordBatch.parse(batch), required_acks=acks, guard=guard)

    def mark(self, producer_id: int, epoch: int = 0, *, committed: bool) -> AppendResult:
        return self.leader.append_marker(producer_id, epoch, EndTxnMarker(committed, 0), 0)

    def outcome(self, result: AppendResult, on: int | None = None) -> Outcome:
        """Return the `Outcome` of an append with acks=all.

        Its ``error`` is set at once if the append failed, otherwise when the records are below the high watermark.
        """
        outcome = Outcome()
        if result.error is not ErrorCode.none:
            outcome.error = result.error
            return outcome
        partition = self.leader if on is None else self.on(on)
        partition.on_committed(result.last_offset + 1, outcome.hear)
        return outcome

    async def fsync(self, node_id: int) -> None:
        """Flush a replica's whole log, as after ``flush.ms``, and wait for the end of the flush in its thread."""
        partition = self.on(node_id)
        assert isinstance(partition.listener, PartitionListeners)
        for listener in partition.listener.members:
            if isinstance(listener, Flushing):
                listener.flush(partition)
        if self.clock.in_threads:
            await asyncio.wait(self.clock.in_threads)

    # -- state --------------------------------------------------------------------------------------------------

    def content(self, node_id: int, end_offset: int | None = None) -> bytes:
        """Bytes of a replica's complete batches below ``end_offset``, by default below its log end."""
        log = self.on(node_id).log
        end = log.log_end_offset if end_offset is None else end_offset
        return b"".join(bytes(batch.data) for batch in log.batches() if batch.last_offset < end)

    def values(self, node_id: int | None = None) -> list[bytes]:
        """Values that a read_uncommitted consumer reads from a node, by default from the leader."""
        partition = self.leader if node_id is None else self.on(node_id)
        values: list[bytes] = []
        for batch in partition.log.batches():
            if batch.last_offset < partition.high_watermark and not batch.is_control:
                values += [record.value or b"" for record in batch.records()]
        return values

    def ends(self) -> dict[int, tuple[int, int]]:
        """(high watermark, log end offset) of each running replica."""
        state = self.controller.state()
        return {
            node_id: (self.on(node_id).high_watermark, self.on(node_id).log_end_offset)
            for node_id in sorted(state.replicas)
            if node_id in self.running
        }


class Outcome:
    """The response to an append. ``error`` is None until the response is sent."""

    error: ErrorCode | None = None

    def hear(self, error: ErrorCode) -> None:
        assert self.error is None, "a second response"
        self.error = error
