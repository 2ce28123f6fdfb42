"""The coordinator's search for lost transaction decisions, once after an unclean shutdown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from broker.logging import get_logger
from broker.replicas.partition import Partition
from broker.transactions.lost_decisions import (
    LostDecision,
    Marker,
    first_marker,
    lost_decisions,
    since_ms,
)
from broker.transactions.transaction import TopicPartition, Transaction
from protocol.batch import RecordBatch
from storage.files import StorageError
from storage.producers import ProducerStateEntry

if TYPE_CHECKING:
    from broker.replicas.manager import ReplicaManager

log_events = get_logger()


def find_lost_decisions(transactions: Iterable[Transaction], replicas: ReplicaManager) -> list[LostDecision]:
    """Return the transactions that have markers in this node's partitions, but no decision in the coordinator's log."""
    entries: dict[int, list[tuple[TopicPartition, ProducerStateEntry]]] = defaultdict(list)
    for partition in replicas.opened():
        for producer_id, entry in partition.log.producers.entries.items():
            entries[producer_id].append(((partition.topic, partition.index), entry))

    def find_marker(key: TopicPartition, txn: Transaction) -> Marker | None:
        partition = replicas.get(*key)
        try:
            return None if partition is None else first_marker(_batches(partition, since_ms(txn)), key, txn)
        except StorageError as error:
            log_events.warning(
                "search for a marker failed", topic=key[0], partition=key[1], reason=str(error)
            )
            return None

    return lost_decisions(transactions, entries, find_marker)


def _batches(partition: Partition, from_ms: int) -> Iterator[RecordBatch]:
    """Yield the partition's batches, starting at the first record with a timestamp of at least ``from_ms``."""
    first = partition.log.find_timestamp(from_ms) if from_ms >= 0 else None
    return partition.log.batches(first.offset if first is not None else None)


def report_lost_decisions(transactions: Iterable[Transaction], replicas: ReplicaManager) -> None:
    """Log one warning for each transaction that `find_lost_decisions` returns."""
    for decision in find_lost_decisions(transactions, replicas):
        txn = decision.txn
        log_events.warning(
            "the decision of a transaction was lost",
            transactional_id=txn.transactional_id,
            producer_id=txn.producer_id,
            epoch=txn.epoch,
            state=txn.state.name,
            verdict=decision.verdict.value,
            markers=[f"{marker.topic}-{marker.partition} at {marker.offset}" for marker in decision.markers],
            unmarked=[f"{topic}-{index}" for topic, index in decision.unmarked],
            outcome=decision.outcome,
        )
