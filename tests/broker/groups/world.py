"""A small node: real partitions over logs in memory, the real coordinator and handlers, and a manual clock.

Requests and responses go through the codec of their version, so a handler sees only what a client can send.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

from broker.clock import Domain
from broker.config import broker_config
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.coordinator import GroupCoordinator
from broker.groups.group import ClassicGroup
from broker.groups.share.group import ShareGroup
from broker.injection.points import FaultInjection
from broker.loop.coroutines import Waiter, start
from broker.loop.life import NodeLife
from broker.loop.slices import Slices
from broker.metadata.listeners import MetadataListener
from broker.metadata.topics import CONSUMER_OFFSETS
from broker.metadata.values import BrokerRegistration, PartitionState, Topic
from broker.node.context import RequestContext
from broker.replicas.partition import AppendResult, Partition, TimestampOffset
from broker.requests.api import APIS, discover
from broker.share.state import Initialization, Outcome, StoredState
from protocol.batch import EndTxnMarker, RecordBatch, patched_header
from protocol.codec import client_codec, request_codec
from protocol.errors import ErrorCode
from protocol.records.consumer_protocol import Subscription
from storage.config import LogConfig
from storage.producers import ProducerStateManager
from tests.support.clock import FakeClock

NODE_ID = 1
KEYS = {
    "offset_commit": 8,
    "offset_fetch": 9,
    "join_group": 11,
    "heartbeat": 12,
    "leave_group": 13,
    "sync_group": 14,
    "describe_groups": 15,
    "list_groups": 16,
    "consumer_group_describe": 69,
    "consumer_group_heartbeat": 68,
    "share_group_heartbeat": 76,
    "share_group_describe": 77,
    "describe_share_group_offsets": 90,
    "alter_share_group_offsets": 91,
    "delete_share_group_offsets": 92,
    "delete_groups": 42,
    "offset_delete": 47,
}


class MemoryLog:
    """A log in memory, with the methods of ``Log`` that a partition and a loader use."""

    def __init__(self, topic_id: uuid.UUID) -> None:
        self.topic_id = topic_id
        self.config = LogConfig()
        self.producers = ProducerStateManager()
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.flushed_offset = 0
        self.is_closed = False
        self._batches: list[bytes] = []

    def append_data(self, batch: RecordBatch, leader_epoch: int, now_ms: int, timestamp_ms: int) -> int:
        base_offset = self.log_end_offset
        data = bytes(batch.data)
        header = patched_header(data, base_offset, leader_epoch)
        self._batches.append(header + data[len(header) :])
        self.log_end_offset = base_offset + batch.last_offset_delta + 1
        return base_offset

    def append_marker(self, batch: RecordBatch, marker: EndTxnMarker, leader_epoch: int, now_ms: int) -> int:
        return self.append_data(batch, leader_epoch, now_ms, batch.max_timestamp)

    def sound_batches(self, offset: int) -> Iterator[RecordBatch]:
        return self.batches(offset)

    def batches(self, offset: int | None = None) -> Iterator[RecordBatch]:
        for data in list(self._batches):
            batch = RecordBatch.parse(data)
            if batch.last_offset >= (offset or 0):
                yield batch


class MemoryPartition(Partition):
    """A partition. ``hold`` keeps appends from being committed until ``release``, ``refuse`` makes them fail."""

    def __init__(self, index: int, topic_id: uuid.UUID, clock: FakeClock) -> None:
        self.hold = False
        self.refuse = ErrorCode.none
        super().__init__(
            CONSUMER_OFFSETS,
            PartitionState(index, (NODE_ID,), (NODE_ID,), NODE_ID, 0, 0),
            MemoryLog(topic_id),  # type: ignore[arg-type]
            clock,
            node_id=NODE_ID,
        )

    def append_internal(self, records: bytes, *options: Any) -> AppendResult:
        if self.refuse is not ErrorCode.none:
            return AppendResult(self.refuse)
        return super().append_internal(records, *options)

    def advance_high_watermark(self) -> None:
        if not self.hold:
            super().advance_high_watermark()

    def release(self) -> None:
        self.hold = False
        self.advance_high_watermark()


class FakeMetadata:
    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.brokers: dict[int, BrokerRegistration] = {}
        self.image = SimpleNamespace(configs={}, offset=0)
        self.features = {"group.version": 1, "share.version": 2}
        self.listeners: list[MetadataListener] = []

    def add(self, name: str, partitions: int) -> Topic:
        states = [PartitionState(index, (NODE_ID,), (NODE_ID,), NODE_ID, 0, 0) for index in range(partitions)]
        topic = self.topics[name] = Topic(name, uuid.uuid5(uuid.NAMESPACE_DNS, name), states)
        return topic

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: uuid.UUID | None) -> Topic | None:
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)

    def subscribe(self, listener: MetadataListener) -> None:
        self.listeners.append(listener)

    def grow(self, name: str, partitions: int) -> None:
        """Create a topic with this number of partitions; if the topic exists, add partitions up to this number."""
        topic = self.topics.get(name)
        self.image.offset += 1
        if topic is None:
            topic = self.add(name, partitions)
            for listener in self.listeners:
                listener.on_topic_created(topic)
            return
        first_new = len(topic.partitions)
        topic.partitions += (
            PartitionState(index, (NODE_ID,), (NODE_ID,), NODE_ID, 0, 0)
            for index in range(first_new, partitions)
        )
        for listener in self.listeners:
            listener.on_partitions_added(topic, first_new)

    def remove(self, name: str) -> None:
        topic = self.topics.pop(name)
        self.image.offset += 1
        for listener in self.listeners:
            listener.on_topic_deleted(topic)


class FakeReplicas:
    node_id = NODE_ID

    def __init__(self, partitions: dict[int, MemoryPartition]) -> None:
        self.partitions = partitions
        self.ends: dict[tuple[str, int], int | ErrorCode] = {}
        """Latest offset of each partition of another topic, or the error of the partition."""

    def opened_leader(self, topic: str, index: int) -> Partition | None:
        partition = self.leader(topic, index)
        return partition if isinstance(partition, Partition) else None

    def leader(self, topic: str, index: int) -> Any:
        if topic != CONSUMER_OFFSETS:
            end = self.ends.get((topic, index), 0)
            if isinstance(end, ErrorCode):
                return end
            return SimpleNamespace(latest=lambda **_: TimestampOffset(ErrorCode.none, end))
        partition = self.partitions.get(index)
        if partition is None:
            return ErrorCode.unknown_topic_or_partition
        return partition if partition.leader_id == NODE_ID else ErrorCode.not_leader_or_follower


class FakePersister:
    """Share coordinators in memory. ``error`` is the outcome of every request, ``hold`` delays responses."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, uuid.UUID, int], StoredState] = {}
        self.initialized: list[Initialization] = []
        self.error = ErrorCode.none
        self.is_held = False
        self._held: list[Waiter[None]] = []

    def hold(self) -> None:
        self.is_held = True

    def release(self) -> None:
        self.is_held = False
        while self._held:
            self._held.pop(0).wake(None)

    async def _may_answer(self) -> None:
        if self.is_held:
            self._held.append(Waiter())
            await self._held[-1]

    async def initialize(self, group_id: str, partitions: Sequence[Initialization]) -> list[Outcome]:
        await self._may_answer()
        if self.error is ErrorCode.none:
            self.initialized += partitions
            for topic_id, index, epoch, offset in partitions:
                count = -1 if offset == -1 else 0
                self.states[group_id, topic_id, index] = StoredState(epoch, 0, offset, count)
        return [Outcome(self.error) for _ in partitions]

    async def delete(self, group_id: str, partitions: Sequence[tuple[uuid.UUID, int]]) -> list[Outcome]:
        await self._may_answer()
        for spot in partitions if self.error is ErrorCode.none else ():
            self.states.pop((group_id, *spot), None)
        return [Outcome(self.error) for _ in partitions]

    async def summaries(
        self, group_id: str, partitions: Sequence[tuple[uuid.UUID, int, int]]
    ) -> list[tuple[Outcome, StoredState]]:
        await self._may_answer()
        return [
            (Outcome(self.error), self.states.get((group_id, topic_id, index), StoredState()))
            for topic_id, index, _ in partitions
        ]


class World:
    """One broker with an offsets topic, and a client that calls its handlers."""

    def __init__(self, *, offsets_partitions: int = 1, **settings: Any) -> None:
        discover()
        self.clock = FakeClock(only=Domain.GROUPS)
        self.config = SimpleNamespace(
            **{
                "group_consumer_assignment_interval_ms": 0,
                "group_consumer_assignors": ("uniform", "range"),
                "group_consumer_heartbeat_interval_ms": 5_000,
                "group_consumer_max_size": 2**31 - 1,
                "group_consumer_migration_policy": "bidirectional",
                "group_consumer_regex_refresh_interval_ms": 600_000,
                "group_consumer_session_timeout_ms": 45_000,
                "group_coordinator_rebalance_protocols": ("classic", "consumer", "streams"),
                "group_initial_rebalance_delay_ms": 0,
                "group_min_session_timeout_ms": 6_000,
                "group_max_session_timeout_ms": 1_800_000,
                "group_max_size": 2**31 - 1,
                "group_share_assignment_interval_ms": 1_000,
                "group_share_assignors": ("simple",),
                "group_share_delivery_count_limit": 5,
                "group_share_heartbeat_interval_ms": 5_000,
                "group_share_initialize_retry_interval_ms": 30_000,
                "group_share_max_size": 200,
                "group_share_partition_max_record_locks": 2_000,
                "group_share_record_lock_duration_ms": 30_000,
                "group_share_session_timeout_ms": 45_000,
                "offset_metadata_max_bytes": 4_096,
                "offsets_commit_timeout_ms": 5_000,
                "offsets_retention_check_interval_ms": 600_000,
                "offsets_retention_minutes": 10_080,
                "offsets_topic_compression_codec": 0,
                "offsets_topic_num_partitions": 50,
                "values": broker_config().values,
            }
            | settings
        )
        self.persister = FakePersister()
        self.metadata = FakeMetadata()
        self.topic = self.metadata.add("t", 3)
        offsets = self.metadata.add(CONSUMER_OFFSETS, offsets_partitions)
        self.partitions = {
            index: MemoryPartition(index, offsets.topic_id, self.clock) for index in range(offsets_partitions)
        }
        self.replicas = FakeReplicas(self.partitions)
        self.node: Any = SimpleNamespace(
            node_id=NODE_ID,
            config=self.config,
            clock=self.clock,
            replicas=self.replicas,
            peers=None,
            metadata=self.metadata,
            slices=Slices(),
            authorizer=SimpleNamespace(authorize=lambda principal, host, *what: what not in self.denied),
        )
        self.denied: set[tuple[str, str, str]] = set()
        self._uuids = count(1)
        self.injection = FaultInjection()
        self.restart()

    def restart(self) -> None:
        """Start the node again: only the logs keep their content."""
        self.metadata.listeners.clear()
        self.node.life = self.life = NodeLife()
        self.node.groups = self.groups = GroupCoordinator(
            self.config,  # type: ignore[arg-type]
            self.clock,
            self.metadata,  # type: ignore[arg-type]
            self.replicas,  # type: ignore[arg-type]
            lambda: f"u{next(self._uuids)}",
            injection=self.injection,
            life=self.life,
            persister=self.persister,  # type: ignore[arg-type]
        )
        self.groups.start()

    def kill(self) -> None:
        """End the node's life without a clean shutdown: no coroutine of its coordinator is resumed any more."""
        self.life.end()
        self.groups.abandon()

    @property
    def partition(self) -> MemoryPartition:
        return self.partitions[0]

    def classic_group(self, group_id: str) -> ClassicGroup:
        group = self.groups.find(group_id)
        assert isinstance(group, ClassicGroup)
        return group

    def consumer_group(self, group_id: str) -> ConsumerGroup:
        group = self.groups.find(group_id)
        assert isinstance(group, ConsumerGroup)
        return group

    def share_group(self, group_id: str) -> ShareGroup:
        return self.groups.share_groups.find(group_id)

    def all_groups(self) -> list[ClassicGroup | ConsumerGroup | ShareGroup]:
        groups = self.groups.all_groups()
        assert not isinstance(groups, ErrorCode)
        return groups

    # -- a client -----------------------------------------------------------------------------------------------

    def ask(self, api: str, version: int, **fields: Any) -> Any:
        """Send a request through the codec of its version. Returns the response, or an awaitable of it."""
        key = KEYS[api]
        client, server = client_codec(key, version), request_codec(key, version)
        message = __import__(f"protocol.messages.{api}", fromlist=["*"])
        request = getattr(message, "".join(part.capitalize() for part in api.split("_")) + "Request")(
            **fields
        )
        frame = b"".join(bytes(chunk) for chunk in client.encode(request))
        context = RequestContext(
            node=self.node,
            listener=None,  # type: ignore[arg-type]
            api_key=key,
            api_version=version,
            client_id="client",
            peer="/127.0.0.1",
        )
        outcome = self.start(APIS[key].handler(server.decode(frame, 0), context))

        def seen_by_client(response: Any) -> Any:
            return client.decode(b"".join(bytes(chunk) for chunk in server.encode(response)), 0)

        if isinstance(outcome, Awaitable):
            return asyncio.ensure_future(_map(outcome, seen_by_client))
        return seen_by_client(outcome)

    def start(self, outcome: Any) -> Any:
        """Run what a handler returned, as a connection does: return a response as it is, and start a coroutine.
        Returns the coroutine's value, or a future if the coroutine waits."""
        return start(outcome, self.life) if isinstance(outcome, Coroutine) else outcome

    # -- short forms --------------------------------------------------------------------------------------------

    def join(self, member_id: str = "", *, version: int = 5, group: str = "g", **changes: Any) -> Any:
        fields: dict[str, Any] = {
            "group_id": group,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": [offer("range", subscription("t"))],
        }
        if version < 1:
            del fields["rebalance_timeout_ms"]
        return self.ask("join_group", version, **fields | changes)

    async def member(self, *, group: str = "g", version: int = 5, **changes: Any) -> str:
        """Make a Stable group with one member, and return the member's id."""
        first = self.join(group=group, version=version, **changes)
        joining = (
            first
            if isinstance(first, Awaitable)
            else self.join(first.member_id, group=group, version=version, **changes)
        )
        self.clock.advance(self.config.group_initial_rebalance_delay_ms)
        answer = await joining
        assert answer.error_code == 0
        await settled(
            self.sync(
                answer.member_id, {answer.member_id: b"all"}, group=group, generation=answer.generation_id
            )
        )
        return answer.member_id

    def sync(
        self,
        member_id: str,
        given: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        generation: int = 1,
        version: int = 3,
        **changes: Any,
    ) -> Any:
        from protocol.messages.sync_group import SyncGroupRequestAssignment as Assignment

        assignments = [Assignment(member_id=each, assignment=data) for each, data in (given or {}).items()]
        fields = {
            "group_id": group,
            "generation_id": generation,
            "member_id": member_id,
            "assignments": assignments,
        }
        return self.ask("sync_group", version, **fields | changes)

    def heartbeat(
        self, member_id: str, generation: int = 1, *, group: str = "g", version: int = 3
    ) -> ErrorCode:
        answer = self.ask("heartbeat", version, group_id=group, generation_id=generation, member_id=member_id)
        return ErrorCode(answer.error_code)

    def commit(
        self, offset: int, *, version: int = 8, group: str = "g", partition: int = 0, **changes: Any
    ) -> Any:
        """Commit an offset. Returns the error code of the one partition, or an awaitable of it."""
        from protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic

        metadata = changes.pop("metadata", "")
        rows = [
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=metadata
            )
        ]
        named = {"topic_id": self.topic.topic_id} if version >= 10 else {"name": changes.pop("topic", "t")}
        topics = [OffsetCommitRequestTopic(**named, partitions=rows)]
        outcome = self.ask("offset_commit", version, **{"group_id": group, "topics": topics} | changes)
        if isinstance(outcome, Awaitable):
            return asyncio.ensure_future(_map(outcome, _only_error))
        return _only_error(outcome)

    def fetch(self, *, group: str = "g", version: int = 7, stable: bool = False, partition: int = 0) -> Any:
        """Fetch a committed offset. Returns (offset, error code) of the one partition, or an awaitable of it."""
        from protocol.messages.offset_fetch import OffsetFetchRequestTopic

        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[partition])]
        fields = {"group_id": group, "topics": topics} | ({"require_stable": True} if stable else {})
        outcome = self.ask("offset_fetch", version, **fields)
        if isinstance(outcome, Awaitable):
            return asyncio.ensure_future(_map(outcome, _only_offset))
        return _only_offset(outcome)

    def marker(self, producer_id: int, committed: bool, *, partition: int = 0) -> None:
        """Write a marker as the transaction coordinator does, and wait until it is committed."""
        where = self.partitions[partition]
        result = where.append_marker(producer_id, 0, EndTxnMarker(committed, 0), 0)
        assert result.error is ErrorCode.none

        def told(error: ErrorCode) -> None:
            assert error is ErrorCode.none
            self.groups.on_marker(partition, producer_id, 0, committed, result.base_offset)

        where.on_committed(result.last_offset + 1, told)


def offer(name: str, metadata: bytes) -> Any:
    from protocol.messages.join_group import JoinGroupRequestProtocol

    return JoinGroupRequestProtocol(name=name, metadata=metadata)


def subscription(*topics: str) -> bytes:
    return Subscription(topics=topics).encode(0)


def _only_error(response: Any) -> ErrorCode:
    ((partition,),) = [topic.partitions for topic in response.topics]
    return ErrorCode(partition.error_code)


def _only_offset(response: Any) -> tuple[int, ErrorCode]:
    if response.error_code:
        return -1, ErrorCode(response.error_code)
    ((partition,),) = [topic.partitions for topic in response.topics]
    return partition.committed_offset, ErrorCode(partition.error_code)


async def _map(awaitable: Awaitable[Any], function: Callable[[Any], Any]) -> Any:
    return function(await awaitable)


async def settled(outcome: Any) -> Any:
    return await outcome if isinstance(outcome, Awaitable) else outcome


async def turn() -> None:
    """Run everything that is ready on the event loop."""
    for _ in range(5):
        await asyncio.sleep(0)
