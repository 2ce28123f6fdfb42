"""Producer state of one partition: the next sequence of each producer, duplicates, open transactions.

Pure: the input is a batch and ``now_ms``, the output a decision. The log appends between ``check`` and ``update``, so a
rejected batch changes nothing. Kafka's counterparts are ``ProducerStateManager``, ``ProducerAppendInfo`` and
``ProducerStateEntry``.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from protocol.batch import NO_SEQUENCE, TRANSACTIONAL, EndTxnMarker, RecordBatch, parse_end_txn_marker
from protocol.errors import ErrorCode
from protocol.named_tuple import NamedTuple
from protocol.records.producer_snapshot import ProducerSnapshotEntry
from protocol.slotted import slotted
from storage.aborted import AbortedTransaction

BATCHES_REMEMBERED = 5
"""Number of batches remembered for each producer, as a client may repeat any of five requests in flight (KIP-185)."""
NO_EPOCH = -1
NO_OFFSET = -1
EPOCH_MAX = 32767
SEQUENCE_MAX = 2**31 - 1
TRANSACTION_VERSION_2 = 2


class AppendOrigin(Enum):
    """The origin of a batch (a client, the coordinator or replication), which decides how it is checked (Kafka's
    ``AppendOrigin``).
    """

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


CLIENT: Final = AppendOrigin.CLIENT
COORDINATOR: Final = AppendOrigin.COORDINATOR


class BatchMetadata:
    """One remembered batch of a producer, to recognise duplicates."""

    __slots__ = ("first_offset", "first_sequence", "last_offset", "last_sequence", "timestamp_ms")

    def __init__(
        self, first_sequence: int, last_sequence: int, first_offset: int, last_offset: int, timestamp_ms: int
    ) -> None:
        self.first_sequence = first_sequence
        self.last_sequence = last_sequence
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.timestamp_ms = timestamp_ms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BatchMetadata) and self.values() == other.values()

    def __repr__(self) -> str:
        return f"BatchMetadata{self.values()}"

    def values(self) -> tuple[int, ...]:
        """All fields as a tuple, for comparison and ``repr``."""
        return (
            self.first_sequence,
            self.last_sequence,
            self.first_offset,
            self.last_offset,
            self.timestamp_ms,
        )


class ProducerStateEntry:
    """State of one producer id. ``last_timestamp_ms`` is the timestamp of its last record, by which the entry expires."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "last_timestamp_ms",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        epoch: int = NO_EPOCH,
        batches: Iterable[BatchMetadata] = (),
        coordinator_epoch: int = -1,
        last_timestamp_ms: int = -1,
        current_txn_first_offset: int = NO_OFFSET,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: deque[BatchMetadata] = deque(batches, maxlen=BATCHES_REMEMBERED)
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp_ms = last_timestamp_ms
        self.current_txn_first_offset = current_txn_first_offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProducerStateEntry) and all(
            getattr(self, name) == getattr(other, name) for name in ProducerStateEntry.__slots__
        )

    def __repr__(self) -> str:
        return f"ProducerStateEntry({', '.join(f'{name}={getattr(self, name)!r}' for name in ProducerStateEntry.__slots__)})"

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def take_epoch(self, epoch: int) -> None:
        """Set the producer epoch. If it changes, the batches of the earlier epoch are forgotten."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch


class VerificationGuard:
    """Proof that the coordinator has verified a producer id and epoch. Guards are compared by identity (KIP-890)."""

    __slots__ = ()


@slotted
class Verification:
    """The coordinator's verification of a producer's transaction. The first batch of a transaction needs a verification."""

    guard: VerificationGuard
    epoch: int
    lowest_sequence: int
    supports_epoch_bump: bool
    created_ms: int


class AppendRefused(NamedTuple):
    """The error for a batch that may not be appended."""

    error: ErrorCode
    message: str


class ProducerStateManager:
    """The producers of one partition."""

    def __init__(self) -> None:
        self.entries: dict[int, ProducerStateEntry] = {}
        self.verifications: dict[int, Verification] = {}
        # Open transactions: first offset -> producer id. New ones have higher offsets, so the order is that of the offsets.
        self._open: OrderedDict[int, int] = OrderedDict()
        # Ended transactions whose marker is not below the high watermark yet: (first offset, marker offset).
        self._unreplicated: deque[tuple[int, int]] = deque()

    # -- checks before an append --------------------------------------------------------------------------------

    def continues(self, batch: RecordBatch) -> bool:
        """Whether a batch clearly follows its producer's last one (ADR 23). Then `duplicate_of` finds no duplicate, and
        `check` no error. If False, call both: the batch may be the first batch of a producer or of a transaction, a
        duplicate, or an invalid batch.
        """
        entry = self.entries.get(batch.producer_id)
        if entry is None:
            return False
        remembered = entry.batches
        if not remembered:
            return False
        last = remembered[-1]
        return (
            entry.epoch == batch.producer_epoch
            and last.last_sequence + 1 == batch.base_sequence
            and (entry.current_txn_first_offset == NO_OFFSET) is (batch.attributes & TRANSACTIONAL == 0)
            and batch.producer_id not in self.verifications
        )

    def duplicate_of(self, batch: RecordBatch) -> BatchMetadata | None:
        """The remembered batch that ``batch`` repeats, with equal epoch, first sequence and last sequence; None if there is
        none.

        `continues` is the fast path for this function and `check`.
        """
        entry = self.entries.get(batch.producer_id)
        if entry is None or entry.epoch != batch.producer_epoch:
            return None
        first, last = batch.base_sequence, batch.last_sequence
        for known in entry.batches:
            if known.first_sequence == first and known.last_sequence == last:
                return known
        return None

    def check(
        self, batch: RecordBatch, origin: AppendOrigin, guard: object | None, verification_enabled: bool
    ) -> AppendRefused | None:
        """Check a data batch with a producer id, in Kafka's order, after `duplicate_of` has found no duplicate.

        Returns None if the batch may be appended. `continues` is the fast path for this function and
        `duplicate_of`.
        """
        entry = self.entries.get(batch.producer_id)
        transactional = batch.is_transactional
        if transactional and not self.has_open_transaction(batch.producer_id, batch.producer_epoch):
            if entry is not None and batch.producer_epoch < entry.epoch:
                return _stale_epoch(batch, entry)
            if verification_enabled and not self._is_verified(batch.producer_id, guard):
                return AppendRefused(
                    ErrorCode.invalid_txn_state, "the transaction was not verified on this partition"
                )
        if entry is not None and batch.producer_epoch < entry.epoch:
            return _stale_epoch(batch, entry)
        if origin is CLIENT and not self._in_sequence(batch, entry):
            return AppendRefused(
                ErrorCode.out_of_order_sequence_number,
                f"producer {batch.producer_id} epoch {batch.producer_epoch}: sequence {batch.base_sequence} "
                f"is out of order, the last one was {entry.last_sequence if entry else 'none'}",
            )
        if entry is not None and entry.current_txn_first_offset != NO_OFFSET and not transactional:
            return AppendRefused(
                ErrorCode.invalid_txn_state, "a transaction is open and the batch is not transactional"
            )
        return None

    def _is_verified(self, producer_id: int, guard: object | None) -> bool:
        verification = self.verifications.get(producer_id)
        return guard is not None and verification is not None and verification.guard is guard

    def _in_sequence(self, batch: RecordBatch, entry: ProducerStateEntry | None) -> bool:
        """Whether the batch has the next sequence of its producer (``ProducerAppendInfo.checkSequence``).

        ``entry`` is None for an unknown producer. KIP-890 adds two rules for transactions with a verification.
        """
        sequence = batch.base_sequence
        verification = self.verifications.get(batch.producer_id)
        if verification is not None:
            remembers_nothing = entry is None or not entry.batches
            if verification.supports_epoch_bump and remembers_nothing and sequence != 0:
                return False
            if sequence > verification.lowest_sequence:
                return False
        if entry is None or entry.epoch == NO_EPOCH:
            return True  # no state (expired, or no snapshot at a restart): any sequence is accepted
        if batch.producer_epoch != entry.epoch:
            return sequence == 0
        last = entry.last_sequence
        return sequence == last + 1 or (sequence == 0 and last == SEQUENCE_MAX)

    def check_marker(
        self, producer_id: int, epoch: int, marker: EndTxnMarker, transaction_version: int
    ) -> AppendRefused | None:
        """Check the producer epoch of an end marker, strictly if the transaction version is 2, and its coordinator epoch."""
        entry = self.entries.get(producer_id)
        if entry is None:
            return None
        strict = transaction_version >= TRANSACTION_VERSION_2 and epoch != EPOCH_MAX
        repeated = epoch == entry.epoch and entry.current_txn_first_offset == NO_OFFSET
        if epoch < entry.epoch or (strict and epoch == entry.epoch and not repeated):
            return AppendRefused(
                ErrorCode.invalid_producer_epoch,
                f"producer {producer_id}: a marker of epoch {epoch} after epoch {entry.epoch}",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            return AppendRefused(
                ErrorCode.transaction_coordinator_fenced,
                f"producer {producer_id}: a marker of coordinator epoch {marker.coordinator_epoch} "
                f"after {entry.coordinator_epoch}",
            )
        return None

    # -- updates after an append --------------------------------------------------------------------------------

    def update(self, batch: RecordBatch, base_offset: int, timestamp_ms: int) -> None:
        """Add a data batch that was appended at ``base_offset`` to the state of its producer."""
        producer_id = batch.producer_id
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerStateEntry(producer_id)
        if entry.epoch != batch.producer_epoch:
            entry.take_epoch(batch.producer_epoch)
        first_sequence, delta = batch.base_sequence, batch.last_offset_delta
        last_sequence = NO_SEQUENCE if first_sequence < 0 else (first_sequence + delta) & SEQUENCE_MAX
        # Set field by field: compiled code then only stores five numbers. A constructor call would build and unpack a tuple.
        added = BatchMetadata.__new__(BatchMetadata)
        added.first_sequence = first_sequence
        added.last_sequence = last_sequence
        added.first_offset = base_offset
        added.last_offset = base_offset + delta
        added.timestamp_ms = timestamp_ms
        entry.batches.append(added)
        entry.last_timestamp_ms = timestamp_ms
        if batch.attributes & TRANSACTIONAL:
            if entry.current_txn_first_offset == NO_OFFSET:
                entry.current_txn_first_offset = base_offset
                self._open[base_offset] = producer_id
            self.verifications.pop(producer_id, None)

    def complete(
        self,
        producer_id: int,
        epoch: int,
        marker: EndTxnMarker,
        offset: int,
        timestamp_ms: int,
    ) -> AbortedTransaction | None:
        """End a producer's transaction; returns its index entry if it was aborted and had data here, else None."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerStateEntry(producer_id)
        entry.take_epoch(max(epoch, entry.epoch))
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp_ms = timestamp_ms
        self._forget_verification(producer_id, epoch)
        first_offset = entry.current_txn_first_offset
        if first_offset == NO_OFFSET:
            return None
        entry.current_txn_first_offset = NO_OFFSET
        del self._open[first_offset]
        self._unreplicated.append((first_offset, offset))
        if marker.committed:
            return None
        last_stable_offset = next(iter(self._open), offset + 1)
        return AbortedTransaction(producer_id, first_offset, offset, last_stable_offset)

    def replay(self, batch: RecordBatch) -> AbortedTransaction | None:
        """Add a batch that already has its offset: copied from a leader, or read from a file.

        Neither sequence nor epoch is checked (``AppendOrigin.REPLICATION``), because the leader has checked both. Returns
        the index entry of a transaction that the batch aborts.
        """
        if batch.producer_id < 0:
            return None
        if not batch.is_control:
            self.update(batch, batch.base_offset, batch.max_timestamp)
            return None
        marker = parse_end_txn_marker(batch)
        if marker is None:
            return None
        return self.complete(
            batch.producer_id, batch.producer_epoch, marker, batch.base_offset, batch.max_timestamp
        )

    def _forget_verification(self, producer_id: int, epoch: int) -> None:
        """Forget the producer's verification, because a marker invalidates it (``UnifiedLog.updateProducers``)."""
        verification = self.verifications.get(producer_id)
        if verification is None:
            return
        # Produce v12 of the next transaction waits for this marker, and its guard has the marker's epoch. The marker's
        # transaction version does not matter: EndTxn v4 does not change the epoch, and v5 has bumped it before.
        if verification.supports_epoch_bump and verification.epoch == epoch:
            return
        del self.verifications[producer_id]

    # -- verification (KIP-890) ---------------------------------------------------------------------------------

    def start_verification(
        self, producer_id: int, epoch: int, sequence: int, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Start the verification of a transaction. Returns the guard to pass to the append; None if the transaction is
        already open in this partition, and so needs no verification.
        """
        if self.has_open_transaction(producer_id, epoch):
            return None
        known = self.verifications.get(producer_id)
        if known is None:
            known = Verification(VerificationGuard(), epoch, sequence, supports_epoch_bump, now_ms)
            self.verifications[producer_id] = known
        elif epoch > known.epoch:
            known.epoch, known.lowest_sequence = epoch, sequence
        elif epoch == known.epoch and sequence < known.lowest_sequence:
            known.lowest_sequence = sequence
        return known.guard

    def is_guard_current(self, producer_id: int, guard: VerificationGuard) -> bool:
        return self._is_verified(producer_id, guard)

    # -- last stable offset -------------------------------------------------------------------------------------

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        entry = self.entries.get(producer_id)
        return entry is not None and entry.current_txn_first_offset != NO_OFFSET and entry.epoch == epoch

    def forget_replicated(self, high_watermark: int) -> None:
        """Remove ended transactions whose marker is replicated: they no longer limit the last stable offset."""
        while self._unreplicated and self._unreplicated[0][1] < high_watermark:
            self._unreplicated.popleft()

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """First offset of the oldest transaction that is open, or whose marker is not below the high watermark.

        If there is one, its offset is the last stable offset, where read_committed readers stop. Otherwise None.
        """
        self.forget_replicated(high_watermark)
        first_open = next(iter(self._open), None)
        if not self._unreplicated:
            return first_open
        first_ended = min(first for first, _ in self._unreplicated)
        return first_ended if first_open is None else min(first_open, first_ended)

    def open_transactions(self) -> Iterator[tuple[int, int]]:
        """(first offset, producer id) of each open transaction, in offset order."""
        yield from self._open.items()

    # -- expiration and snapshots -------------------------------------------------------------------------------

    def expire(self, now_ms: int, expiration_ms: int) -> list[int]:
        """Remove producers without an open transaction whose last record's timestamp is too old; returns their ids."""
        expired = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.current_txn_first_offset == NO_OFFSET
            and now_ms - entry.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        for producer_id, verification in list(self.verifications.items()):
            if now_ms - verification.created_ms >= expiration_ms:
                del self.verifications[producer_id]
        return expired

    def first_expiry_ms(self, expiration_ms: int) -> int | None:
        """Time at which `expire` will remove the first producer, if no producer appends before; None if no producer can
        expire.
        """
        if not self.entries and not self.verifications:
            return None
        since_ms = (
            entry.last_timestamp_ms
            for entry in self.entries.values()
            if entry.current_txn_first_offset == NO_OFFSET
        )
        asked_ms = (verification.created_ms for verification in self.verifications.values())
        first_ms = min((*since_ms, *asked_ms), default=None)
        return None if first_ms is None else first_ms + expiration_ms

    def snapshot(self) -> list[ProducerSnapshotEntry]:
        """Content of a ``.snapshot`` file. It has only the last batch of each producer, as in Kafka."""
        return [
            ProducerSnapshotEntry(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_offset=entry.last_offset,
                offset_delta=entry.batches[-1].last_offset - entry.batches[-1].first_offset
                if entry.batches
                else 0,
                timestamp=entry.last_timestamp_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_first_offset=entry.current_txn_first_offset,
            )
            for entry in self.entries.values()
        ]

    @classmethod
    def restore(
        cls, entries: Iterable[ProducerSnapshotEntry], now_ms: int, expiration_ms: int
    ) -> ProducerStateManager:
        """The state in a snapshot, without producers that have expired since."""
        producers = cls()
        open_transactions = []
        for stored in entries:
            is_open = stored.current_txn_first_offset != NO_OFFSET
            if not is_open and now_ms - stored.timestamp >= expiration_ms:
                continue
            entry = ProducerStateEntry(
                stored.producer_id,
                stored.producer_epoch,
                coordinator_epoch=stored.coordinator_epoch,
                last_timestamp_ms=stored.timestamp,
                current_txn_first_offset=stored.current_txn_first_offset,
            )
            if stored.last_offset != NO_OFFSET:
                first_sequence = (stored.last_sequence - stored.offset_delta) & SEQUENCE_MAX
                first_offset = stored.last_offset - stored.offset_delta
                entry.batches.append(
                    BatchMetadata(
                        first_sequence,
                        stored.last_sequence,
                        first_offset,
                        stored.last_offset,
                        stored.timestamp,
                    )
                )
            producers.entries[stored.producer_id] = entry
            if is_open:
                open_transactions.append((stored.current_txn_first_offset, stored.producer_id))
        producers._open.update(sorted(open_transactions))
        return producers


def _stale_epoch(batch: RecordBatch, entry: ProducerStateEntry) -> AppendRefused:
    return AppendRefused(
        ErrorCode.invalid_producer_epoch,
        f"producer {batch.producer_id}: epoch {batch.producer_epoch} is older than epoch {entry.epoch}",
    )
