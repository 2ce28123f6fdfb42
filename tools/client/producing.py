"""Produce batches of records, idempotently or in a transaction."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from protocol.batch import RecordLike, build_batch
from protocol.hashing import partition_of_key
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from tools.client.cluster import TRANSACTION, Cluster
from tools.client.errors import check

PRODUCE_TIMEOUT_MS: Final = 30_000
# The last versions that contain topic names and in which the client adds partitions to the transaction.
_PRODUCE: Final = 11
_ADD_PARTITIONS: Final = 3
_END_TXN: Final = 4
_INIT_PRODUCER_ID: Final = 5


@dataclass(slots=True)
class Producer:
    """An idempotent or transactional producer.

    The producer uses the older transaction protocol (without part 2 of KIP-890), which every broker since Kafka 2.5
    supports.
    """

    cluster: Cluster
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    idempotent: bool = True
    acks: int = -1
    compression: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    adds_partitions: bool = True
    """Whether the producer sends AddPartitionsToTxn before the first batch for a partition."""
    _sequences: dict[tuple[str, int], int] = field(default_factory=dict)
    _added: set[tuple[str, int]] = field(default_factory=set)

    def init(self) -> None:
        """Get a producer id. With a transactional id, this aborts an open transaction and fences other producers."""
        if self.transactional_id is None and not self.idempotent:
            return
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.transaction_timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
        )

        def ask() -> None:
            if self.transactional_id is None:
                response = self.cluster.ask("init_producer_id", request, _INIT_PRODUCER_ID)
            else:
                response = self.cluster.ask_coordinator(
                    TRANSACTION, self.transactional_id, "init_producer_id", request, _INIT_PRODUCER_ID
                )
            check(
                response.error_code, f"the producer id of {self.transactional_id or 'an idempotent producer'}"
            )
            self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch

        self.cluster.retrying(ask)
        self._sequences.clear()
        self._added.clear()

    def send(self, topic: str, partition: int, records: Sequence[RecordLike]) -> int:
        """Write a batch of ``(timestamp_ms, key, value[, headers])``. Returns its base offset, -1 with acks=0."""
        where = (topic, partition)
        if self.transactional_id is not None and self.adds_partitions and where not in self._added:
            self._add_partition(topic, partition)
        idempotent = self.producer_id >= 0
        sequence = self._sequences.get(where, 0) if idempotent else -1
        batch = build_batch(
            records,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            transactional=self.transactional_id is not None,
            compression=self.compression,
        )
        data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=self.acks,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        offset = self._produce(topic, partition, request)
        if idempotent:
            self._sequences[where] = (sequence + len(records)) & 0x7FFF_FFFF
        return offset

    def _produce(self, topic: str, partition: int, request: ProduceRequest) -> int:
        if self.acks == 0:
            self.cluster.node(self.cluster.leader(topic, partition)).send_only("produce", request)
            return -1

        def ask() -> int:
            response = self.cluster.ask_leader(topic, partition, "produce", request, _PRODUCE)
            found: PartitionProduceResponse = response.responses[0].partition_responses[0]
            check(found.error_code, f"{topic}-{partition}", getattr(found, "error_message", None))
            return found.base_offset

        return self.cluster.retrying(ask)

    def _add_partition(self, topic: str, partition: int) -> None:
        assert self.transactional_id is not None
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )

        def ask() -> None:
            assert self.transactional_id is not None
            response = self.cluster.ask_coordinator(
                TRANSACTION, self.transactional_id, "add_partitions_to_txn", request, _ADD_PARTITIONS
            )
            (result,) = response.results_by_topic_v3_and_below[0].results_by_partition
            check(result.partition_error_code, f"adding {topic}-{partition} to {self.transactional_id}")

        self.cluster.retrying(ask)
        self._added.add((topic, partition))

    def end(self, *, commit: bool) -> None:
        """Commit or abort the transaction. Does nothing if no record was written."""
        if self.transactional_id is None or not self._added:
            return
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commit,
        )

        def ask() -> None:
            assert self.transactional_id is not None
            response = self.cluster.ask_coordinator(
                TRANSACTION, self.transactional_id, "end_txn", request, _END_TXN
            )
            check(response.error_code, f"the end of {self.transactional_id}'s transaction")

        self.cluster.retrying(ask)
        self._added.clear()


def partition_of(key: bytes | None, partitions: int, turn: int) -> int:
    """Kafka's default partitioning: murmur2 of the key; round-robin by ``turn`` without a key."""
    if key is None:
        return turn % partitions
    return partition_of_key(key, partitions)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
