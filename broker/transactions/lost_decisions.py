"""Markers in partitions whose decision the coordinator's log does not know. Pure.

Without an fsync for each append (``flush.messages``) a power cut may take the end of ``__transaction_state`` and leave the
end of a data log: there a marker says how a transaction ended, and its coordinator still holds it for open, or has not
heard of it. No broker can mend that, since the other partitions may have lost what the marker vouches for; it can be
said. Kafka has the same gap and says nothing.

What tells a marker of the open transaction from those of earlier ones is the epoch, or the time:

- in transaction version 2 the Prepare record takes the producer to its next epoch, and the marker carries that one:
  a partition that knows a later epoch than the coordinator has seen a marker that the coordinator does not remember;
- before, the epoch stays. A partition without an open transaction whose last word of the producer is a marker later
  than the start of the transaction has been told its end. One of the same millisecond may be the marker of the
  transaction before, in a partition that was added to this one and not yet written to: nothing is said of it.

An id that is settled for its coordinator is judged by epochs alone: Kafka dates a Complete record before its markers.
What is not found: ids that the log has lost altogether, and a partition in which the lost decision was followed by
records of one more transaction in the same epoch.
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
"""The coordinator epoch of a producer entry that no marker has touched."""


class Verdict(Enum):
    """What the markers say, all of them together."""

    COMMIT = "commit"
    ABORT = "abort"
    BOTH = "commit and abort"
    """An operator has written one by hand, or a second crash came while the first was made good."""
    UNKNOWN = "unknown"
    """The markers themselves are gone (retention, compaction)."""


@slotted(frozen=True)
class Marker:
    """An end marker as it stands in a partition; ``committed`` None and ``offset`` -1 if it was not found any more."""

    topic: str
    partition: int
    epoch: int
    offset: int = NO_OFFSET
    committed: bool | None = None


@slotted(frozen=True)
class LostDecision:
    """A transaction as its coordinator knows it, and the partitions that know more."""

    txn: Transaction
    markers: tuple[Marker, ...]

    @property
    def unmarked(self) -> tuple[TopicPartition, ...]:
        """The partitions of the transaction that have no marker of it."""
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
        """Whether partitions will contradict each other: some say commit, others will be aborted."""
        return (
            self.txn.state is TransactionState.ONGOING
            and bool(self.unmarked)
            and self.verdict is not Verdict.ABORT
        )

    @property
    def outcome(self) -> str:
        """What the coordinator does next, as a sentence."""
        if self.txn.state is not TransactionState.ONGOING:
            return "the coordinator holds it for ended and writes nothing more"
        ends = "it is open for the coordinator, which aborts it when it times out or its producer starts anew"
        if self.is_torn:
            return f"{ends}: what it wrote to the other partitions is lost, and what is committed here stays"
        return f"{ends}: readers see no difference"


Entries = Mapping[int, Sequence[tuple[TopicPartition, ProducerStateEntry]]]
"""Producer id -> what each partition knows of it."""
FindMarker = Callable[[TopicPartition, Transaction], Marker | None]


def lost_decisions(
    transactions: Iterable[Transaction], entries: Entries, find_marker: FindMarker
) -> list[LostDecision]:
    """The transactions that partitions hold for ended and the coordinator does not; by transactional id.

    ``find_marker`` reads a partition's log (see ``first_marker``); the function calls it only for an entry with a marker.
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
                # else the later epoch is that of records only, which no marker has ended
        if markers:
            markers.sort(key=lambda marker: (marker.topic, marker.partition))
            found.append(LostDecision(txn, tuple(markers)))
    return sorted(found, key=lambda decision: decision.txn.transactional_id)


def knows_an_end(txn: Transaction, entry: ProducerStateEntry) -> bool:
    """Whether a partition has been told an end of this transaction, or of a later one, that its coordinator lost."""
    if txn.state is not TransactionState.ONGOING and txn.state not in SETTLED:
        return False  # decided: the coordinator is about to write these very markers
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
    """The first marker of a partition that the coordinator does not know of. Give the batches since ``since_ms``."""
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
    """No marker that the coordinator has lost is older than this."""
    return txn.start_ms if txn.state is TransactionState.ONGOING else NO_TIME


def _is_unknown(txn: Transaction, batch: RecordBatch) -> bool:
    if batch.producer_epoch != txn.epoch:
        return batch.producer_epoch > txn.epoch
    return (
        txn.state is TransactionState.ONGOING
        and txn.client_version < TRANSACTION_VERSION_2
        and batch.max_timestamp > txn.start_ms
    )
