"""Checks a segment's batches one after the other in a recovery, and indexes the valid ones.

A log of small batches has a million batches per GiB. So one loop over the bytes does all the work, without creating an
object and without avoidable calls. If the loop rejects a batch, `_check_one` checks the batch again to find the reason.
"""

from __future__ import annotations

from collections import deque
from struct import Struct

from google_crc32c import value as crc32c

from protocol.batch import (
    CONTROL,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL,
    CorruptBatch,
    RecordBatch,
)
from storage.producers import BATCHES_REMEMBERED
from storage.room import RELATIVE_OFFSET_MAX
from storage.segment import REPLAY_BYTES, Segment

# base offset, length, leader epoch, magic, crc | attributes, last offset delta, max timestamp, producer id
_CHECKED_FIELDS = Struct(">qiibIhi8xqq")
_OF_TRANSACTIONS = TRANSACTIONAL | CONTROL
_CRC_FROM = 21
_ONE_PIECE_BYTES = 64 * 1024
"""Size up to which a batch is copied to compute its CRC in one call: the copy still fits into the processor's cache."""


class Check:
    """One check of a segment's batches, from a position up to the first invalid batch."""

    __slots__ = (
        "_index_interval_bytes",
        "_offset_max",
        "_segment",
        "end_offset",
        "epochs",
        "has_transactions",
        "last_batches",
        "position",
        "reason",
    )

    def __init__(self, segment: Segment, position: int, index_interval_bytes: int) -> None:
        self._segment = segment
        self._index_interval_bytes = index_interval_bytes
        self._offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
        self.position = position
        """Position in the file behind the last valid batch."""
        self.end_offset = segment.base_offset
        """Offset after the last valid batch."""
        self.reason: str | None = None
        """What is wrong with the batch at ``position``; None if the file ends there."""
        self.epochs: list[tuple[int, int]] = []
        """(leader epoch, base offset) of each batch whose epoch differs from the epoch of the batch before it."""
        self.has_transactions = False
        """Whether there are transactional batches or markers. If so, the producer state depends on each of them."""
        self.last_batches: dict[int, deque[RecordBatch]] = {}
        """For each producer id, the headers of its last ``BATCHES_REMEMBERED`` batches outside of transactions."""

    def run(self) -> None:
        """Check and index the batches. The attributes then contain the result.

        The transaction index is not built here, but in `recovery`, because its entries depend on the producer state.
        """
        segment = self._segment
        segment.forget_batches()
        size = segment.size
        try:
            while self.position < size and self.reason is None:
                if not self._take_window():
                    self._check_one(next(segment.batches(self.position)))
        except CorruptBatch as error:
            self.reason = str(error)

    def _take_window(self) -> bool:
        """Check the batches in the next window, that is, the next ``REPLAY_BYTES`` of the file. Returns whether at least one
        batch was valid.
        """
        start, end_offset, offset_max = self.position, self.end_offset, self._offset_max
        note, interval, epochs = self._segment.note_batch, self._index_interval_bytes, self.epochs
        last_epoch = epochs[-1][0] if epochs else None
        places: dict[int, list[int]] = {}
        chunk = self._segment.log.read(start, REPLAY_BYTES)
        at, limit = 0, len(chunk)
        unpack = _CHECKED_FIELDS.unpack_from
        while at + HEADER_BYTES <= limit:
            offset, length, epoch, magic, crc, attributes, delta, max_timestamp, producer_id = unpack(
                chunk, at
            )
            size = length + LOG_OVERHEAD_BYTES
            stop = at + size
            if magic != MAGIC or size < HEADER_BYTES or stop > limit:
                break
            last_offset = offset + delta
            if offset < end_offset or delta < 0 or last_offset > offset_max:
                break
            if size > _ONE_PIECE_BYTES:
                sound = RecordBatch.parse(chunk, at).has_valid_crc()
            else:
                sound = crc32c(chunk[at + _CRC_FROM : stop]) == crc
            if not sound:
                break
            note(start + at, size, last_offset, max_timestamp, interval)
            if epoch != last_epoch:
                epochs.append((epoch, offset))
                last_epoch = epoch
            if producer_id >= 0:
                if producer_id in places:
                    places[producer_id].append(at)
                else:
                    places[producer_id] = [at]
                if attributes & _OF_TRANSACTIONS:
                    self.has_transactions = True
            end_offset, at = last_offset + 1, stop
        self.position, self.end_offset = start + at, end_offset
        self._remember(chunk, places)
        return at > 0

    def _remember(self, chunk: bytes, places: dict[int, list[int]]) -> None:
        """Add the batches at ``places`` in ``chunk``, by producer id, to ``last_batches``.

        The headers are copied, because a view would keep the large chunk in memory.
        """
        if self.has_transactions:
            return
        for producer_id, begins in places.items():
            last = self.last_batches.get(producer_id)
            if last is None:
                last = self.last_batches[producer_id] = deque(maxlen=BATCHES_REMEMBERED)
            for begin in begins[-BATCHES_REMEMBERED:]:
                last.append(RecordBatch.parse_header(chunk[begin : begin + HEADER_BYTES]))

    def _check_one(self, batch: RecordBatch) -> None:
        """Check a batch that `_take_window` has rejected or that is larger than a window.

        Sets ``reason`` if the batch is invalid.
        """
        self.reason = self._problem(batch)
        if self.reason is not None:
            return
        self._segment.note_batch(
            self.position, batch.size, batch.last_offset, batch.max_timestamp, self._index_interval_bytes
        )
        self.epochs.append((batch.partition_leader_epoch, batch.base_offset))
        if batch.producer_id >= 0:
            self.has_transactions = self.has_transactions or batch.attributes & _OF_TRANSACTIONS != 0
            self._remember(bytes(batch.data[:HEADER_BYTES]), {batch.producer_id: [0]})
        self.position += batch.size
        self.end_offset = batch.last_offset + 1

    def _problem(self, batch: RecordBatch) -> str | None:
        if not batch.has_valid_crc():
            return f"the CRC of the batch at offset {batch.base_offset} does not match"
        if batch.base_offset < self.end_offset or batch.last_offset < batch.base_offset:
            previous = self.end_offset - 1
            return f"offsets {batch.base_offset} to {batch.last_offset} cannot follow {previous}"
        if batch.last_offset > self._offset_max:
            base_offset = self._segment.base_offset
            return f"offset {batch.last_offset} is too far from the segment's base {base_offset}"
        return None
