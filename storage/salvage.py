"""Reads a damaged log: all valid batches, and the damaged byte ranges between them.

Coordinators load their partitions like this (`broker.coordinator_runtime.loader`), so that one damaged
batch does not lose the transactional ids and groups in the batches behind it. Each batch's CRC is verified. If a length is
damaged too, the next batch is searched for byte by byte: base offset, magic and CRC distinguish it from other bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

from google_crc32c import value as crc32c

from protocol.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, CorruptBatch, RecordBatch
from protocol.named_tuple import NamedTuple
from storage.segment import REPLAY_BYTES, Segment, batch_bytes

DAMAGED_BYTES_KEPT_MAX: Final = 1024 * 1024
"""Maximum size of ``Damaged.content``, in which coordinators search for transactional ids and group ids."""

_BASE_OFFSET: Final = Struct(">q")
_CRC_FROM: Final = 21
_ONE_PIECE_BYTES: Final = 64 * 1024
"""Size up to which a batch is copied to compute its CRC in one call: the copy still fits into the processor's cache."""
# A base offset below 2^48, then magic 2. A lookahead, because candidates may overlap.
_CANDIDATE: Final = re.compile(rb"(?=\0\0.{14}\x02)", re.DOTALL)


class Damaged(NamedTuple):
    """A range of a segment's file without a valid batch."""

    file: str
    position: int
    """Position in the file; -1 if only the offset is known."""
    length: int
    """Length of the damaged range in bytes."""
    offset: int
    """First offset that is missing because of the damage."""
    next_offset: int
    """First offset after the damage."""
    reason: str
    content: bytes
    """The bytes of the damaged range, at most ``DAMAGED_BYTES_KEPT_MAX``."""


def sound_batches(
    segments: Sequence[Segment], first: int, offset: int, log_end_offset: int
) -> Iterator[RecordBatch | Damaged]:
    """Batches from ``offset`` on, which is in the segment ``first``, and the damaged ranges between them.

    The first batch may begin below ``offset``. Raises ``StorageError`` if the disk cannot read.
    """
    for index in range(first, len(segments)):
        segment = segments[index]
        is_last = index + 1 == len(segments)
        end_offset = log_end_offset if is_last else segments[index + 1].base_offset
        position = segment.offset_index.position_at_or_before(offset) if index == first else 0
        for found in _Walk(segment, position, max(offset, segment.base_offset), end_offset).run():
            if found.next_offset > offset:
                yield found
                offset = found.next_offset


class _Walk:
    """Reader of one segment: yields the valid batches, and the damaged ranges between them."""

    def __init__(self, segment: Segment, position: int, offset: int, end_offset: int) -> None:
        self._segment = segment
        self._position = position
        self._offset = offset
        self._end_offset = end_offset
        # The batch with the first wanted offset may begin below it, and an index entry may point further below.
        self._lowest = segment.base_offset

    def run(self) -> Iterator[RecordBatch | Damaged]:
        while self._position < self._segment.size:
            window = self._segment.log.read(self._position, REPLAY_BYTES)
            at = 0
            while (batch := self._sound(window, at)) is not None:
                yield batch
                at += batch.size
                self._lowest = batch.base_offset + batch.last_offset_delta + 1
            self._position += at
            if at == 0:
                large = self._sound_at(self._position) if batch_bytes(window, 0) > len(window) else None
                if large is None:
                    yield self._damaged(window)
                else:
                    yield large
                    self._position += large.size
                    self._lowest = large.next_offset

    def _sound(self, window: bytes, at: int) -> RecordBatch | None:
        """The batch at a position of the window, if it is complete and valid, else None."""
        try:
            batch = RecordBatch.parse(window, at)
        except CorruptBatch:
            return None
        base_offset, lowest, size = batch.base_offset, self._lowest, batch.size
        last_offset = base_offset + batch.last_offset_delta
        if not lowest <= base_offset <= last_offset < self._end_offset:
            return None
        after = at + size
        large = size > _ONE_PIECE_BYTES
        if not (batch.has_valid_crc() if large else crc32c(window[at + _CRC_FROM : after]) == batch.crc):
            return None
        if after + HEADER_BYTES <= len(window):
            # The CRC does not cover the base offset. If the next batch begins before this one ends, this offset is damaged.
            (next_base,) = _BASE_OFFSET.unpack_from(window, after)
            if lowest <= next_base <= last_offset and _has_valid_crc(window, after):
                return None
        return batch

    def _sound_at(self, position: int) -> RecordBatch | None:
        """The batch at a position of the file, if it is valid, else None. It may be larger than a window."""
        header = self._segment.log.read(position, HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            return None
        size = int.from_bytes(header[8:LOG_OVERHEAD_BYTES], "big", signed=True) + LOG_OVERHEAD_BYTES
        if not HEADER_BYTES <= size <= self._segment.size - position:
            return None
        return self._sound(self._segment.log.read(position, size), 0)

    def _damaged(self, window: bytes) -> Damaged:
        """The range from the current position to the next valid batch, to which the position moves."""
        start, reason = self._position, _reason(window)
        offset = self._offset = max(self._offset, self._lowest)
        found = self._next_sound(window)
        self._position, next_offset = (self._segment.size, self._end_offset) if found is None else found
        length = self._position - start
        self._offset = max(offset, next_offset)
        content = self._segment.log.read(start, min(length, DAMAGED_BYTES_KEPT_MAX))
        return Damaged(str(self._segment.log.path), start, length, offset, self._offset, reason, content)

    def _next_sound(self, window: bytes) -> tuple[int, int] | None:
        """(position, base offset) of the next valid batch; None if there is none.

        The batch is looked for where the damaged batch's length field points to, then searched for byte by byte.
        """
        start = self._position
        if len(window) >= LOG_OVERHEAD_BYTES:
            size = int.from_bytes(window[8:LOG_OVERHEAD_BYTES], "big") + LOG_OVERHEAD_BYTES
            batch = self._sound_at(start + size)
            if batch is not None:
                return start + size, batch.base_offset
        while len(window) >= HEADER_BYTES:
            for candidate in _CANDIDATE.finditer(window, 1 if start == self._position else 0):
                place = start + candidate.start()
                batch = self._sound_at(place) if self._may_follow(window, candidate.start()) else None
                if batch is not None:
                    return place, batch.base_offset
            # The next window overlaps, so that it contains a header that this window cuts off.
            start += len(window) - HEADER_BYTES + 1
            window = self._segment.log.read(start, REPLAY_BYTES)
        return None

    def _may_follow(self, window: bytes, at: int) -> bool:
        """Whether the base offset at ``at`` is possible for the next batch. Few byte sequences that are not a batch pass
        this check.
        """
        base_offset = int.from_bytes(window[at : at + 8], "big")
        return self._lowest <= base_offset < self._end_offset


def _has_valid_crc(window: bytes, at: int) -> bool:
    try:
        return RecordBatch.parse(window, at).has_valid_crc()
    except CorruptBatch:
        return False


def unreadable(batch: RecordBatch, file: str, reason: str) -> Damaged:
    """The damaged range for a batch with a valid CRC whose records cannot be parsed."""
    content = bytes(batch.data[:DAMAGED_BYTES_KEPT_MAX])
    return Damaged(file, -1, batch.size, batch.base_offset, batch.next_offset, reason, content)


def _reason(window: bytes) -> str:
    try:
        batch = RecordBatch.parse(window)
    except CorruptBatch as error:
        return str(error)
    if not batch.has_valid_crc():
        return f"the CRC of the batch at offset {batch.base_offset} does not match"
    return f"offsets {batch.base_offset} to {batch.last_offset} are out of order"
