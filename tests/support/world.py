"""A node in memory: real logs, coordinators and handlers, with a fake clock and fake cluster metadata.

No socket, no event loop.

`peers` is the network between this node and `OTHER_NODE_ID` (see `tests.support.peers`). Without `peers` there is no
network.

world = World(tmp_path)
world.create("orders", partitions=2)
producer_id, epoch = world.init("tx")
world.produce("orders", 0, b"value", transactional_id="tx", producer_id=producer_id, epoch=epoch, sequence=0)
world.end("tx", producer_id, epoch, committed=True)
world.crash()  # abandons the objects and opens the directory again
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from broker.apis.add_offsets_to_txn import add_offsets_to_txn
from broker.apis.add_partitions_to_txn import add_partitions_to_txn
from broker.apis.end_txn import end_txn
from broker.apis.init_producer_id import init_producer_id
from broker.apis.produce import produce
from broker.apis.write_txn_markers import write_txn_markers
from broker.client_metrics.manager import ClientMetricsManager
from broker.config import BrokerConfig, broker_config
from broker.groups.commits import OffsetToCommit
from broker.groups.coordinator import GroupCoordinator
from broker.injection.points import FaultInjection
from broker.loop.coroutines import start
from broker.loop.life import NodeLife
from broker.loop.slices import Slices
from broker.metadata.configs import Settings as NodeSettings
from broker.metadata.image import Image
from broker.metadata.listeners import MetadataListener
from broker.metadata.values import BrokerRegistration, Endpoint, PartitionState, Topic
from broker.node import Listener, Node
from broker.node.context import RequestContext
from broker.node.fetch_sessions import FetchSessionCache
from broker.quotas.client_quotas import ClientQuotas
from broker.replicas.manager import ReplicaManager
from broker.replicas.partition import Partition
from broker.share.coordinator.coordinator import ShareCoordinator
from broker.share.manager import SharePartitionManager
from broker.share.persister import Persister
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.transaction import TopicPartition, Transaction
from broker.transactions.verification import Check, Verifier
from protocol.batch import RecordBatch, build_batch
from protocol.errors import ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.records.transaction_log import TransactionLogKey, TransactionLogValue
from storage.directory import LogDirectory
from tests.support.clock import FakeClock
from tests.support.coroutines import handled, values_of

NODE_ID = 1
OTHER_NODE_ID = 2
PRODUCER_ID_BLOCK = 1000
TRANSACTION_STATE = "__transaction_state"
CONSUMER_OFFSETS = "__consumer_offsets"
LISTENER = Listener("PLAINTEXT", "", 9092, "localhost", 9092)
# Never roll by time: a sealed segment is synced in a thread, which needs an event loop.
NEVER_ROLL = {"log.roll.ms": str(10**15)}

Settings = Mapping[str, str]


class Cluster:
    """Cluster metadata without a log, which outlives the node."""

    cluster_id = "world"

    def __init__(self, config: BrokerConfig, transaction_version: int) -> None:
        self.topics: dict[str, Topic] = {}
        self.features = {"transaction.version": transaction_version} if transaction_version else {}
        endpoint = Endpoint("PLAINTEXT", "localhost", 9092)
        self.brokers = {
            node_id: BrokerRegistration(node_id, 1, uuid.UUID(int=node_id), (endpoint,), fenced=False)
            for node_id in (NODE_ID, OTHER_NODE_ID)
        }
        self.image = SimpleNamespace(brokers=self.brokers, topics=self.topics, configs={}, offset=0)
        self.waiting_for_ids: list[asyncio.Future[int]] | None = None
        """Futures of requests for producer ids that wait. None: producer ids are available at once."""
        self._config = config
        self._listeners: list[MetadataListener] = []
        self._next_producer_id = 0

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: uuid.UUID | None) -> Topic | None:
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)

    def subscribe(self, listener: MetadataListener) -> None:
        self._listeners.append(listener)

    def allocate_producer_id(self, node_id: int | None = None) -> int | asyncio.Future[int]:
        if self.waiting_for_ids is not None:
            self.waiting_for_ids.append(asyncio.get_running_loop().create_future())
            return self.waiting_for_ids[-1]
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def restart(self) -> None:
        """Start the node again: the rest of its block of producer ids is lost, and every partition gets a new leader
        epoch."""
        self._listeners.clear()
        self._next_producer_id += PRODUCER_ID_BLOCK - self._next_producer_id % PRODUCER_ID_BLOCK
        for topic in self.topics.values():
            topic.partitions[:] = [
                self._led(state.index, state.leader, state.leader_epoch + 1) for state in topic.partitions
            ]

    @staticmethod
    def _led(index: int, leader: int, epoch: int) -> PartitionState:
        return PartitionState(index, (NODE_ID,), (NODE_ID,), leader, epoch, 0)

    def create(self, name: str, partitions: int, configs: Settings) -> Topic:
        states = [self._led(index, NODE_ID, 0) for index in range(partitions)]
        topic = self.topics[name] = Topic(name, uuid.uuid5(uuid.NAMESPACE_OID, name), states, dict(configs))
        return topic

    def delete(self, name: str) -> None:
        topic = self.topics.pop(name)
        for listener in self._listeners:
            listener.on_topic_deleted(topic)

    def move(self, name: str, index: int, leader: int) -> None:
        """Make another broker, or this one in a new epoch, the leader of a partition."""
        topic = self.topics[name]
        state = self._led(index, leader, topic.partitions[index].leader_epoch + 1)
        topic.partitions[index] = state
        for listener in self._listeners:
            listener.on_leader_changed(topic, state)


class State(NamedTuple):
    """One record of `__transaction_state`. The value is None for a tombstone."""

    transactional_id: str
    value: TransactionLogValue | None

    @property
    def brief(self) -> tuple[int, int] | None:
        """(status, producer epoch), None for a tombstone."""
        return (self.value.transaction_status, self.value.producer_epoch) if self.value else None


class World:
    """One node with its cluster metadata. `settings` are those of server.properties."""

    node: Node

    def __init__(
        self,
        path: Path,
        *,
        transaction_version: int = 2,
        settings: Settings | None = None,
        state_partitions: int = 3,
        seed: int = 0,
        peers: Any = None,
    ) -> None:
        self.path = path
        self.injection = FaultInjection()
        self.peers = peers
        self.config = broker_config({**NEVER_ROLL, **(settings or {})})
        self.clock = FakeClock()
        self.cluster = Cluster(self.config, transaction_version)
        self.random = random.Random(seed)
        self.create(TRANSACTION_STATE, state_partitions, **{"cleanup.policy": "compact"})
        self.create(CONSUMER_OFFSETS, 2, **{"cleanup.policy": "compact"})
        self._open()

    # -- start and stop -----------------------------------------------------------------------------------------

    def _open(self) -> None:
        self.directory = LogDirectory(self.path)
        metadata: Any = self.cluster
        replicas = ReplicaManager(NODE_ID, self.directory, self.config, self.clock, metadata, self.random)
        injection, peers = self.injection, self.peers
        life = NodeLife()
        share_coordinator = ShareCoordinator(
            self.config, self.clock, metadata, replicas, injection=injection, life=life
        )
        persister = Persister(
            NODE_ID, self.clock, metadata, share_coordinator, peers=peers, random=self.random, life=life
        )
        groups = GroupCoordinator(
            self.config, self.clock, metadata, replicas, injection=injection, persister=persister
        )
        transactions = TransactionCoordinator(
            self.config, self.clock, metadata, replicas, groups, injection=injection, peers=peers, life=life
        )
        slices = Slices()
        self.node = Node(
            node_id=NODE_ID,
            config=self.config,
            clock=self.clock,
            metadata=metadata,
            settings=NodeSettings(Image(), self.config),
            replicas=replicas,
            transactions=transactions,
            groups=groups,
            share_coordinator=share_coordinator,
            persister=persister,
            fetch_sessions=FetchSessionCache(10, lambda: 1),
            verifier=Verifier(self.config, self.clock, transactions, life, peers),
            quotas=ClientQuotas(self.config, self.clock, dict),
            client_metrics=ClientMetricsManager(
                Image(), self.clock, uuid.uuid4, self.config.telemetry_max_bytes, None
            ),
            share=SharePartitionManager(
                self.config, self.clock, metadata, replicas, persister, self.peers, slices, life, injection
            ),
            slices=slices,
            injection=injection,
            life=life,
            peers=peers,
        )

    def crash(self) -> None:
        """Simulate the death of the process: drop all objects, and start again from the files as they are."""
        self.abandon()
        self.cluster.restart()
        self._open()
        self.node.replicas.recover()

    def abandon(self) -> None:
        """Close the descriptors without flushing or closing anything else, as the death of a process does."""
        self.node.life.end()
        self.clock.forget_timers()
        for partition in self.node.replicas.opened():
            partition.log.close(clean=False)
        self.directory.close(clean=False)

    def start(self) -> None:
        """Make the coordinators load their partitions, finish decided transactions and set their timers."""
        for state in self.cluster.topics[CONSUMER_OFFSETS].partitions:
            self.node.groups._runtime.find(state.index)
        self.node.transactions.start()

    def drop_coordinator(self) -> None:
        """Replace the transaction coordinator by a new one without state. The logs stay open."""
        node = self.node
        node.transactions.close()
        self.clock.forget_timers()
        node.transactions = TransactionCoordinator(
            self.config,
            self.clock,
            node.metadata,
            node.replicas,
            node.groups,
            injection=self.injection,
            peers=self.peers,
            life=node.life,
        )
        node.verifier = Verifier(self.config, self.clock, node.transactions, node.life, self.peers)

    # -- topics -------------------------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1, **configs: str) -> Topic:
        return self.cluster.create(name, partitions, configs)

    def partition(self, topic: str, index: int = 0) -> Partition:
        partition = self.node.replicas.get(topic, index)
        assert partition is not None
        return partition

    # -- requests -----------------------------------------------------------------------------------------------

    def context(self, version: int, *, client_id: str | None = "test") -> RequestContext:
        return RequestContext(self.node, LISTENER, -1, version, client_id, "/127.0.0.1")

    def init(
        self,
        transactional_id: str | None = "tx",
        *,
        timeout_ms: int = 60_000,
        producer_id: int = -1,
        epoch: int = -1,
        version: int = 5,
    ) -> tuple[int, int]:
        """(producer id, epoch) from an InitProducerId that must succeed."""
        answer = self.ask_init(
            transactional_id, timeout_ms=timeout_ms, producer_id=producer_id, epoch=epoch, version=version
        )
        assert answer.error_code == ErrorCode.none, answer
        return answer.producer_id, answer.producer_epoch

    def ask_init(
        self,
        transactional_id: str | None = "tx",
        *,
        timeout_ms: int = 60_000,
        producer_id: int = -1,
        epoch: int = -1,
        version: int = 5,
    ) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        answer = handled(init_producer_id, request, self.context(version))
        assert isinstance(answer, InitProducerIdResponse), "the handler must not wait here"
        return answer

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        *keys: TopicPartition,
        version: int = 3,
    ) -> dict[TopicPartition, int]:
        """Handle an AddPartitionsToTxn request of a client, and return the error codes by partition."""
        answer = self.ask_add(transactional_id, producer_id, epoch, *keys, version=version)
        assert isinstance(answer, AddPartitionsToTxnResponse), "the handler must not wait here"
        return {
            (topic.name, result.partition_index): result.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        }

    def ask_add(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        *keys: TopicPartition,
        version: int = 3,
    ) -> Any:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=by_topic(keys, added),
        )
        return handled(add_partitions_to_txn, request, self.context(version))

    def add_offsets(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        group_id: str = "g",
        version: int = 3,
    ) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=group_id,
        )
        answer: Any = handled(add_offsets_to_txn, request, self.context(version))
        error: int = answer.error_code
        return error

    def end(
        self, transactional_id: str, producer_id: int, epoch: int, *, committed: bool, version: int = 5
    ) -> tuple[int, int, int]:
        """(error, producer id, epoch) of an EndTxn response."""
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=committed,
        )
        answer = handled(end_txn, request, self.context(version))
        assert isinstance(answer, EndTxnResponse), "the handler must not wait here"
        return answer.error_code, answer.producer_id, answer.producer_epoch

    def produce(
        self,
        topic: str,
        index: int,
        *values: bytes,
        transactional_id: str | None = None,
        producer_id: int = -1,
        epoch: int = -1,
        sequence: int = -1,
        transactional: bool = True,
        acks: int = -1,
        version: int = 12,
        timestamp_ms: int | None = None,
    ) -> PartitionProduceResponse:
        """Produce one batch and return its partition's part of the response."""
        now_ms = self.clock.now_ms() if timestamp_ms is None else timestamp_ms
        batch = build_batch(
            [(now_ms, b"k", value) for value in values],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional and transactional_id is not None,
        )
        answer = self.ask_produce(
            {(topic, index): batch}, transactional_id=transactional_id, acks=acks, version=version
        )
        response: PartitionProduceResponse = answer.responses[0].partition_responses[0]
        return response

    def ask_produce(
        self,
        batches: Mapping[TopicPartition, bytes | None],
        *,
        transactional_id: str | None = None,
        acks: int = -1,
        version: int = 12,
        timeout_ms: int = 30_000,
        client_id: str | None = "test",
    ) -> Any:
        topics: dict[str, list[PartitionProduceData]] = {}
        for (name, index), records in batches.items():
            topics.setdefault(name, []).append(PartitionProduceData(index=index, records=records))
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                TopicProduceData(name=name, topic_id=self._id_of(name, version), partition_data=data)
                for name, data in topics.items()
            ],
        )
        return handled(produce, request, self.context(version, client_id=client_id))

    def _id_of(self, name: str, version: int) -> uuid.UUID | None:
        topic = self.cluster.topic(name)
        if version < 13:
            return None
        return topic.topic_id if topic is not None else uuid.UUID(int=99)

    def commit_offsets(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        offsets: Mapping[TopicPartition, int],
        *,
        group_id: str = "g",
        adds: bool = True,
    ) -> ErrorCode:
        """Do the steps of TxnOffsetCommit: verify the group's `__consumer_offsets` partition, then append the offsets."""
        partition = self.partition(CONSUMER_OFFSETS, self.node.groups.partition_for(group_id))
        check = Check(partition, producer_id, epoch, -1)
        verified = values_of(self.node.verifier.run(transactional_id, [check], adds=adds, wait_ms=0))
        assert verified == [None], "the handler must not wait here"
        if check.error is not ErrorCode.none:
            return check.error
        committing = self.node.groups.commit_transactional(
            group_id,
            "",
            -1,
            None,
            producer_id,
            epoch,
            [OffsetToCommit(topic, index, offset) for (topic, index), offset in offsets.items()],
            5,
            guard=check.guard,
        )
        errors = start(committing, self.node.life)
        assert isinstance(errors, list), "the handler must not wait here"
        return next((error for error in errors if error is not ErrorCode.none), ErrorCode.none)

    def write_markers(
        self,
        producer_id: int,
        epoch: int,
        *keys: TopicPartition,
        committed: bool = False,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
        version: int = 2,
    ) -> dict[TopicPartition, int]:
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=committed,
            topics=by_topic(keys, _marked),
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        request = WriteTxnMarkersRequest(markers=[marker])
        answer: Any = handled(write_txn_markers, request, self.context(version))
        return {
            (topic.name, result.partition_index): result.error_code
            for one in answer.markers
            for topic in one.topics
            for result in topic.partitions
        }

    # -- state --------------------------------------------------------------------------------------------------

    def states(self, transactional_id: str | None = None) -> list[State]:
        """The records of `__transaction_state`: those of one transactional id, or all records partition by
        partition."""
        found = []
        for state in self.cluster.topics[TRANSACTION_STATE].partitions:
            for batch in self.partition(TRANSACTION_STATE, state.index).log.batches(0):
                for record in batch.records():
                    assert record.key is not None
                    key = TransactionLogKey.decode(record.key).transactional_id
                    value = TransactionLogValue.decode(record.value) if record.value is not None else None
                    if transactional_id in (None, key):
                        found.append(State(key, value))
        return found

    def briefs(self, transactional_id: str = "tx") -> list[tuple[int, int] | None]:
        """(status, producer epoch) of each record of a transactional id."""
        return [state.brief for state in self.states(transactional_id)]

    def memory(self, transactional_id: str = "tx") -> Transaction | None:
        for home in self.node.transactions.memory().values():
            if transactional_id in home:
                return home[transactional_id]
        return None

    def batches(self, topic: str, index: int = 0) -> list[RecordBatch]:
        return list(self.partition(topic, index).log.batches())

    def layout(self, topic: str, index: int = 0) -> list[tuple[int, int, int, int, int]]:
        """(base offset, size in bytes, attributes, producer epoch, base sequence) of each batch."""
        return [
            (batch.base_offset, batch.size, batch.attributes, batch.producer_epoch, batch.base_sequence)
            for batch in self.batches(topic, index)
        ]

    def markers(self, topic: str, index: int = 0) -> list[tuple[int, bool]]:
        """(producer epoch, whether committed) of each marker."""
        return [
            (batch.producer_epoch, is_commit(batch))
            for batch in self.batches(topic, index)
            if batch.is_control
        ]

    def aborted(self, topic: str, index: int = 0, offset: int = 0) -> list[tuple[int, int]]:
        result = self.partition(topic, index).read(
            offset, 1 << 30, read_committed=True, whole_first_batch=True
        )
        return list(result.aborted or ())

    def committed_values(self, topic: str, index: int = 0) -> list[bytes]:
        """Values that a read_committed consumer delivers, by the Java consumer's algorithm."""
        return committed_values(self.partition(topic, index))


def committed_values(partition: Partition) -> list[bytes]:
    """Values up to the last stable offset, without the batches of aborted transactions, as `CompletedFetch` reads them."""
    values: list[bytes] = []
    offset = partition.log_start_offset
    while offset < partition.last_stable_offset:
        result = partition.read(offset, 1 << 20, read_committed=True, whole_first_batch=True)
        assert result.error is ErrorCode.none
        aborted = sorted(result.aborted or (), key=lambda entry: entry[1])
        active: set[int] = set()
        position = 0
        while position < len(result.records):
            batch = RecordBatch.parse(result.records, position)
            position += batch.size
            offset = batch.next_offset
            while aborted and aborted[0][1] <= batch.last_offset:
                active.add(aborted.pop(0)[0])
            if batch.is_control:
                if not is_commit(batch):
                    active.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in active):
                values += [record.value or b"" for record in batch.records()]
    return values


def added(name: str, indexes: list[int]) -> AddPartitionsToTxnTopic:
    return AddPartitionsToTxnTopic(name=name, partitions=indexes)


def _marked(name: str, indexes: list[int]) -> WritableTxnMarkerTopic:
    return WritableTxnMarkerTopic(name=name, partition_indexes=indexes)


def is_commit(marker: RecordBatch) -> bool:
    record = next(iter(marker.records()))
    assert record.key is not None
    return record.key[3] == 1


def by_topic(keys: Iterable[TopicPartition], make: Callable[[str, list[int]], Any]) -> list[Any]:
    """Group partitions by topic, as in the topics field of requests."""
    topics: dict[str, list[int]] = {}
    for name, index in keys:
        topics.setdefault(name, []).append(index)
    return [make(name, indexes) for name, indexes in topics.items()]


@asynccontextmanager
async def begun(world: Any) -> AsyncIterator[Any]:
    """Yield a world whose background work has begun (``begin``). At the end it is closed without a clean shutdown."""
    world.begin()
    try:
        yield world
    finally:
        await world.node.replicas.close(clean=False)
        world.directory.close(clean=False)
