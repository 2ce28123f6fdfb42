"""One partition's log: segments, indexes, producer state, offsets. It has never heard of requests.

Only ``append`` makes the log longer; it returns after the write has. Offsets are assigned by the caller's place in the
order of calls. Nothing here waits and nothing reads the clock: ``now_ms`` is an argument.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from protocol.batch import CorruptBatch, EndTxnMarker, RecordBatch, patched_header
from protocol.records import producer_snapshot
from storage.checkpoints import write_partition_metadata
from storage.config import LogConfig
from storage.epochs import LeaderEpochs
from storage.files import AppendFile, StorageError, rename, write_file
from storage.index import AbortedTransaction
from storage.producers import Producers
from storage.segment import DELETED, SCAN_BYTES, Segment, file_name

EPOCH_FILE = "leader-epoch-checkpoint"
RELATIVE_OFFSET_MAX = 2**31 - 1
TAIL_BATCHES_REMEMBERED = 256
"""Places of the newest batches, so that a reader at the tail finds its batch without a scan."""


class Span(NamedTuple):
    """A stretch of one segment's file."""

    file: AppendFile
    position: int
    length: int

    def bytes(self) -> bytes:
        return self.file.read(self.position, self.length)


class TimestampedOffset(NamedTuple):
    """A record found by time."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class _Place(NamedTuple):
    last_offset: int
    segment: Segment
    position: int
    size: int


class Log:
    """The files of one partition. ``directory`` is made at the first append or by ``create``."""

    def __init__(
        self,
        directory: Path,
        topic_id: uuid.UUID,
        config: LogConfig,
        *,
        segments: list[Segment] | None = None,
        log_start_offset: int = 0,
        producers: Producers | None = None,
        epochs: LeaderEpochs | None = None,
        jitter: Callable[[int], int] = lambda bound_ms: 0,
    ) -> None:
        self.directory = directory
        self.topic_id = topic_id
        self.config = config
        self.segments = segments or []
        self._bases = [segment.base_offset for segment in self.segments]
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_start_offset
        self.producers = producers or Producers()
        self.epochs = epochs or LeaderEpochs()
        self._jitter = jitter
        # Everything below is on the disk for good (fsynced), and the indexes of each segment that ends there.
        self.flushed_offset = log_start_offset
        self._closed_clean = False
        # Of an empty log there is nothing to say, so 0 counts as taken.
        self.last_snapshot_offset = 0
        self._tail: deque[_Place] = deque(maxlen=TAIL_BATCHES_REMEMBERED)
        self.on_roll: Callable[[Segment], None] | None = None
        """Called with each segment that was just sealed: it wants an fsync."""

    @property
    def exists(self) -> bool:
        """Whether the directory has been made."""
        return bool(self.segments)

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    # -- writing ------------------------------------------------------------------------------------------------

    def create(self, now_ms: int) -> None:
        """Make the directory and the first segment, unless they are there.

        Nothing is forced to the disk before there are records: the cluster metadata knows all the rest.
        """
        if self.segments:
            return
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(self.directory, error) from error
        write_partition_metadata(self.directory, self.topic_id)
        self._add_segment(self.log_end_offset, now_ms, new_names_in=[self.directory.parent])
        self.epochs.save(self.directory / EPOCH_FILE, durable=False)

    def append_data(self, batch: RecordBatch, leader_epoch: int, now_ms: int, timestamp_ms: int) -> int:
        """Append a data batch at the end, and to the producer state; returns its base offset.

        ``timestamp_ms`` is the largest of its records as stored.
        """
        base_offset = self._append(batch, leader_epoch, now_ms)
        if batch.producer_id >= 0:
            self.producers.update(batch, base_offset, timestamp_ms)
        return base_offset

    def append_marker(
        self,
        batch: RecordBatch,
        marker: EndTxnMarker,
        leader_epoch: int,
        now_ms: int,
        transaction_version: int,
    ) -> int:
        """Append the marker that ends a transaction; returns its offset."""
        offset = self._append(batch, leader_epoch, now_ms)
        aborted = self.producers.complete(
            batch.producer_id, batch.producer_epoch, marker, offset, batch.max_timestamp, transaction_version
        )
        if aborted is not None:
            self.active.transaction_index.append(aborted)
        return offset

    def _append(self, batch: RecordBatch, leader_epoch: int, now_ms: int) -> int:
        base_offset = self.log_end_offset
        last_offset = base_offset + batch.last_offset_delta
        segment = self._segment_for(batch, last_offset, now_ms)
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        header = patched_header(batch.buffer, base_offset, leader_epoch, batch.start)
        size = batch.size
        position = segment.append(
            (header, memoryview(batch.buffer)[batch.start + len(header) : batch.start + size]),
            size,
            last_offset=last_offset,
            max_timestamp_ms=batch.max_timestamp,
            index_interval_bytes=self.config.index_interval_bytes,
        )
        self._tail.append(_Place(last_offset, segment, position, size))
        self.log_end_offset = last_offset + 1
        return base_offset

    def _segment_for(self, batch: RecordBatch, last_offset: int, now_ms: int) -> Segment:
        if not self.segments:
            self.create(now_ms)
        segment = self.segments[-1]
        if self._must_roll(segment, batch, last_offset, now_ms):
            segment = self.roll(now_ms)
        return segment

    def _must_roll(self, segment: Segment, batch: RecordBatch, last_offset: int, now_ms: int) -> bool:
        """``LogSegment.shouldRoll``: by size, by the records' own time, by a full index, by a too distant offset."""
        if segment.size == 0:
            return last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        config = self.config
        if segment.size > config.segment_bytes - batch.size:
            return True
        if segment.first_timestamp_ms >= 0:
            waited_ms = batch.max_timestamp - segment.first_timestamp_ms
        else:
            waited_ms = now_ms - segment.created_ms
        return (
            waited_ms > config.segment_ms - segment.jitter_ms
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or segment.index_is_full(config.segment_index_bytes)
        )

    def roll(self, now_ms: int) -> Segment:
        """Seal the active segment and begin the next one, with a snapshot of the producers at its base."""
        sealed = self.active
        sealed.seal()
        # Its records may be on the disk all of them, but its indexes are not yet.
        self.flushed_offset = min(self.flushed_offset, max(self.log_end_offset - 1, sealed.base_offset))
        self.take_snapshot()
        segment = self._add_segment(self.log_end_offset, now_ms)
        if self.on_roll is not None:
            self.on_roll(sealed)
        return segment

    def _add_segment(self, base_offset: int, now_ms: int, new_names_in: Sequence[Path] = ()) -> Segment:
        jitter_ms = self._jitter(min(self.config.segment_jitter_ms, self.config.segment_ms))
        segment = Segment(
            self.directory,
            base_offset,
            created_ms=now_ms,
            jitter_ms=jitter_ms,
            fresh=True,
            new_names_in=new_names_in,
        )
        segment.log.fileno()
        segment.save_indexes()
        self.segments.append(segment)
        self._bases.append(base_offset)
        return segment

    def take_snapshot(self, offset: int | None = None) -> None:
        """Write the producer state up to the log end (or up to where a replay stands), unless that is on the disk.

        Not forced to the disk: a torn one fails its CRC, and then the one before and the batches say the same.
        """
        offset = self.log_end_offset if offset is None else offset
        if not self.segments or offset <= self.last_snapshot_offset:
            return
        content = producer_snapshot.encode(self.producers.snapshot())
        write_file(self.directory / file_name(offset, "snapshot"), content)
        self.last_snapshot_offset = offset

    def restore_producers(self, producers: Producers, offset: int) -> None:
        """Begin again with the state of a snapshot (offset 0: with none)."""
        self.producers = producers
        self.last_snapshot_offset = offset

    def save_epochs(self) -> None:
        if self.segments:
            self.epochs.save(self.directory / EPOCH_FILE)

    def assign_epoch(self, epoch: int) -> None:
        """This replica leads from the log's end on; the entry is there before any record of the epoch (KIP-101).

        In memory. Kafka forces it to the disk at once, ten thousand times for as many partitions after a restart. Here
        it goes there with the epoch's first records, before the recovery point passes them: until then a crash loses
        nothing, since the batches carry their epoch and are read again, and an epoch without records says no more
        than the next one, which begins at the same offset and takes its place.
        """
        self.epochs.assign(epoch, self.log_end_offset)

    # -- reading ------------------------------------------------------------------------------------------------

    def segment_index(self, offset: int) -> int:
        """The index of the segment whose range holds ``offset``."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def locate(self, offset: int) -> _Place | None:
        """The batch that holds ``offset``, or the next one; None at or after the log's end."""
        if offset >= self.log_end_offset or not self.segments:
            return None
        tail = self._tail
        if tail and tail[0].last_offset < offset:
            index = bisect_right(tail, offset - 1, key=_last_offset)
            return tail[index]
        for index in range(self.segment_index(offset), len(self.segments)):
            segment = self.segments[index]
            found = segment.locate(offset)
            if found is not None:
                return _Place(-1, segment, *found)
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
        return Span(segment.log, position, length)

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
        first = self.segment_index(place.segment.base_offset)
        last = self.segment_index(end_offset - 1)
        if first > last:
            return 0
        if first == last:
            return self._end_position(place.segment, end_offset) - place.position
        between = sum(segment.size for segment in self.segments[first:last]) - place.position
        return between + self._end_position(self.segments[last], end_offset)

    def batches(self, offset: int | None = None) -> Iterator[RecordBatch]:
        """All batches from the one that holds ``offset`` (by default the log start) to the end."""
        start = self.log_start_offset if offset is None else offset
        place = self.locate(start)
        if place is None:
            return
        position = place.position
        for segment in self.segments[self.segment_index(place.segment.base_offset) :]:
            try:
                yield from segment.batches(position)
            except CorruptBatch as error:
                raise StorageError(segment.log.path, str(error)) from error
            position = 0

    def aborted_transactions(self, offset: int, span: Span) -> list[AbortedTransaction]:
        """The aborted transactions that a reader of ``span`` must know, in marker order: more than needed, never less."""
        first = self.segment_index(offset)
        segment = self.segments[first]
        if segment.log is not span.file:
            first = next(i for i, s in enumerate(self.segments) if s.log is span.file)
            segment = self.segments[first]
        upper = segment.offset_index.offset_after_position(span.position + span.length)
        if upper is None:
            following = first + 1
            upper = self._bases[following] if following < len(self._bases) else self.log_end_offset
        found = []
        for index in range(first, len(self.segments)):
            for entry in self.segments[index].transaction_index.from_offset(offset):
                if entry.first_offset < upper:
                    found.append(entry)
                if entry.last_stable_offset >= upper:
                    return found
        return found

    def find_timestamp(self, timestamp_ms: int) -> TimestampedOffset | None:
        """The first record at or after the log start whose timestamp is not smaller."""
        for segment in self.segments:
            if segment.max_timestamp_ms < timestamp_ms:
                continue
            try:
                found = self._find_timestamp_in(segment, timestamp_ms)
            except CorruptBatch as error:
                raise StorageError(segment.log.path, str(error)) from error
            if found is not None:
                return found
        return None

    def _find_timestamp_in(self, segment: Segment, timestamp_ms: int) -> TimestampedOffset | None:
        start = segment.time_index.offset_at_or_before(timestamp_ms)
        position = segment.offset_index.position_at_or_before(start)
        for batch in segment.batches(position, SCAN_BYTES):
            if batch.max_timestamp < timestamp_ms or batch.last_offset < self.log_start_offset:
                continue
            for record in batch.records():
                if record.timestamp >= timestamp_ms and record.offset >= self.log_start_offset:
                    return TimestampedOffset(record.offset, record.timestamp, batch.partition_leader_epoch)
        return None

    def find_max_timestamp(self) -> TimestampedOffset | None:
        """The record with the largest timestamp, the first of them; control records count."""
        if not any(segment.size for segment in self.segments):
            return None
        largest = max((segment.max_timestamp_ms for segment in self.segments if segment.size), default=-1)
        return self.find_timestamp(largest)

    # -- shortening ---------------------------------------------------------------------------------------------

    def advance_log_start(self, offset: int) -> None:
        """Nothing below ``offset`` may be read any more."""
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)

    def truncate_to(self, offset: int) -> None:
        """Cut every batch that holds ``offset`` or more. `recovery.truncate` does this and reloads the producers."""
        if offset >= self.log_end_offset:
            return
        self._tail.clear()
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.flushed_offset = min(self.flushed_offset, offset)
        self.epochs.truncate_from_end(offset)
        while len(self.segments) > 1 and self.segments[-1].base_offset > offset:
            self._drop_last_segment()
        if not self.segments:
            return
        created_ms = self.active.created_ms
        if self.active.base_offset > offset:
            self._drop_last_segment()
            self._add_segment(offset, created_ms)
        else:
            try:
                self.active.truncate(offset)
            except CorruptBatch as error:
                raise StorageError(self.active.log.path, str(error)) from error
        self.save_epochs()

    def _drop_last_segment(self) -> None:
        self._bases.pop()
        self.segments.pop().delete()

    def drop_oldest(self, count: int, now_ms: int) -> list[Path]:
        """Take the first ``count`` segments out of the log; returns the files to remove later.

        The log start moves first, so that nobody is pointed at what goes. If all of them go, a new one begins.
        """
        if count == len(self.segments):
            self.roll(now_ms)
        dropped = self.segments[:count]
        start = self._bases[count]
        if start > self.log_start_offset:
            self.advance_log_start(start)
        return self._take_out(0, dropped, None)

    def replace(self, sources: list[Segment], compacted: Segment | None) -> list[Path] | None:
        """Put one compacted segment in the place of several; returns the files to remove later.

        ``compacted`` has the base offset of the first source; its files are durable and end in ``.swap``, from where
        a crash finishes the exchange (`recovery`). Without one the sources go (nothing of them was kept). None, and
        nothing is changed, if the log does not have these segments any more.
        """
        try:
            index = self.segments.index(sources[0])
        except ValueError:
            return None
        if self.segments[index : index + len(sources)] != sources:
            return None
        return self._take_out(index, sources, compacted)

    def _take_out(self, index: int, segments: list[Segment], instead: Segment | None) -> list[Path]:
        self._tail.clear()
        end = index + len(segments)
        self.segments[index:end] = [] if instead is None else [instead]
        self._bases[index:end] = [] if instead is None else [instead.base_offset]
        retired: list[Path] = []
        for segment in segments:
            retired += segment.retire()
            snapshot = self.directory / file_name(segment.base_offset, "snapshot")
            if snapshot.exists():
                retired.append(snapshot.with_name(snapshot.name + DELETED))
                rename(snapshot, retired[-1])
        if instead is not None:
            instead.swap_in()
        return retired

    # -- durability ---------------------------------------------------------------------------------------------

    def flush_targets(self) -> list[Segment]:
        """The segments that hold bytes not yet fsynced; any thread may ``sync`` them."""
        return self.segments[self.segment_index(self.flushed_offset) :]

    @property
    def recovery_point(self) -> int:
        """What a checkpoint may say: segments that end at or below it are on the disk, their indexes too.

        The active segment may end right where it was flushed, and its indexes come later: it is not vouched for.
        """
        if self._closed_clean or not self.segments or self.flushed_offset <= self.active.base_offset:
            return self.flushed_offset
        return min(self.flushed_offset, self.log_end_offset - 1)

    def flushed_up_to(self, offset: int) -> None:
        self.flushed_offset = max(self.flushed_offset, offset)

    def close(self, *, clean: bool) -> None:
        """Close the files. A clean close seals the indexes, writes the producer snapshot and fsyncs everything."""
        if clean and self.segments:
            self.active.seal()
            self.take_snapshot()
            if self.flushed_offset < self.log_end_offset:
                if self.epochs.dirty:
                    self.save_epochs()
                for segment in self.flush_targets():
                    segment.sync()
                self.flushed_up_to(self.log_end_offset)
            else:
                self.active.sync_indexes()
            self._closed_clean = True
        for segment in self.segments:
            segment.close()


def _last_offset(place: _Place) -> int:
    return place.last_offset


__all__ = ["CorruptBatch", "Log", "Span", "TimestampedOffset"]
