"""Finding and reading in a log: by offset, by time, and the aborted transactions of what was read."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator

from protocol.batch import CorruptBatch, RecordBatch
from protocol.named_tuple import NamedTuple
from storage.aborted import AbortedTransaction
from storage.by_time import first_in_batch
from storage.files import AppendFile, DamagedFile
from storage.salvage import Damaged, sound_batches
from storage.segment import SCAN_BYTES, Segment
from storage.segment_list import SegmentList
from storage.steps import Steps, run

TAIL_BATCHES_REMEMBERED = 256
"""Places of the newest batches, so that a reader at the tail finds its batch without a scan."""


class Span(NamedTuple):
    """A stretch of one segment's file."""

    file: AppendFile
    position: int
    length: int
    base_offset: int
    """Of the segment."""

    def bytes(self) -> bytes:
        return self.file.read(self.position, self.length)


class TimestampedOffset(NamedTuple):
    """A record found by time."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class Place:
    """Where a batch stands."""

    __slots__ = ("last_offset", "position", "segment", "size")

    def __init__(self, last_offset: int, segment: Segment, position: int, size: int) -> None:
        self.last_offset = last_offset
        self.segment = segment
        self.position = position
        self.size = size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and self.values() == other.values()

    def values(self) -> tuple[int, Segment, int, int]:
        return (self.last_offset, self.segment, self.position, self.size)


class ReadableLog:
    """The segments of a log, and how one reads in them. What it costs does not depend on how many there are."""

    def __init__(self, segments: list[Segment], log_start_offset: int) -> None:
        self._list = SegmentList(segments)
        self.segments = self._list.all
        """By offset; only the log itself changes them."""
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_start_offset
        self.is_closed = False
        """Once it is, nothing may change its files (`ClosedLog`), and a search by time ends."""
        self._tail: deque[Place] = deque(maxlen=TAIL_BATCHES_REMEMBERED)

    @property
    def exists(self) -> bool:
        """Whether the directory has been made."""
        return bool(self.segments)

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        return self._list.size

    # -- by offset ----------------------------------------------------------------------------------------------

    def segment_index(self, offset: int) -> int:
        """The index of the segment whose range holds ``offset``."""
        return self._list.index_of(offset)

    def sealed_bytes(self, first: int, end: int) -> int:
        """Bytes of the segments from one index up to another, all of them sealed."""
        return self._list.bytes_from(first, end) if first < end else 0

    def locate(self, offset: int) -> Place | None:
        """The batch that holds ``offset``, or the next one; None at or after the log's end."""
        if offset >= self.log_end_offset or not self.segments:
            return None
        tail = self._tail
        if tail and tail[0].last_offset < offset:
            index = bisect_right(tail, offset - 1, key=_last_offset)
            return tail[index]
        for index in range(self._list.index_of(offset), len(self.segments)):
            segment = self.segments[index]
            found = segment.locate(offset)
            if found is not None:
                return Place(-1, segment, *found)
        return None

    def read(self, offset: int, end_offset: int, max_bytes: int, *, whole_first_batch: bool) -> Span | None:
        """Where the bytes of ``offset`` up to (not with) ``end_offset`` stand, at most ``max_bytes`` of them.

        A span begins with the batch that holds ``offset``, never leaves its segment and may cut its last batch, as
        Kafka's do; with ``whole_first_batch`` the first one is whole even when it is larger. None: nothing there.
        """
        if offset >= end_offset:
            return None
        place = self.locate(offset)
        if place is None:
            return None
        segment, position = place.segment, place.position
        available = self._end_position(segment, end_offset) - position
        if available <= 0:
            return None
        length = min(max_bytes, available)
        if length < place.size:
            if not whole_first_batch:
                return None
            length = place.size
        return Span(segment.log, position, length, segment.base_offset)

    def _end_position(self, segment: Segment, end_offset: int) -> int:
        """The position in ``segment`` before which only offsets below ``end_offset`` stand."""
        if end_offset >= self.log_end_offset:
            return segment.size
        place = self.locate(end_offset)
        if place is None or place.segment is not segment:
            return segment.size
        return place.position

    def base_offset_at(self, offset: int) -> int:
        """The base offset of the batch that holds ``offset``; ``offset`` itself where there is none."""
        place = self.locate(offset)
        if place is None:
            return offset
        return int.from_bytes(place.segment.log.read(place.position, 8), "big")

    def bytes_between(self, offset: int, end_offset: int) -> int:
        """How many bytes a reader at ``offset`` could get; an upper bound where batches are cut."""
        if offset >= end_offset:
            return 0
        place = self.locate(offset)
        if place is None:
            return 0
        first = self._list.index_of(place.segment.base_offset)
        last = self._list.index_of(end_offset - 1)
        if first > last:
            return 0
        between = self._list.bytes_from(first, last) if first < last else 0
        return between + self._end_position(self.segments[last], end_offset) - place.position

    def batches(self, offset: int | None = None) -> Iterator[RecordBatch]:
        """All batches from the one that holds ``offset`` (by default the log start) to the end."""
        start = self.log_start_offset if offset is None else offset
        place = self.locate(start)
        if place is None:
            return
        position = place.position
        for segment in self.segments[self._list.index_of(place.segment.base_offset) :]:
            try:
                yield from segment.batches(position)
            except CorruptBatch as error:
                raise DamagedFile(segment.log.name, str(error)) from error
            position = 0

    def sound_batches(self, offset: int) -> Iterator[RecordBatch | Damaged]:
        """As ``batches``, each checked by its CRC, and past damage: see `storage.salvage`."""
        if offset < self.log_end_offset and self.segments:
            yield from sound_batches(self.segments, self._list.index_of(offset), offset, self.log_end_offset)

    def aborted_transactions(self, offset: int, span: Span) -> list[AbortedTransaction]:
        """The aborted transactions that a reader of ``span`` must know, in marker order: more than needed, never less."""
        first = self._list.index_of(span.base_offset)
        upper: int | None = None
        found = []
        for segment in self._list.aborting_from(first):
            if upper is None:
                upper = self._upper_bound(first, span)
            for entry in segment.transaction_index.from_offset(offset):
                if entry.first_offset < upper:
                    found.append(entry)
                if entry.last_stable_offset >= upper:
                    return found
        return found

    def was_aborted(self, producer_id: int, offset: int) -> bool:
        """Whether a record of this producer, which is in a transaction that has ended, lies in an aborted one."""
        return any(
            entry.producer_id == producer_id and entry.first_offset <= offset <= entry.last_offset
            for segment in self._list.aborting_from(self._list.index_of(offset))
            for entry in segment.transaction_index.from_offset(offset)
        )

    def _upper_bound(self, index: int, span: Span) -> int:
        """An offset that is not below any in a span of a segment."""
        upper = self.segments[index].offset_index.offset_after_position(span.position + span.length)
        if upper is None:
            upper = self._list.next_base(index)
        return self.log_end_offset if upper is None else upper

    # -- by time ------------------------------------------------------------------------------------------------

    def find_timestamp(self, timestamp_ms: int) -> TimestampedOffset | None:
        """The first record at or after the log start whose timestamp is not smaller."""
        return run(self.timestamp_search(timestamp_ms))

    def find_max_timestamp(self) -> TimestampedOffset | None:
        """The record with the largest timestamp, the first of them; control records count."""
        return run(self.max_timestamp_search())

    def timestamp_search(self, timestamp_ms: int) -> Steps[TimestampedOffset | None]:
        """`find_timestamp` in steps, between which the log may change."""
        return self._search(timestamp_ms, self.log_start_offset)

    def max_timestamp_search(self) -> Steps[TimestampedOffset | None]:
        """`find_max_timestamp` in steps, between which the log may change.

        The record may stand below the log start, as on Kafka (``UnifiedLog.fetchOffsetByTimestamp``): DeleteRecords moves
        the log start and leaves the batches of the segment that it lies in.
        """
        largest_ms = self._list.largest_timestamp_ms() if self.size else 0
        from_offset = self.segments[self._list.first_since(largest_ms)].base_offset if self.size else 0
        return self._search(largest_ms, from_offset)

    def _search(self, timestamp_ms: int, from_offset: int) -> Steps[TimestampedOffset | None]:
        while not self.is_closed:
            candidate = self._batch_since(timestamp_ms, from_offset)
            if candidate is None:
                return None
            path, batch = candidate
            try:
                found = yield from first_in_batch(batch, timestamp_ms, from_offset)
            except CorruptBatch as error:
                raise DamagedFile(path, str(error)) from error
            if found is not None:
                return TimestampedOffset(*found, batch.partition_leader_epoch)
            from_offset = batch.last_offset + 1
        return None

    def _batch_since(self, timestamp_ms: int, from_offset: int) -> tuple[str, RecordBatch] | None:
        """The first batch that may hold such a record, and its file."""
        for index in range(self._list.first_since(timestamp_ms), len(self.segments)):
            segment = self.segments[index]
            if segment.max_timestamp_ms < timestamp_ms:
                continue
            segment.used = True
            start = max(segment.time_index.offset_at_or_before(timestamp_ms), from_offset)
            position = segment.offset_index.position_at_or_before(start)
            try:
                for batch in segment.batches(position, SCAN_BYTES):
                    if batch.max_timestamp >= timestamp_ms and batch.last_offset >= from_offset:
                        return segment.log.name, batch
            except CorruptBatch as error:
                raise DamagedFile(segment.log.name, str(error)) from error
        return None


def _last_offset(place: Place) -> int:
    return place.last_offset
