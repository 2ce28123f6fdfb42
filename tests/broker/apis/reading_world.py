"""A node with real partitions in a temporary directory, and a manual clock."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from broker.clock import Domain
from broker.loop.life import NodeLife
from broker.loop.slices import Slices
from broker.metadata.values import BrokerRegistration, Endpoint, PartitionState, Topic
from broker.node import Listener
from broker.node.context import RequestContext
from broker.node.fetch_sessions import FetchSessionCache
from broker.replicas.partition import Partition
from protocol.batch import EndTxnMarker, RecordBatch, build_batch
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from storage.config import LogConfig
from storage.log import Log
from tests.support.clock import NOW_MS, FakeClock

NODE_ID = 1
OTHER_NODE_ID = 2


@dataclass
class World:
    """A node whose topics have real logs. A test may add an error for a partition to ``errors``."""

    path: Path
    clock: FakeClock = field(default_factory=lambda: FakeClock(only=Domain.REQUESTS))
    topics: dict[str, Topic] = field(default_factory=dict)
    partitions: dict[tuple[str, int], Partition] = field(default_factory=dict)
    errors: dict[tuple[str, int], ErrorCode] = field(default_factory=dict)
    """By (topic, partition index): the error that ``replicas.leader`` returns instead of the partition."""
    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    unauthorized: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for node_id in (NODE_ID, OTHER_NODE_ID):
            endpoint = Endpoint("PLAINTEXT", f"node-{node_id}", 9090 + node_id)
            self.brokers[node_id] = BrokerRegistration(
                node_id, 1, uuid.UUID(int=node_id), (endpoint,), rack=f"r{node_id}", fenced=False
            )
        ids = count(1000)
        self.node: Any = SimpleNamespace(
            node_id=NODE_ID,
            clock=self.clock,
            config=SimpleNamespace(fetch_max_bytes=57_671_680, fetch_gives_way=False),
            metadata=SimpleNamespace(
                topic=self.topics.get,
                topic_by_id=self._topic_by_id,
                brokers=self.brokers,
            ),
            replicas=SimpleNamespace(
                leader=self._leader, hosted=self._leader, opened_leader=self._opened_leader
            ),
            fetch_sessions=FetchSessionCache(1000, lambda: next(ids)),
            quotas=SimpleNamespace(are_set=False),
            life=NodeLife(),
            slices=Slices(),
            authorizer=SimpleNamespace(authorize=self._authorize),
        )

    def _authorize(self, principal: str, host: str, operation: str, resource_type: str, name: str) -> bool:
        return name not in self.unauthorized if resource_type == "TOPIC" else not self.unauthorized

    def _topic_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)

    def _opened_leader(self, topic: str, index: int) -> Partition | None:
        partition = self._leader(topic, index)
        return partition if isinstance(partition, Partition) and partition.offline is None else None

    def _leader(self, topic: str, index: int, client_epoch: int = -1) -> Partition | ErrorCode:
        if (error := self.errors.get((topic, index))) is not None:
            return error
        partition = self.partitions.get((topic, index))
        if partition is None:
            return ErrorCode.unknown_topic_or_partition
        error = partition.check_epoch(client_epoch)
        return partition if error is ErrorCode.none else error

    def add_topic(self, name: str, partitions: int = 1, *, epoch: int = 0, **config: Any) -> Topic:
        # A topic may be created again under the same name, with another id.
        topic = self.topics[name] = Topic(name, uuid.uuid4())
        for index in range(partitions):
            state = PartitionState(index, (NODE_ID,), (NODE_ID,), NODE_ID, epoch, 0)
            topic.partitions.append(state)
            path = self.path / f"{name}-{index}-{topic.topic_id}"
            log = Log(path, topic.topic_id, LogConfig(**config))
            self.partitions[name, index] = Partition(
                name,
                state,
                log,
                self.clock,
                verification_enabled=lambda: False,
                node_id=NODE_ID,
            )
        return topic

    def context(self, version: int, api_key: int = 1) -> RequestContext:
        listener = Listener("PLAINTEXT", "", 9092, "", 9092)
        return RequestContext(self.node, listener, api_key, version, "test", "/127.0.0.1")

    def produce(
        self,
        topic: str = "t",
        index: int = 0,
        records: int = 1,
        *,
        size: int = 10,
        timestamp_ms: int = NOW_MS,
    ) -> bytes:
        """Append one batch of a non-transactional producer and return its bytes as the log stores them."""
        return self.append(topic, index, build_batch([(timestamp_ms, b"k", b"x" * size)] * records))

    def produce_in_transaction(
        self,
        producer_id: int,
        sequence: int = 0,
        topic: str = "t",
        index: int = 0,
        *,
        timestamp_ms: int = NOW_MS,
    ) -> bytes:
        batch = build_batch(
            [(timestamp_ms, None, b"x")],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        return self.append(topic, index, batch)

    def append(self, topic: str, index: int, batch: bytes) -> bytes:
        partition = self.partitions[topic, index]
        start = partition.log_end_offset
        assert partition.append(RecordBatch.parse(batch), required_acks=1).error is ErrorCode.none
        return partition.read(start, 1 << 30, read_committed=False, whole_first_batch=True).records

    def end(self, producer_id: int, *, committed: bool, topic: str = "t", index: int = 0) -> None:
        marker = EndTxnMarker(committed, 0)
        assert self.partitions[topic, index].append_marker(producer_id, 0, marker, 1).error is ErrorCode.none

    @property
    def watchers(self) -> int:
        return sum(len(partition.delayed.watchers) for partition in self.partitions.values())


def asked(index: int = 0, offset: int = 0, max_bytes: int = 1 << 20, **more: Any) -> FetchPartition:
    return FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes, **more)


def request(*topics: tuple[Topic, list[FetchPartition]], version: int = 12, **more: Any) -> FetchRequest:
    """A Fetch request as decoded from the wire, with topic names or topic ids. By default ``max_wait_ms`` is 0."""
    named = [
        FetchTopic(topic_id=topic.topic_id, partitions=partitions)
        if version >= 13
        else FetchTopic(topic=topic.name, partitions=partitions)
        for topic, partitions in topics
    ]
    return FetchRequest(topics=named, **more)


def partitions_of(response: Any) -> dict[tuple[str, int], PartitionData]:
    return {
        (topic.topic, partition.partition_index): partition
        for topic in response.responses
        for partition in topic.partitions
    }


def bytes_of(partition: PartitionData) -> bytes:
    """The record bytes of one partition in a Fetch response. Fails if they are null."""
    records: Any = partition.records
    assert records is not None
    return bytes(records)


def size_of(partition: PartitionData) -> int:
    return len(bytes_of(partition))
