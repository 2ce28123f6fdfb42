"""The share coordinator of one node: handles the five requests to it. Kafka's ``ShareCoordinatorService``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from broker.clock import Clock, Domain, Periodic
from broker.coordinator_runtime.runtime import CoordinatorRuntime
from broker.injection.points import FaultInjection, InjectionPoint
from broker.loop.coroutines import Waiter, fork, start_in_background
from broker.loop.life import NodeLife
from broker.metadata.features import SHARE_VERSION
from broker.metadata.internal_topics import coordinator_partitions
from broker.metadata.listeners import MetadataListener
from broker.metadata.topics import SHARE_GROUP_STATE
from broker.share.coordinator.shard import ShareCoordinatorShard
from broker.share.coordinator.state import (
    Decision,
    ShareCoordinatorState,
    ShareGroupOffset,
    ShareRecord,
)
from broker.share.messages import message_of
from broker.share.state import Outcome, SharePartitionKey, StoredState
from broker.share.state_apis import DELETE, INITIALIZE, NO_TOPIC_ID, READ, SUMMARY, WRITE, ShareStateApi
from protocol.errors import NONE, ErrorCode
from protocol.hashing import partition_for

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.metadata.cluster import ClusterMetadata
    from broker.metadata.values import PartitionState, Topic
    from broker.replicas.manager import ReplicaManager

_DECIDE: Final[Mapping[ShareStateApi, Callable[..., Decision]]] = {
    INITIALIZE: ShareCoordinatorState.initialize,
    READ: ShareCoordinatorState.read,
    WRITE: ShareCoordinatorState.write,
    DELETE: ShareCoordinatorState.delete,
    SUMMARY: ShareCoordinatorState.summarize,
}


class ShareCoordinator(MetadataListener):
    """Coordinates the share partitions whose partition of ``__share_group_state`` this node leads."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        metadata: ClusterMetadata,
        replicas: ReplicaManager,
        *,
        injection: FaultInjection | None = None,
        life: NodeLife | None = None,
        partitions: int | None = None,
    ) -> None:
        """``partitions`` is the number of partitions that ``__share_group_state`` had when the node started; None: read it
        from the metadata.
        """
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._life = life or NodeLife()
        self._partitions = partitions or coordinator_partitions(SHARE_GROUP_STATE, metadata.topic, config)
        injection = injection or FaultInjection()
        self._runtime: CoordinatorRuntime[ShareCoordinatorShard] = CoordinatorRuntime(
            SHARE_GROUP_STATE,
            replicas,
            clock,
            self._life,
            injection,
            lambda partition: ShareCoordinatorShard(partition, config, clock, injection),
            lambda shard: None,
        )
        self._timers: list[Periodic] = []
        metadata.subscribe(self)

    # -- requests -----------------------------------------------------------------------------------------------

    def partition_for(self, key: str) -> int:
        """Partition of ``__share_group_state`` for a share partition, by its key ``group:topicId:partition``."""
        return partition_for(key, self._partitions)

    async def handle(self, api: ShareStateApi, request: Any) -> Any:
        """Handle a request of one of the five APIs. Return its response, once all that it reads or writes is committed."""
        topics = request.topics
        if api is INITIALIZE:
            # Kafka ignores a topic without partitions here. In the other requests such a topic makes the response empty.
            topics = [topic for topic in topics if topic.partitions]
        if not request.group_id or not all(topic.partitions for topic in topics):
            return api.response({})
        waiting: dict[UUID, dict[int, Waiter[Any]]] = {}
        for topic in topics:
            for wanted in topic.partitions:
                topic_id = topic.topic_id or NO_TOPIC_ID
                key = SharePartitionKey(request.group_id, topic_id, wanted.partition)
                # The result of the last one counts if a request names a share partition twice.
                waiting.setdefault(topic_id, {})[wanted.partition] = fork(
                    self.handle_one(api, key, wanted), self._life
                )
        return api.response(
            {topic_id: [await each for each in results.values()] for topic_id, results in waiting.items()}
        )

    async def handle_one(self, api: ShareStateApi, key: SharePartitionKey, wanted: Any) -> Any:
        """Handle the ``PartitionData`` of a request for one share partition. Return its ``PartitionResult``."""
        shard = self._runtime.find(self.partition_for(key.coordinator_key))
        if isinstance(shard, ErrorCode):
            return api.result(key.partition, _failure(api, shard))
        if shard.is_intercepted and isinstance(self._decide(shard, api, key, wanted), ShareRecord):
            error = await shard.may_append(self._step(shard.leader_id, key, wanted))
            if error is not NONE:
                return api.result(key.partition, _failure(api, error))
        known = shard.state.offsets.get(key)
        decided = self._decide(shard, api, key, wanted)
        if isinstance(decided, Outcome) and decided.error is not NONE:
            return api.result(key.partition, decided)
        error = await shard.write([decided] if isinstance(decided, ShareRecord) else [])
        if error is not NONE:
            return api.result(key.partition, _failure(api, error))
        stored = StoredState() if known is None else known.stored
        return api.result(key.partition, Outcome(NONE), **_fields(api, stored))

    def _decide(
        self, shard: ShareCoordinatorShard, api: ShareStateApi, key: SharePartitionKey, wanted: Any
    ) -> Decision:
        topic = self._metadata.topic_by_id(key.topic_id)
        exists = topic is not None and key.partition < len(topic.partitions)
        return _DECIDE[api](shard.state, key, wanted, self._clock.now_ms(), exists=exists)

    def _step(self, node_id: int, key: SharePartitionKey, wanted: Any) -> InjectionPoint:
        topic = self._metadata.topic_by_id(key.topic_id)
        return InjectionPoint(
            "share.append",
            node_id,
            topic.name if topic is not None else "",
            key.partition,
            group_id=key.group_id,
            offsets=tuple(
                (each.first_offset, each.last_offset) for each in getattr(wanted, "state_batches", ())
            ),
        )

    # -- start, stop, metadata changes --------------------------------------------------------------------------

    def start(self) -> None:
        """Load every partition that this node leads, and start the periodic jobs."""
        self._runtime.load_all(self._metadata.topic(SHARE_GROUP_STATE))
        self.start_timers()

    def start_timers(self) -> None:
        """Start the periodic jobs. If ``__share_group_state`` does not exist yet, there is nothing else to start."""
        clock, config = self._clock, self._config
        prune_ms = config.share_coordinator_state_topic_prune_interval_ms
        cold_ms = config.share_coordinator_cold_partition_snapshot_interval_ms
        self._timers = [
            Periodic(clock, prune_ms, self._prune, Domain.GROUPS, self._next_prune_ms),
            Periodic(clock, cold_ms, self._snapshot_cold, Domain.GROUPS, self._next_cold_ms),
        ]

    def on_leader_changed(self, topic: Topic, partition: PartitionState) -> None:
        self._runtime.on_leader_changed(topic, partition)

    def on_topic_deleted(self, topic: Topic) -> None:
        """Delete the states of a deleted topic. If the topic is ``__share_group_state``, unload all shards."""
        self._runtime.on_topic_deleted(topic)
        for shard in self._runtime.open():
            tombstones = shard.state.of_topic(topic.topic_id)
            if tombstones:
                start_in_background(shard.write(tombstones), self._life)

    def close(self) -> None:
        """Cancel the timers, and respond to waiting requests with an error, because the node stops."""
        self._end_timers()
        self._runtime.close()

    def abandon(self) -> None:
        """Cancel the timers, and neither respond nor write any more, because the node was killed."""
        self._end_timers()
        self._runtime.abandon()

    def _end_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()

    # -- periodic jobs ------------------------------------------------------------------------------------------

    def _busy(self) -> list[ShareCoordinatorShard]:
        """The shards for the periodic jobs, which run only while share groups are enabled."""
        return self._runtime.open() if self._metadata.features.get(SHARE_VERSION, 0) > 0 else []

    def _prune(self) -> None:
        for shard in self._busy():
            shard.prune()

    def _next_prune_ms(self) -> int | None:
        is_due = any(
            shard.partition.log_start_offset < shard.state.deletable_offset() for shard in self._busy()
        )
        return self._clock.now_ms(Domain.GROUPS) if is_due else None

    def _is_cold(self, written_ms: int) -> bool:
        age_ms = self._clock.now_for(written_ms, Domain.GROUPS) - written_ms
        return age_ms >= self._config.share_coordinator_cold_partition_snapshot_interval_ms

    def _snapshot_cold(self) -> None:
        """Write a new snapshot of each share partition that has had none for a while, since the old ones prevent pruning."""
        for shard in self._busy():
            snapshots = shard.state.cold_snapshots(self._is_cold, self._clock.now_ms())
            if snapshots:
                start_in_background(shard.write(snapshots), self._life)

    def _next_cold_ms(self) -> int | None:
        is_due = any(not shard.state.is_cold for shard in self._busy())
        return self._clock.now_ms(Domain.GROUPS) if is_due else None

    # -- for users and tests ------------------------------------------------------------------------------------

    def known(self) -> list[tuple[SharePartitionKey, ShareGroupOffset]]:
        """The share partitions that this node coordinates, with their state."""
        return [item for shard in self._runtime.open() for item in shard.state.offsets.items()]

    def stored(self, key: SharePartitionKey) -> StoredState | None:
        """The state of a share partition; None if there is none, or if its shard is not loaded."""
        shard = self._runtime.get(self.partition_for(key.coordinator_key))
        found = None if shard is None else shard.state.offsets.get(key)
        return None if found is None else found.stored

    def memory(self) -> Mapping[int, dict[str, object]]:
        """Return the whole state by partition of the topic. A rebuild from the logs gives an equal value."""
        return {index: vars(shard.state) for index, shard in self._runtime.items() if not shard.is_loading}


def _failure(api: ShareStateApi, error: ErrorCode) -> Outcome:
    """The outcome for an error of the coordinator's own topic."""
    verb, _, rest = api.operation.partition(" ")
    return Outcome(error, f"Unable to {verb} share group {rest}: {message_of(error) or error.name}")


def _fields(api: ShareStateApi, stored: StoredState) -> dict[str, object]:
    """The fields of a result that only the two reading requests have."""
    if api is READ:
        return {
            "state_epoch": stored.state_epoch,
            "start_offset": stored.start_offset,
            "state_batches": api.state_batches(stored.batches),
        }
    if api is SUMMARY:
        return {
            "state_epoch": stored.state_epoch,
            "leader_epoch": stored.leader_epoch,
            "start_offset": stored.start_offset,
            "delivery_complete_count": stored.delivery_complete_count,
        }
    return {}
