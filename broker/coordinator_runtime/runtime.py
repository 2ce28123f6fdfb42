"""The shards of a coordinator: one for each partition of its topic that this node leads.

The counterpart of Kafka's ``CoordinatorRuntime``. A shard is loaded when the node becomes leader of its partition: a long
log takes several turns of the event loop. Until then requests get COORDINATOR_LOAD_IN_PROGRESS. The shard is unloaded when
the leadership ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from broker.clock import Clock, Domain
from broker.clock.sleeping import sleep_ms
from broker.coordinator_runtime.serving import ServingShards
from broker.coordinator_runtime.shard import CoordinatorShard, verdict_at
from broker.injection.points import FaultInjection, InjectionPoint
from broker.logging import get_logger
from broker.loop.coroutines import start_in_background
from broker.replicas.partition import Partition
from protocol.errors import NONE, ErrorCode
from storage.files import StorageError

if TYPE_CHECKING:
    from broker.loop.life import NodeLife
    from broker.metadata.values import PartitionState, Topic
    from broker.replicas.manager import ReplicaManager

S = TypeVar("S", bound=CoordinatorShard)

log_events = get_logger()


class CoordinatorRuntime(Generic[S]):
    """The shards of one coordinator, by partition index. Loads, finds and unloads them."""

    def __init__(
        self,
        topic: str,
        replicas: ReplicaManager,
        clock: Clock,
        life: NodeLife,
        injection: FaultInjection,
        new_shard: Callable[[Partition], S],
        loaded: Callable[[S], object],
        may_load: Callable[[], bool] = lambda: True,
    ) -> None:
        """``loaded`` is called with each shard after its log has been read and before it serves requests.

        While ``may_load`` returns False no shard is loaded: requests get COORDINATOR_LOAD_IN_PROGRESS.
        """
        self._topic = topic
        self._replicas = replicas
        self._clock = clock
        self._life = life
        self._injection = injection
        self._new_shard = new_shard
        self._loaded = loaded
        self._may_load = may_load
        self.serving = ServingShards(topic, replicas)
        self._shards = cast("dict[int, S]", self.serving.by_partition)

    # -- lookup -------------------------------------------------------------------------------------------------

    def find(self, index: int, *, at_once: bool = False) -> S | ErrorCode:
        """Return the shard of a partition if this node leads it and has loaded it, otherwise the error for the client.

        If the node has just become the leader, the load starts now: it takes several turns of the event loop, or with
        ``at_once`` it ends before this call returns.
        """
        if self.serving.ended:
            return ErrorCode.not_coordinator
        known = self.serving.find(index)
        if known is not None:
            return cast("S", known)
        partition = self._replicas.leader(self._topic, index)
        if not isinstance(partition, Partition):
            self.unload(index)
            return ErrorCode.not_coordinator
        shard = self._shards.get(index)
        if shard is None or shard.partition is not partition or not shard.is_current():
            shard = self._load(partition, at_once=at_once)
        if shard.is_closed:
            return ErrorCode.not_coordinator  # the node was killed at ``coordinator.load``
        return shard if shard.refusal is None else shard.refusal

    def get(self, index: int) -> S | None:
        """Return the shard of a partition if it is loaded, otherwise None. Never starts a load."""
        shard = self._shards.get(index)
        return None if shard is None or shard.is_loading else shard

    def items(self) -> list[tuple[int, S]]:
        """(partition index, shard) of all shards, including those that are loading."""
        return list(self._shards.items())

    def all(self) -> list[S]:
        """All shards, including those that are loading."""
        return list(self._shards.values())

    def open(self) -> list[S]:
        """The shards that serve requests."""
        return [shard for shard in self._shards.values() if not shard.is_loading and shard.is_current()]

    # -- loading and unloading ----------------------------------------------------------------------------------

    def load_all(self, topic: Topic | None, *, at_once: bool = False) -> None:
        """Load every partition that this node leads. ``topic`` is the coordinator's topic, None if it does not exist."""
        for state in topic.partitions if topic is not None else ():
            if state.leader == self._replicas.node_id:
                self.find(state.index, at_once=at_once)

    def on_leader_changed(self, topic: Topic, partition: PartitionState) -> None:
        """Load the partition if this node has become its leader; unload it if this node is no longer the leader."""
        is_concerned = partition.leader == self._replicas.node_id or partition.index in self._shards
        if topic.name == self._topic and is_concerned:
            self.find(partition.index)

    def on_topic_deleted(self, topic: Topic) -> None:
        """Unload all shards if the coordinator's topic is deleted."""
        if topic.name == self._topic:
            self._unload_all()

    def _load(self, partition: Partition, *, at_once: bool) -> S:
        self.unload(partition.index)
        shard = self._new_shard(partition)
        self._shards[partition.index] = shard
        if not self._may_load():
            self._refuse(shard, ErrorCode.coordinator_load_in_progress)
            return shard
        start_in_background(self._read(shard, at_once=at_once), self._life)
        return shard

    async def _read(self, shard: S, *, at_once: bool) -> None:
        """Load a shard. If its log cannot be read, the partition goes offline and its requests get KAFKA_STORAGE_ERROR."""
        index = shard.partition.index
        at = InjectionPoint("coordinator.load", self._replicas.node_id, self._topic, index)
        refused = await verdict_at(self._injection, at)
        if refused is not NONE:
            self._refuse(shard, refused)
            return
        try:
            for _ in shard.load() if shard.is_current() else ():
                if not at_once:
                    await sleep_ms(self._clock, 0, Domain.REQUESTS)
                if not shard.is_current():
                    return
        except StorageError as error:
            shard.partition.go_offline(error)
            self._refuse(shard, ErrorCode.kafka_storage_error)
            return
        if shard.is_current():
            shard.refusal = None
            shard.loaded()
            self._loaded(shard)

    def _refuse(self, shard: S, error: ErrorCode) -> None:
        shard.refusal = shard.client_error(error)
        log_events.warning(
            "coordinator partition not loaded",
            topic=self._topic,
            partition=shard.partition.index,
            error=error.name,
        )

    def unload(self, index: int, error: ErrorCode = ErrorCode.not_coordinator) -> None:
        """Remove a shard, because this node no longer leads the partition; waiting requests fail with ``error``."""
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.unload(error)

    def _unload_all(self) -> None:
        for index in tuple(self._shards):
            self.unload(index)

    def close(self) -> None:
        """Unload all shards, because the node stops: waiting requests get an error response."""
        self.serving.ended = True
        self._unload_all()

    def abandon(self) -> None:
        """Close all shards, because the node was killed: waiting requests get no response."""
        self.serving.ended = True
        for shard in self._shards.values():
            shard.abandon()
        self._shards.clear()
