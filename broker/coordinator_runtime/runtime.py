"""The shards of a coordinator: one for each partition of its topic that this node leads.

Kafka's ``CoordinatorRuntime``: a shard is loaded when the node comes to lead its partition, a long log in several turns of
the loop; its requests are answered COORDINATOR_LOAD_IN_PROGRESS until then. It is unloaded when the leadership goes.
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
    from broker.replicas.manager import ReplicaManager

S = TypeVar("S", bound=CoordinatorShard)

log_events = get_logger()


class CoordinatorRuntime(Generic[S]):
    """By partition."""

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
        """``loaded`` is called with each shard once its log has been read and it serves requests.

        A shard that ``may_load`` refuses is never loaded: its requests get COORDINATOR_LOAD_IN_PROGRESS.
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

    # -- finding ------------------------------------------------------------------------------------------------

    def find(self, index: int, *, at_once: bool = False) -> S | ErrorCode:
        """The shard of a partition that is led here, ready to work, or the error that a client gets.

        One that this node has come to lead is loaded now: a long log in several turns of the loop, or ``at_once``.
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
        """The shard of a partition if it is loaded, and nothing is done about it if it is not."""
        shard = self._shards.get(index)
        return None if shard is None or shard.is_loading else shard

    def items(self) -> list[tuple[int, S]]:
        """All shards, also those that are being loaded."""
        return list(self._shards.items())

    def all(self) -> list[S]:
        """Their shards alone."""
        return list(self._shards.values())

    def open(self) -> list[S]:
        """The shards that serve requests."""
        return [shard for shard in self._shards.values() if not shard.is_loading and shard.is_current()]

    # -- loading and unloading ----------------------------------------------------------------------------------

    def on_leader_elected(self, index: int, leader: int) -> None:
        """The leader of a partition, or its epoch, may be new."""
        if leader == self._replicas.node_id or index in self._shards:
            self.find(index)

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
        """A log that cannot be read takes its partition offline, and the shard stays shut."""
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
        """This node leads the partition no more: requests that wait there fail with ``error``."""
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.unload(error)

    def unload_all(self) -> None:
        """The topic was deleted."""
        for index in tuple(self._shards):
            self.unload(index)

    def close(self) -> None:
        """The node stops: requests that wait get a response."""
        self.serving.ended = True
        self.unload_all()

    def abandon(self) -> None:
        """The node is killed: requests that wait get none."""
        self.serving.ended = True
        for shard in self._shards.values():
            shard.abandon()
        self._shards.clear()
