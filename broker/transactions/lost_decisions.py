"""Finds markers in partitions whose decision (PrepareX) is missing in the coordinator's log. Pure.

Without an fsync for each append (``flush.messages``) a power cut may lose the end of ``__transaction_state`` but not the
end of a data log. The data log then has a marker that ends a transaction, while the coordinator considers the transaction
open or does not know it. No broker can repair that, since the other partitions may have lost the data of the transaction;
the broker can only report it. Kafka has the same gap and does not report it.

A marker of the open transaction is told apart from markers of earlier transactions by its epoch or its time:

- in transaction version 2 the Prepare record bumps the producer epoch, and the marker carries the bumped epoch. A partition
  whose producer state has a later epoch than the coordinator has seen a marker that the coordinator has lost;
- before, the epoch does not change. If a partition has no open transaction of the producer, and the producer's last batch in
  it is a marker later than the start of the transaction, then the transaction was ended there. A marker of the same
  millisecond may belong to the transaction before, if the partition was added to this transaction but not yet written to:
  it is not reported.

If the id has no open transaction for its coordinator, only epochs are compared, since Kafka dates a Complete record before
its markers. Not found are ids that the log has lost altogether, and a partition in which the lost decision was followed by
records of another transaction in the same epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum

from broker.transactions.transaction import (
    NO_TIME,
    SETTLED,
    TRANSACTION_VERSION_2,
    TopicPartition,
    Transaction,
    TransactionState,
)
from protocol.batch import CorruptBatch, RecordBatch, parse_end_txn_marker
from protocol.slotted import slotted
from storage.producers import NO_OFFSET, ProducerStateEntry

NO_MARKER_YET = -1
"""Coordinator epoch of a producer entry that has seen no marker."""


class Verdict(Enum):
    """Outcome of the transaction according to all markers together."""

    COMMIT = "commit"
    ABORT = "abort"
    BOTH = "commit and abort"
    """An operator has written one of the markers, or a second crash came while the first was being repaired."""
    UNKNOWN = "unknown"
    """The markers are no longer in the log (retention, compaction)."""


@slotted(frozen=True)
class Marker:
    """An end transaction marker in a partition; ``committed`` is None and ``offset`` -1 if it is no longer in the log."""

    topic: str
    partition: int
    epoch: int
    offset: int = NO_OFFSET
    committed: bool | None = None


@slotted(frozen=True)
class LostDecision:
    """A transaction as its coordinator has it, and the markers of partitions that contradict it."""

    txn: Transaction
    markers: tuple[Marker, ...]

    @property
    def unmarked(self) -> tuple[TopicPartition, ...]:
        """The partitions of the transaction that have no marker for it."""
        marked = {(marker.topic, marker.partition) for marker in self.markers}
        return tuple(sorted(self.txn.partitions - marked))

    @property
    def verdict(self) -> Verdict:
        said = {marker.committed for marker in self.markers} - {None}
        if not said:
            return Verdict.UNKNOWN
        if len(said) > 1:
            return Verdict.BOTH
        return Verdict.COMMIT if True in said else Verdict.ABORT

    @property
    def is_torn(self) -> bool:
        """Whether the outcome will differ: committed in some partitions, aborted by the coordinator in the others."""
        return (
            self.txn.state is TransactionState.ONGOING
            and bool(self.unmarked)
            and self.verdict is not Verdict.ABORT
        )

    @property
    def outcome(self) -> str:
        """What the coordinator will do with the transaction, as a sentence for the log."""
        if self.txn.state is not TransactionState.ONGOING:
            return "the transaction is ended for the coordinator, which writes nothing more"
        ends = "the coordinator aborts it when it times out or when its producer is initialised again"
        if self.is_torn:
            return f"{ends}: its records in the unmarked partitions are lost, those in the marked ones stay committed"
        return f"{ends}: consumers see no difference"


Entries = Mapping[int, Sequence[tuple[TopicPartition, ProducerStateEntry]]]
"""Producer id -> its producer state entry in each partition."""
FindMarker = Callable[[TopicPartition, Transaction], Marker | None]


def lost_decisions(
    transactions: Iterable[Transaction], entries: Entries, find_marker: FindMarker
) -> list[LostDecision]:
    """Return the transactions that partitions have ended but the coordinator has not, sorted by transactional id.

    ``find_marker`` reads a partition's log (see ``first_marker``); it is called only for entries that have seen a marker.
    """
    found = []
    for txn in transactions:
        markers = []
        for key, entry in entries.get(txn.producer_id, ()):
            if knows_an_end(txn, entry):
                marker = find_marker(key, txn)
                if marker is not None:
                    markers.append(marker)
                elif entry.current_txn_first_offset == NO_OFFSET:
                    markers.append(Marker(*key, entry.epoch))
                # else only records carry the later epoch, and no marker has ended them
        if markers:
            markers.sort(key=lambda marker: (marker.topic, marker.partition))
            found.append(LostDecision(txn, tuple(markers)))
    return sorted(found, key=lambda decision: decision.txn.transactional_id)


def knows_an_end(txn: Transaction, entry: ProducerStateEntry) -> bool:
    """Whether a partition has seen a marker of this transaction, or of a later one, that its coordinator has lost."""
    if txn.state is not TransactionState.ONGOING and txn.state not in SETTLED:
        return False  # the coordinator is about to write these markers itself
    if entry.coordinator_epoch == NO_MARKER_YET:
        return False
    if entry.epoch != txn.epoch:
        return entry.epoch > txn.epoch
    return (
        txn.state is TransactionState.ONGOING
        and txn.client_version < TRANSACTION_VERSION_2
        and entry.current_txn_first_offset == NO_OFFSET
        and txn.start_ms != NO_TIME
        and entry.last_timestamp_ms > txn.start_ms
    )


def first_marker(batches: Iterable[RecordBatch], key: TopicPartition, txn: Transaction) -> Marker | None:
    """Return the first marker in ``batches`` that the coordinator does not know. Pass the batches from ``since_ms`` on."""
    for batch in batches:
        if not batch.is_control or batch.producer_id != txn.producer_id or not _is_unknown(txn, batch):
            continue
        try:
            marker = parse_end_txn_marker(batch)
        except CorruptBatch:
            continue
        if marker is not None:
            return Marker(*key, batch.producer_epoch, batch.base_offset, marker.committed)
    return None


def since_ms(txn: Transaction) -> int:
    """Lower bound for the timestamp of a marker that the coordinator may have lost."""
    return txn.start_ms if txn.state is TransactionState.ONGOING else NO_TIME


def _is_unknown(txn: Transaction, batch: RecordBatch) -> bool:
    if batch.producer_epoch != txn.epoch:
        return batch.producer_epoch > txn.epoch
    return (
        txn.state is TransactionState.ONGOING
        and txn.client_version < TRANSACTION_VERSION_2
        and batch.max_timestamp > txn.start_ms
    )
