"""All partitions of one node: opened at the first access, and closed together.

The cluster metadata says which partitions exist; this module opens their logs. A partition's directory is created at its
first append or at a clean stop, so a partition without writes costs only its metadata.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from broker.clock import Clock, Domain
from broker.config.definitions import KAFKA_15591
from broker.injection.points import FaultInjection
from broker.logging import get_logger
from broker.loop.life import NodeLife
from broker.metadata.listeners import MetadataListener
from broker.metadata.values import NO_LEADER, TOPIC_RESOURCE
from broker.replicas.log_manager import LogManager
from broker.replicas.maintenance.flushing import Flushing
from broker.replicas.maintenance.idle_producers import IdleProducers
from broker.replicas.maintenance.sealing import seal_all
from broker.replicas.partition.listeners import PartitionListener, PartitionListeners
from broker.replicas.partition.partition import Partition
from broker.replicas.replication.context import Peers, Truncation
from broker.replicas.replication.roles import Roles
from broker.replicas.stray_partitions import log_unknown
from protocol.errors import NONE, ErrorCode
from storage.directory import LogDirectory, PartitionKey
from storage.files import StorageError

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.metadata.cluster import ClusterMetadata
    from broker.metadata.values import PartitionState, Topic

log_events = get_logger()


T = TypeVar("T")


class ReplicaManager(MetadataListener):
    """The partitions of which this node has a replica."""

    def __init__(
        self,
        node_id: int,
        directory: LogDirectory,
        config: BrokerConfig,
        clock: Clock,
        metadata: ClusterMetadata,
        rng: random.Random,
        injection: FaultInjection | None = None,
        peers: Peers | None = None,
        life: NodeLife | None = None,
    ) -> None:
        """``peers`` returns the `ReplicaManager` of a node by its id. ``peers`` is None if there is no replication.

        Once ``life`` has ended, no log is opened and no background work starts.
        """
        self.node_id = node_id
        self.directory = directory
        self._life = life or NodeLife()
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._partitions: dict[PartitionKey, Partition] = {}
        self._background: set[asyncio.Future[Any]] = set()
        self._injection = injection or FaultInjection()
        self._logs = LogManager(directory, config, clock, rng, self.in_background)
        self._flushing = Flushing(
            self._logs.checkpoints,
            config,
            clock,
            self.in_background,
            injection=self._injection,
            node_id=node_id,
        )
        self._listeners: PartitionListeners[Partition] = PartitionListeners()
        self._listeners.members += [self._flushing, IdleProducers(config, clock, self.opened)]
        self._truncation = Truncation(self._logs.truncate, self._logs.truncate_fully_and_start_at)
        self._roles: Roles | None = None
        self._peers = peers
        if peers is not None:
            self._roles = Roles(
                node_id,
                config,
                clock,
                metadata,
                self._injection,
                peers,
                lambda: peers(node_id) is self,
                self._truncation,
            )
        metadata.subscribe(self)

    # -- lookup -------------------------------------------------------------------------------------------------

    def leader(self, topic: str, index: int, client_epoch: int = -1) -> Partition | ErrorCode:
        """Return the partition if this node leads it, else the error code for the client.

        ``client_epoch`` is the leader epoch that the client sent, -1 for none. As in Kafka, the error for a wrong
        epoch comes before NOT_LEADER_OR_FOLLOWER (``Partition.localLogWithEpochOrThrow``). `opened_leader` is the
        fast path (ADR 23).
        """
        # The body of `opened_leader`, inlined, since each append calls this.
        opened = self._partitions.get((topic, index))
        if (
            opened is not None
            and opened.leader_id == self.node_id
            and opened.offline is None
            and client_epoch in (-1, opened.leader_epoch)
        ):
            return opened
        partition = self.hosted(topic, index, client_epoch)
        if isinstance(partition, Partition) and partition.leader_id != self.node_id:
            return ErrorCode.not_leader_or_follower
        return partition

    def opened_leader(self, topic: str, index: int) -> Partition | None:
        """Return the partition if this node leads it, and it is open and online.

        If the result is None, call `leader`, which also opens partitions and selects the error (ADR 23).
        """
        partition = self._partitions.get((topic, index))
        if partition is None or partition.leader_id != self.node_id or partition.offline is not None:
            return None
        return partition

    def hosted(self, topic: str, index: int, client_epoch: int = -1) -> Partition | ErrorCode:
        """Return the partition if this node has a replica of it, else an error code.

        Consumers may read from any replica (KIP-392).
        """
        partition = self.get(topic, index)
        if partition is None:
            known = self._metadata.topic(topic)
            exists = known is not None and known.partition(index) is not None
            return ErrorCode.not_leader_or_follower if exists else ErrorCode.unknown_topic_or_partition
        if partition.offline is not None:
            return ErrorCode.kafka_storage_error
        error = partition.check_epoch(client_epoch)
        return partition if error is NONE else error

    def get(self, topic: str, index: int) -> Partition | None:
        """Return the partition, opening it if necessary; None if this node has no replica of it."""
        return self._partitions.get((topic, index)) or self._open_known(topic, index)

    def is_offline(self, topic: str, index: int) -> bool:
        """Whether the partition is open and its files cannot be used."""
        partition = self._partitions.get((topic, index))
        return partition is not None and partition.offline is not None

    def is_offline_on(self, node_id: int, topic: str, index: int) -> bool:
        """Whether the replica on the node ``node_id`` is offline (KIP-858). False while that node does not run."""
        if node_id == self.node_id:
            return self.is_offline(topic, index)
        replicas = self._peers(node_id) if self._peers is not None else None
        return replicas is not None and replicas.is_offline(topic, index)

    def opened(self) -> Iterator[Partition]:
        """The partitions that are open, that is, were accessed since the start."""
        return iter(tuple(self._partitions.values()))

    def unopened(self) -> list[PartitionKey]:
        """Keys of all partitions of the cluster that are not open on this node, with or without a directory."""
        return [
            (topic.name, state.index)
            for topic in self._metadata.topics.values()
            for state in topic.partitions
            if (topic.name, state.index) not in self._partitions
        ]

    def open_existing(self, topic: str, index: int) -> None:
        """Open a partition if it exists and has a directory, so that retention checks its segments."""
        if self.directory.partition_path(topic, index).is_dir():
            self.get(topic, index)

    def add_listener(self, listener: PartitionListener[Partition]) -> None:
        """Add a partition listener, and call its ``opened`` for the partitions that are already open."""
        self._listeners.members.append(listener)
        for partition in self.opened():
            if partition.offline is None:
                listener.opened(partition)

    # -- opening ------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Delete directories marked for deletion.

        After a crash, also open and recover every log before clients are served.
        """
        self._logs.delete_marked()
        unknown: dict[str, list[int]] = {}
        for key, _ in self.directory.partition_directories():
            if self._known(*key) is None:
                unknown.setdefault(key[0], []).append(key[1])
            elif not self._logs.was_clean:
                self._open_known(*key)
        log_unknown(self.directory.path, unknown)

    def _known(self, topic: str, index: int) -> tuple[Topic, PartitionState] | None:
        """Topic and state of a partition in the cluster metadata; None if this node has no replica of it."""
        known = self._metadata.topic(topic)
        state = known.partition(index) if known is not None else None
        return (
            None if known is None or state is None or self.node_id not in state.replicas else (known, state)
        )

    def _open_known(self, topic: str, index: int) -> Partition | None:
        """Open the partition if this node has a replica of it. Returns None also if the node dies while opening it."""
        known = self._known(topic, index) if self._life.alive else None
        if known is None:
            return None  # if this node is dead, its next life opens the files
        partition = self._open(*known)
        self._partitions[topic, index] = partition
        if partition.offline is None:
            self._listeners.opened(partition)
            partition.notify_unflushed()
        if self._roles is not None:
            self._roles.assume(partition, at_once=True)
        return partition if self._life.alive else None

    def _open(self, topic: Topic, state: PartitionState) -> Partition:
        high_watermark = self._checkpointed(topic.name, state)
        log, offline = self._logs.open(topic, state.index, high_watermark)
        partition = Partition(
            topic.name,
            state,
            log,
            self._clock,
            verification_enabled=self._verification_enabled,
            requires_first_sequence_0=KAFKA_15591 in self._config.preview,
            flush=self._flushing.flush,
            listener=self._listeners,
            node_id=self.node_id,
            injection=self._injection,
            high_watermark=high_watermark,
        )
        partition.offline = offline
        log.on_roll = lambda _: self._listeners.rolled(partition)
        if offline is None and (state.leader == self.node_id or self._roles is None):
            log.assign_epoch(state.leader_epoch)
        return partition

    def _checkpointed(self, topic: str, state: PartitionState) -> int | None:
        """Checkpointed high watermark; None for a partition with one replica, of which all records are committed."""
        if len(state.replicas) == 1:
            return None
        return self._logs.checkpoints.high_watermark((topic, state.index))

    def _verification_enabled(self) -> bool:
        return self._config.transaction_partition_verification_enable

    # -- metadata changes ---------------------------------------------------------------------------------------

    # New topics and partitions need no callback: a partition is opened at its first access.

    def on_leader_changed(self, topic: Topic, state: PartitionState) -> None:
        """Apply a change of leader, leader epoch, replicas or ISR in the metadata to the partition."""
        if not self._life.alive:
            return
        key = (topic.name, state.index)
        partition = self._partitions.get(key)
        if partition is None:
            if self._must_catch_up(state):
                self._clock.call_later_ms(0, partial(self.get, *key), Domain.REPLICATION)
            return
        if self._roles is not None and self.node_id not in state.replicas:
            self._remove_reassigned(topic, state, partition)
            return
        partition.apply_state(state)
        if state.leader != self.node_id:
            partition.fail_waiting(ErrorCode.not_leader_or_follower)
        elif partition.offline is None:
            partition.log.assign_epoch(state.leader_epoch)
        if self._roles is not None:
            self._roles.assume(partition, at_once=False)

    def _must_catch_up(self, state: PartitionState) -> bool:
        """Whether this node has a replica that is not in the ISR, and another node leads. The log is then opened,
        and the replica fetches from the leader, before any request needs the partition."""
        return (
            self._roles is not None
            and self.node_id in state.replicas
            and self.node_id not in state.isr
            and state.leader not in (NO_LEADER, self.node_id)
        )

    def _remove_reassigned(self, topic: Topic, state: PartitionState, partition: Partition) -> None:
        """Remove a partition that was reassigned to other nodes; its files are deleted like those of a deleted topic."""
        del self._partitions[topic.name, state.index]
        self._remove(topic, state.index, partition, ErrorCode.not_leader_or_follower)

    def on_config_changed(self, resource_type: int, resource_name: str) -> None:
        topic = self._metadata.topic(resource_name) if resource_type == TOPIC_RESOURCE else None
        if topic is not None:
            self._configure(topic)

    def reconfigure(self) -> None:
        """Apply changed broker settings to the logs of topics that do not override them."""
        for topic in self._metadata.topics.values():
            self._configure(topic)
        self._listeners.reconfigured()

    def _configure(self, topic: Topic) -> None:
        config = self._logs.log_config(topic)
        for state in topic.partitions:
            partition = self._partitions.get((topic.name, state.index))
            if partition is not None:
                partition.log.config = config
                if partition.offline is None:
                    self._listeners.configured(partition)

    def on_topic_deleted(self, topic: Topic) -> None:
        """Remove the partitions and rename their directories; the files are deleted after ``file.delete.delay.ms``."""
        if not self._life.alive:
            return
        for state in topic.partitions:
            partition = self._partitions.pop((topic.name, state.index), None)
            self._remove(topic, state.index, partition, ErrorCode.unknown_topic_or_partition)

    def _remove(self, topic: Topic, index: int, partition: Partition | None, error: ErrorCode) -> None:
        if partition is not None:
            self._listeners.removed(partition)
            if self._roles is not None:
                self._roles.release(partition)
            partition.stop_leading(error)
            partition.close()
        self._logs.delete(topic, index)

    # -- durability ---------------------------------------------------------------------------------------------

    def in_background(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run blocking work in a thread. `close` and `await_termination` wait for it.

        If the node is dead, nothing is run, and the returned future is cancelled.
        """
        loop = asyncio.get_running_loop()
        if not self._life.alive:
            nothing: asyncio.Future[T] = loop.create_future()
            nothing.cancel()
            return nothing
        future = loop.run_in_executor(None, work)
        self._background.add(future)
        self._clock.wait_for(future)
        future.add_done_callback(self._background.discard)
        return future

    def start_timers(self) -> None:
        """Start the partition listeners (such as flushing), and open the partitions that must catch up."""
        self._listeners.start()
        self._catch_up()

    def _catch_up(self) -> None:
        """Open and follow the partitions on which this node fell behind while it was not running."""
        if self._roles is None:
            return
        self._roles.look_again()
        for topic in self._metadata.topics.values():
            for state in topic.partitions:
                if self._must_catch_up(state):
                    self.get(topic.name, state.index)

    def abandon(self) -> None:
        """Release everything when the node is killed: close the files, fail waiting requests, and write nothing."""
        self._life.end()
        self._stop()
        self._listeners.abandon()
        for partition in self._partitions.values():
            partition.stop_leading(ErrorCode.not_leader_or_follower)
            partition.close()
        self._partitions.clear()

    async def await_termination(self) -> None:
        """Return when no thread of a killed node uses its files any more. The node's next life may open them then."""
        await self._listeners.close()
        while self._background:
            await asyncio.wait(self._background)

    def _stop(self) -> None:
        if self._roles is not None:
            self._roles.end()

    async def close(self, *, clean: bool) -> bool:
        """Close every log. With ``clean``, also flush, write the checkpoints, and create missing directories.

        Returns whether the stop was clean. It is not clean if a log is offline or the node is killed meanwhile;
        the next start then recovers all logs.
        """
        self._stop()
        await self._listeners.close()
        while self._background:
            await asyncio.wait(self._background)
        if clean and self._life.alive:
            self._create_missing()
            await seal_all(self._partitions.values(), self._life)
        if not self._life.alive:
            return False
        for partition in self._partitions.values():
            if partition.offline is None:
                try:
                    partition.log.close(clean=clean)
                except StorageError as error:
                    partition.go_offline(error)
        if not clean:
            return False
        try:
            self._flushing.write_all(self._partitions.values())
        except StorageError as error:
            log_events.error("checkpoints could not be written", file=error.path, reason=str(error))
            return False
        return all(partition.offline is None for partition in self._partitions.values())

    def _create_missing(self) -> None:
        """Create the directories of partitions that were never written. Other unopened partitions have complete files."""
        now_ms = self._clock.now_ms()
        existing = {key for key, _ in self.directory.partition_directories()}
        for topic in self._metadata.topics.values():
            for state in topic.partitions:
                key = (topic.name, state.index)
                if key in existing and key not in self._partitions:
                    continue
                partition = self.get(*key)
                if partition is None or partition.offline is not None:
                    continue
                try:
                    partition.log.create(now_ms)
                except StorageError as error:
                    partition.go_offline(error)
