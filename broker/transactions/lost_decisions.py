"""Finds markers in partitions whose decision (PrepareX) is missing in the coordinator's log. Pure.

Without an fsync for each append (``flush.messages``) a power cut may lose the end of ``__transaction_state`` but
not the end of a data log. The data log then has a marker that ends a transaction, while for the coordinator the
transaction is open or has never begun. No broker can repair that, since the other partitions may have lost the
data of the transaction; the broker can only report it. Kafka has the same gap and does not report it.

A marker of the open transaction differs from markers of earlier transactions by its epoch or its time:

- in transaction version 2 the Prepare record bumps the producer epoch, and the marker has the bumped epoch. If the producer
  state of a partition has a later epoch than the coordinator, the partition has a marker that the coordinator has lost;
- before version 2 the epoch does not change. If a partition has no open transaction of the producer, and the producer's last
  batch in it is a marker later than the start of the transaction, then that marker has ended the transaction. A marker of
  the same millisecond is not reported, since it may belong to the transaction before, if the partition was added to this
  transaction but not yet written to.

If the id has no open transaction for its coordinator, only epochs are compared, since Kafka dates a Complete
record before its markers. Two cases are not found: ids of which the log has lost every record, and partitions in
which records of another transaction in the same epoch follow the lost decision.
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
"""Coordinator epoch in the producer state of a producer that has no marker in the partition yet."""


class Verdict(Enum):
    """Outcome of the transaction according to all markers together."""

    COMMIT = "commit"
    ABORT = "abort"
    BOTH = "commit and abort"
    """The markers differ: an operator has written one, or another crash came during the recovery from the first."""
    UNKNOWN = "unknown"
    """No marker is in the log any more (retention, compaction)."""


@slotted(frozen=True)
class Marker:
    """An end transaction marker. If it is no longer in the partition's log, ``committed`` is None and ``offset`` is -1."""

    topic: str
    partition: int
    epoch: int
    offset: int = NO_OFFSET
    committed: bool | None = None


@slotted(frozen=True)
class LostDecision:
    """A transaction in the coordinator's state, and the markers in partitions that contradict that state."""

    txn: Transaction
    markers: tuple[Marker, ...]

    @property
    def unmarked(self) -> tuple[TopicPartition, ...]:
        """The partitions of the transaction that have no marker of this transaction."""
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
        """Whether the outcome may differ by partition: committed in some, aborted by the coordinator in the others."""
        return (
            self.txn.state is TransactionState.ONGOING
            and bool(self.unmarked)
            and self.verdict is not Verdict.ABORT
        )

    @property
    def outcome(self) -> str:
        """Description, for the log, of what the coordinator will do with the transaction."""
        if self.txn.state is not TransactionState.ONGOING:
            return "the transaction is ended for the coordinator, which writes nothing more"
        ends = "the coordinator aborts it when it times out or when its producer is initialised again"
        if self.is_torn:
            return f"{ends}: its records in the unmarked partitions are lost, those in the marked ones stay committed"
        return f"{ends}: consumers see no difference"


Entries = Mapping[int, Sequence[tuple[TopicPartition, ProducerStateEntry]]]
"""Producer id -> (partition, the producer's state in that partition) for each partition with such a state."""
FindMarker = Callable[[TopicPartition, Transaction], Marker | None]


def lost_decisions(
    transactions: Iterable[Transaction], entries: Entries, find_marker: FindMarker
) -> list[LostDecision]:
    """Return the transactions that a marker has ended but the coordinator has not, sorted by transactional id.

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
                # otherwise no marker has ended the transaction: the later epoch comes from records, not from a marker
        if markers:
            markers.sort(key=lambda marker: (marker.topic, marker.partition))
            found.append(LostDecision(txn, tuple(markers)))
    return sorted(found, key=lambda decision: decision.txn.transactional_id)


def knows_an_end(txn: Transaction, entry: ProducerStateEntry) -> bool:
    """Whether the partition has a marker, for this or a later transaction, whose decision the coordinator has lost."""
    if txn.state is not TransactionState.ONGOING and txn.state not in SETTLED:
        return False  # the coordinator will write these markers itself
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
    """Return the first marker whose decision the coordinator has lost, or None. ``batches`` start at `since_ms`."""
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
