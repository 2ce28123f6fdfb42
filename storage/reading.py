"""Searches and reads in a log, by offset and by time, and finds the aborted transactions of a range."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator

from protocol.batch import CorruptBatch, Reason, RecordBatch
from protocol.named_tuple import NamedTuple
from storage.aborted import AbortedTransaction
from storage.by_time import first_in_batch
from storage.files import AppendFile, DamagedFile
from storage.salvage import Damaged, sound_batches
from storage.segment import SCAN_BYTES, Segment
from storage.segment_list import SegmentList
from storage.steps import Steps, run
from storage.topic_configs import RECORD_BYTES_MAX

TAIL_BATCHES_REMEMBERED = 256
"""Number of newest batches whose positions are kept, so that a reader at the log end needs no scan."""


class Span(NamedTuple):
    """A range of bytes in one segment's file."""

    file: AppendFile
    position: int
    length: int
    base_offset: int
    """Base offset of the segment."""

    def bytes(self) -> bytes:
        return self.file.read(self.position, self.length)


class TimestampedOffset(NamedTuple):
    """A record found by its timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class Place:
    """Position of a batch in the log's files."""

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
    """The part of a log that reads its segments. The cost of a read does not depend on the number of segments."""

    def __init__(self, segments: list[Segment], log_start_offset: int) -> None:
        self._list = SegmentList(segments)
        self.segments = self._list.all
        """Segments by offset. Only the log itself changes this list."""
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_start_offset
        self.is_closed = False
        """Whether the log was closed. If so, a write raises `ClosedLog`, and a running search by time returns None."""
        self._tail: deque[Place] = deque(maxlen=TAIL_BATCHES_REMEMBERED)

    @property
    def exists(self) -> bool:
        """Whether the log has files."""
        return bool(self.segments)

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        return self._list.size

    # -- by offset ----------------------------------------------------------------------------------------------

    def segment_index(self, offset: int) -> int:
        """Index of the segment whose range contains ``offset``."""
        return self._list.index_of(offset)

    def sealed_bytes(self, first: int, end: int) -> int:
        """Total bytes of the segments from index ``first`` up to (excluding) ``end``, all of them sealed."""
        return self._list.bytes_from(first, end) if first < end else 0

    def locate(self, offset: int) -> Place | None:
        """Position of the batch that contains ``offset``, or of the next one; None at or above the log end offset."""
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

    def read(
        self,
        offset: int,
        end_offset: int,
        max_bytes: int,
        *,
        whole_first_batch: bool,
        last_offset: int | None = None,
    ) -> Span | None:
        """Find the bytes from ``offset`` up to (excluding) ``end_offset``, at most ``max_bytes``; None if there are none.

        A span begins with the batch that contains ``offset``, does not leave its segment, and may end inside a batch, as in
        Kafka. With ``whole_first_batch`` the first batch is complete even if it is larger. With ``last_offset`` the batch
        that contains it is the last one.
        """
        if offset >= end_offset:
            return None
        place = self.locate(offset)
        if place is None:
            return None
        segment, position = place.segment, place.position
        available = self._end_position(segment, end_offset) - position
        if last_offset is not None:
            last = self.locate(last_offset)
            if last is not None and last.segment is segment:
                available = min(available, last.position + last.size - position)
        if available <= 0:
            return None
        length = min(max_bytes, available)
        if length < place.size:
            if not whole_first_batch:
                return None
            length = place.size
        return Span(segment.log, position, length, segment.base_offset)

    def _end_position(self, segment: Segment, end_offset: int) -> int:
        """Position in ``segment`` of the first batch at or above ``end_offset``."""
        if end_offset >= self.log_end_offset:
            return segment.size
        place = self.locate(end_offset)
        if place is None or place.segment is not segment:
            return segment.size
        return place.position

    def base_offset_at(self, offset: int) -> int:
        """Base offset of the batch that contains ``offset``; ``offset`` itself if there is none."""
        place = self.locate(offset)
        if place is None:
            return offset
        return int.from_bytes(place.segment.log.read(place.position, 8), "big")

    def bytes_between(self, offset: int, end_offset: int) -> int:
        """Number of bytes between two offsets. An upper bound, because whole batches are counted."""
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
        """All batches from the one that contains ``offset`` (default: the log start) to the end."""
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
        """All batches from ``offset`` on with valid CRCs, and the damaged ranges between them: see `storage.salvage`."""
        if offset < self.log_end_offset and self.segments:
            yield from sound_batches(self.segments, self._list.index_of(offset), offset, self.log_end_offset)

    def aborted_transactions(self, offset: int, span: Span) -> list[AbortedTransaction]:
        """Aborted transactions that overlap with ``span``, in the order of their markers. A few that do not overlap may be
        included.
        """
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
        """Whether a producer's record belongs to an aborted transaction. The record's transaction must have ended."""
        return any(
            entry.producer_id == producer_id and entry.first_offset <= offset <= entry.last_offset
            for segment in self._list.aborting_from(self._list.index_of(offset))
            for entry in segment.transaction_index.from_offset(offset)
        )

    def _upper_bound(self, index: int, span: Span) -> int:
        """An offset that is above all offsets in a span of the segment ``index``."""
        upper = self.segments[index].offset_index.offset_after_position(span.position + span.length)
        if upper is None:
            upper = self._list.next_base(index)
        return self.log_end_offset if upper is None else upper

    # -- by time ------------------------------------------------------------------------------------------------

    def find_timestamp(self, timestamp_ms: int) -> TimestampedOffset | None:
        """First record at or above the log start whose timestamp is at or after ``timestamp_ms``; None if there is none."""
        return run(self.timestamp_search(timestamp_ms))

    def find_max_timestamp(self) -> TimestampedOffset | None:
        """First of the records with the largest timestamp, control records included; None if the log is empty."""
        return run(self.max_timestamp_search())

    def timestamp_search(
        self, timestamp_ms: int, record_bytes_max: int = RECORD_BYTES_MAX
    ) -> Steps[TimestampedOffset | None]:
        """`find_timestamp` in steps, between which the log may change.

        Raises ``CorruptBatch`` if the search meets a record above ``record_bytes_max`` in a compressed batch.
        """
        return self._search(timestamp_ms, self.log_start_offset, record_bytes_max)

    def max_timestamp_search(
        self, record_bytes_max: int = RECORD_BYTES_MAX
    ) -> Steps[TimestampedOffset | None]:
        """`find_max_timestamp` in steps, like `timestamp_search`.

        The record may be below the log start, as in Kafka (``UnifiedLog.fetchOffsetByTimestamp``): DeleteRecords moves the
        log start, but does not remove the earlier batches of the segment that contains it.
        """
        largest_ms = self._list.largest_timestamp_ms() if self.size else 0
        from_offset = self.segments[self._list.first_since(largest_ms)].base_offset if self.size else 0
        return self._search(largest_ms, from_offset, record_bytes_max)

    def _search(
        self, timestamp_ms: int, from_offset: int, record_bytes_max: int
    ) -> Steps[TimestampedOffset | None]:
        while not self.is_closed:
            candidate = self._batch_since(timestamp_ms, from_offset)
            if candidate is None:
                return None
            path, batch = candidate
            try:
                found = yield from first_in_batch(batch, timestamp_ms, from_offset, record_bytes_max)
            except CorruptBatch as error:
                if error.reason is Reason.TOO_LARGE:
                    raise
                raise DamagedFile(path, str(error)) from error
            if found is not None:
                return TimestampedOffset(*found, batch.partition_leader_epoch)
            from_offset = batch.last_offset + 1
        return None

    def _batch_since(self, timestamp_ms: int, from_offset: int) -> tuple[str, RecordBatch] | None:
        """(file name, batch) of the first batch that may have a record at or after ``timestamp_ms`` and ends at or
        above ``from_offset``.

        None if there is no such batch. Raises ``DamagedFile`` if a batch cannot be read.
        """
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
