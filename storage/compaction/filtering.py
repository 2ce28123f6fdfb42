"""Decides what compaction keeps of a batch: all records, some of them, only the header, or nothing (`Cleaner.filterTo`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from protocol.batch import Record, RecordBatch, retain
from protocol.named_tuple import NamedTuple
from protocol.slotted import slotted
from storage.compaction.offset_map import OffsetMap
from storage.compaction.transactions import CleanedTransactionMetadata

TIMESTAMP_MAX: Final = 2**63 - 1
RECORDS_PER_TICK: Final = 64


class LastRecord(NamedTuple):
    """The last data batch of a producer, or its last marker, which a pass must keep.

    That is the data batch that ends at ``last_data_offset``. If ``last_data_offset`` is -1, it is the marker with
    the producer epoch ``epoch``.
    """

    last_data_offset: int
    epoch: int


@slotted(frozen=True)
class Rules:
    """Parameters by which a compaction pass filters records, besides the keys and the transactions."""

    upper_bound: int
    """Offset at which the compactable part ends (exclusive)."""
    high_watermark: int
    """The batch that ends here keeps at least its header. (Kafka 4.3 keeps the one at the upper bound instead.)"""
    now_ms: int
    delete_retention_ms: int
    producers: Mapping[int, LastRecord]


class Filter:
    """Filters the batches of one compaction pass. The batches must be passed in the order of the log."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactionMetadata,
        rules: Rules,
        tick: Callable[[], object] = lambda: None,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._rules = rules
        self._tick = tick
        self.records_read = 0
        self.records_kept = 0
        self.keyless = 0
        """Number of dropped records without a key. A compacted topic should have none."""

    def left_of(self, batch: RecordBatch) -> RecordBatch | None:
        """The batch to write in place of ``batch``: the same object if the batch does not change, None to write nothing."""
        discards = self._transactions.may_discard(batch)
        drops_records = discards
        if batch.is_control:
            horizon_ms = batch.delete_horizon_ms
            drops_records = discards and horizon_ms is not None and horizon_ms <= self._rules.now_ms
        self.records_read += batch.record_count
        kept = [] if drops_records else self._kept(batch)
        if not kept:
            return RecordBatch.parse(retain(batch, kept)) if self._keeps_shell(batch) else None
        self.records_kept += len(kept)
        horizon_ms = self._new_horizon_ms(batch, kept, marker_is_done=discards and batch.is_control)
        if horizon_ms is None and len(kept) == batch.record_count:
            return batch
        return RecordBatch.parse(retain(batch, kept, horizon_ms))

    def _keeps_shell(self, batch: RecordBatch) -> bool:
        """Whether to keep the header of a batch without records.

        It is kept if the batch has its producer's last sequence or last marker, or ends at the high watermark.
        """
        if batch.next_offset == self._rules.high_watermark:
            return True
        last = self._rules.producers.get(batch.producer_id) if batch.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return batch.last_offset == last.last_data_offset
        return batch.is_control and batch.producer_epoch == last.epoch

    def _new_horizon_ms(self, batch: RecordBatch, kept: list[Record], *, marker_is_done: bool) -> int | None:
        """Delete horizon for a batch with tombstones, or with a marker whose transaction has no data left (KIP-534).

        None if the batch already has a delete horizon, or needs none.
        """
        if batch.has_delete_horizon or not (marker_is_done or any(record.value is None for record in kept)):
            return None
        horizon_ms = self._rules.now_ms + self._rules.delete_retention_ms
        return horizon_ms if horizon_ms <= TIMESTAMP_MAX else None

    def _kept(self, batch: RecordBatch) -> list[Record]:
        if batch.is_control:
            return list(batch.records())
        kept = []
        horizon_ms = batch.delete_horizon_ms
        keeps_tombstones = horizon_ms is None or self._rules.now_ms < horizon_ms
        mapped_up_to, last_offset = self._offsets.latest_offset, self._offsets.get
        for count, record in enumerate(batch.records()):
            if not count % RECORDS_PER_TICK:
                self._tick()
            if record.offset > mapped_up_to:
                kept.append(record)
            elif record.key is None:
                self.keyless += 1
            elif record.offset >= last_offset(record.key) and (keeps_tombstones or record.value is not None):
                kept.append(record)
        return kept


def learn(batch: RecordBatch, from_offset: int, offsets: OffsetMap, tick: Callable[[], object]) -> bool:
    """Add the keys of a data batch to the map ``offsets``, without records below ``from_offset``.

    Returns False if the map was full before the last key. Calls ``tick`` every ``RECORDS_PER_TICK`` records.
    """
    for count, record in enumerate(batch.records()):
        if not count % RECORDS_PER_TICK:
            tick()
        if record.key is not None and record.offset >= from_offset:
            if offsets.is_full:
                return False
            offsets.put(record.key, record.offset)
    return True
