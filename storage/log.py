"""One partition's log: segments, indexes, producer state, offsets. The log does not depend on requests.

Only the ``append_…`` methods make the log longer, and they return after the write. A batch gets the next offset in the order
of the calls. Nothing here waits, and nothing reads the clock: ``now_ms`` is an argument.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Lock

from protocol.batch import CorruptBatch, EndTxnMarker, Reason, RecordBatch, batches
from protocol.records import producer_snapshot
from storage.aborted import AbortedTransaction
from storage.checkpoints import write_partition_metadata
from storage.config import LogConfig
from storage.epochs import LeaderEpochs
from storage.files import Buffer, StorageError, make_directory, replace_file, write_file
from storage.producers import ProducerStateManager
from storage.reading import Place, ReadableLog, Span, TimestampedOffset
from storage.renaming import delete, retire, retire_file, swap_in
from storage.room import RELATIVE_OFFSET_MAX, Room
from storage.segment import Segment, file_name

EPOCH_FILE = "leader-epoch-checkpoint"


class ClosedLog(AssertionError):
    """A write to a closed log. Its node is dead or its topic deleted, and its files may belong to another log by now."""


class Log(ReadableLog):
    """The files of one partition. The first append creates ``directory``, or ``create`` does."""

    def __init__(
        self,
        directory: Path,
        topic_id: uuid.UUID,
        config: LogConfig,
        *,
        segments: list[Segment] | None = None,
        log_start_offset: int = 0,
        producers: ProducerStateManager | None = None,
        epochs: LeaderEpochs | None = None,
        jitter: Callable[[int], int] = lambda bound_ms: 0,
    ) -> None:
        self.directory = directory
        self.topic_id = topic_id
        self.config = config
        super().__init__(segments or [], log_start_offset)
        self.producers = producers or ProducerStateManager()
        self.epochs = epochs or LeaderEpochs()
        self._jitter = jitter
        # Batches below this offset are synced, and so are the indexes of each segment that ends at or below it.
        self.flushed_offset = log_start_offset
        self._closed_clean = False
        self.epoch_file_lock = Lock()
        """Held while the epoch file is written, since a flush (in a thread) and a truncation both write it."""
        self.truncations = 0
        """Number of truncations. A flush that finds another number at its end does not move the flushed offset."""
        self._room: Room | None = None
        # (active segment, log end offset) when `seal` was last completed.
        self._sealed: tuple[Segment, int] | None = None
        # Offset of the newest snapshot. An empty log needs none, so 0 counts as written.
        self.last_snapshot_offset = 0
        self.on_roll: Callable[[Segment], None] | None = None
        """Called with each segment that was just sealed, to sync it."""
        self.on_snapshot_failed: Callable[[StorageError], None] | None = None
        """Called when a snapshot could not be written. If None, the append that rolled the log raises the error instead."""

    # -- writing ------------------------------------------------------------------------------------------------

    def create(self, now_ms: int) -> None:
        """Create the directory and the first segment, unless they exist.

        Nothing is synced before there are records: the cluster metadata has everything else.
        """
        if self.segments:
            return
        self._check_open()
        make_directory(self.directory)
        write_partition_metadata(self.directory, self.topic_id)
        self._add_segment(self.log_end_offset, now_ms, new_names_in=[self.directory.parent])
        self.epochs.save(self.directory / EPOCH_FILE, durable=False)

    def append_data(self, batch: RecordBatch, leader_epoch: int, now_ms: int, timestamp_ms: int) -> int:
        """Append a data batch to the log and to the producer state; returns its base offset.

        ``timestamp_ms`` is the largest timestamp of its records as stored.
        """
        base_offset = self._append(batch, leader_epoch, now_ms)
        if batch.producer_id >= 0:
            self.producers.update(batch, base_offset, timestamp_ms)
        return base_offset

    def append_marker(self, batch: RecordBatch, marker: EndTxnMarker, leader_epoch: int, now_ms: int) -> int:
        """Append the marker that ends a transaction; returns its offset."""
        offset = self._append(batch, leader_epoch, now_ms)
        aborted = self.producers.complete(
            batch.producer_id, batch.producer_epoch, marker, offset, batch.max_timestamp
        )
        if aborted is not None:
            self._note_aborted(aborted)
        return offset

    def _note_aborted(self, aborted: AbortedTransaction) -> None:
        segment = self.active
        is_first = not segment.has_aborted
        segment.note_aborted(aborted)
        if is_first:
            self._list.note_aborted(segment)

    def append_replicated(self, records: Buffer, now_ms: int) -> None:
        """Append whole batches exactly as the leader has them, with offsets, epochs and CRC. Ignores a partial last batch.

        Offsets may be missing (the leader has compacted), but must not go back. Raises ``CorruptBatch`` at a batch that is
        invalid or has an offset below the log end; the batches before it have been appended.
        """
        for batch in batches(records):
            end_offset = self.log_end_offset
            if batch.base_offset < end_offset or batch.last_offset_delta < 0 or not batch.has_valid_crc():
                raise CorruptBatch(Reason.RECORDS, f"{batch!r} cannot follow offset {end_offset - 1}")
            self.log_end_offset = batch.base_offset
            try:
                self._append(batch, batch.partition_leader_epoch, now_ms)
            except StorageError:
                self.log_end_offset = end_offset
                raise
            aborted = self.producers.replay(batch)
            if aborted is not None:
                self._note_aborted(aborted)

    def _append(self, batch: RecordBatch, leader_epoch: int, now_ms: int) -> int:
        if self.is_closed:
            raise ClosedLog(self.directory)
        base_offset = self.log_end_offset
        last_offset = base_offset + batch.last_offset_delta
        size, max_timestamp_ms = batch.size, batch.max_timestamp
        config, room = self.config, self._room
        if not (
            room is not None
            and room.config is config
            and (segment := room.segment) is self.segments[-1]
            and segment.size_now() + size <= room.bytes
            and max_timestamp_ms <= room.timestamp_ms
            and last_offset <= room.last_offset
            and leader_epoch == room.leader_epoch
        ):
            segment = self._segment_for(batch, last_offset, now_ms)
            if leader_epoch > self.epochs.latest:
                self.epochs.assign(leader_epoch, base_offset)
            self._room = Room.of(segment, config, self.epochs.latest)
        position = segment.append(
            batch.stored_at(base_offset, leader_epoch),
            size,
            last_offset,
            max_timestamp_ms,
            config.index_interval_bytes,
        )
        # Set field by field: compiled code then only stores four values. A constructor call would build and unpack a tuple.
        place = Place.__new__(Place)
        place.last_offset = last_offset
        place.segment = segment
        place.position = position
        place.size = size
        self._tail.append(place)
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
        """Whether a batch needs a new segment (``LogSegment.shouldRoll``).

        That depends on the segment's size, the records' timestamps, the space in the indexes, and the distance from the
        segment's base offset. `Room` is the fast path (ADR 23).
        """
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
            # Only sealed segments can be compacted, so max.compaction.lag.ms limits their age (`LogConfig.maxSegmentMs`).
            or (waited_ms > config.max_compaction_lag_ms - segment.jitter_ms and config.compact)
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or segment.index_is_full(config.segment_index_bytes)
        )

    def roll(self, now_ms: int) -> Segment:
        """Seal the active segment and create the next one, with a snapshot of the producers at its base offset."""
        self._check_open()
        sealed = self.active
        sealed.seal()
        # All records of the segment may be synced, but its final index entries are not yet.
        self.flushed_offset = min(self.flushed_offset, max(self.log_end_offset - 1, sealed.base_offset))
        self.try_snapshot()
        segment = self._add_segment(self.log_end_offset, now_ms)
        if self.on_roll is not None:
            self.on_roll(sealed)
            self._check_open()  # a fault rule may kill the node at the sealed segment's fsync
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
        self._list.append(segment)
        return segment

    def take_snapshot(self, offset: int | None = None) -> None:
        """Write a snapshot of the producers at the log end, unless there is a snapshot at that offset or above.

        During a replay, ``offset`` is the offset that the replay has reached. The file is not synced. A torn
        snapshot fails its CRC. Then the previous snapshot and the batches after it give the same state.
        """
        offset = self.log_end_offset if offset is None else offset
        if not self.segments or offset <= self.last_snapshot_offset:
            return
        content = producer_snapshot.encode(self.producers.snapshot())
        write_file(self.directory / file_name(offset, "snapshot"), content)
        self.last_snapshot_offset = offset

    def try_snapshot(self) -> None:
        """Call ``take_snapshot``, and report a failure to ``on_snapshot_failed``. Then the next roll tries again."""
        try:
            self.take_snapshot()
        except StorageError as error:
            if self.on_snapshot_failed is None:
                raise
            self.on_snapshot_failed(error)

    def restore_producers(self, producers: ProducerStateManager, offset: int) -> None:
        """Replace the producer state by ``producers``, from the snapshot at ``offset`` (0: there is no snapshot)."""
        self.producers = producers
        self.last_snapshot_offset = offset

    def save_epochs(self) -> None:
        if self.segments:
            with self.epoch_file_lock:
                self.epochs.save(self.directory / EPOCH_FILE)

    def assign_epoch(self, epoch: int) -> None:
        """Begin a leader epoch of this replica at the log end, before any record of the epoch is appended (KIP-101).

        The epoch stays in memory. Kafka syncs the file at once: after a restart that is one fsync for each of ten thousand
        partitions. Here the file is written with the epoch's first records, before the recovery point passes them. Until
        then a crash loses nothing: the batches contain their epoch and are read again, and an epoch without records is
        replaced by the next one, which begins at the same offset.
        """
        self.epochs.assign(epoch, self.log_end_offset)

    # -- shortening ---------------------------------------------------------------------------------------------

    def advance_log_start(self, offset: int) -> None:
        """Raise the log start offset: records below it cannot be read any more."""
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)

    def truncate_to(self, offset: int) -> bool:
        """Cut every batch with offsets at or above ``offset``; returns whether there was any.

        `recovery.truncate` calls this and reloads the producers. An epoch that this replica began as a leader, without
        writing a record in it, is removed in any case: the next leader may have another epoch at that offset (KIP-101).
        """
        self._check_open()
        self._room = None
        if offset >= self.log_end_offset:
            self.epochs.truncate_from_end(self.log_end_offset)
            return False
        self._tail.clear()
        self._sealed = None
        self.truncations += 1
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.flushed_offset = min(self.flushed_offset, offset)
        self.epochs.truncate_from_end(offset)
        was_active = self.segments[-1:]
        while len(self.segments) > 1 and self.segments[-1].base_offset > offset:
            self._drop_last_segment()
        if not self.segments:
            return True
        if self.segments[-1:] != was_active:
            # The segment was sealed. A compaction that began then must not recognise it as its source.
            self._list.append(self._list.pop().reopened())
        created_ms = self.active.created_ms
        if self.active.base_offset > offset:
            self._drop_last_segment()
            self._add_segment(offset, created_ms)
        else:
            try:
                self.active.truncate(offset)
            except CorruptBatch as error:
                raise StorageError(self.active.log.name, str(error)) from error
        self.save_epochs()
        return True

    def truncate_fully(self, offset: int, now_ms: int) -> list[Path]:
        """Remove all segments and continue at ``offset``; returns the files to remove later. See `recovery`."""
        self._check_open()
        doomed: list[Path] = []
        self._tail.clear()
        self._room = None
        self._sealed = None
        self.truncations += 1
        existed = self.exists
        while self.segments:
            # The last one first: after a crash in between, the log has a shorter end, but no gap.
            doomed += retire(self._list.pop())
        self.log_start_offset = self.log_end_offset = self.flushed_offset = offset
        self.epochs.clear()
        self.restore_producers(ProducerStateManager(), 0)
        if existed:
            self._add_segment(offset, now_ms)
            self.save_epochs()
        return doomed

    def _drop_last_segment(self) -> None:
        delete(self._list.pop())

    def drop_oldest(self, count: int, now_ms: int) -> list[Path]:
        """Remove the first ``count`` segments from the log; returns the files to remove later.

        The log start moves first, so that no reader reads a removed segment. If all segments are removed, a new one is
        created.
        """
        if count == len(self.segments):
            self.roll(now_ms)
        dropped = self.segments[:count]
        start = self.segments[count].base_offset
        if start > self.log_start_offset:
            self.advance_log_start(start)
        return self._take_out(0, dropped, None)

    def replace(self, sources: list[Segment], compacted: Segment | None) -> list[Path] | None:
        """Replace several segments by one compacted segment; returns the files to remove later.

        ``compacted`` has the base offset of the first source. Its files are synced and end in ``.swap``, so after a crash
        `recovery` finishes the replacement. If ``compacted`` is None, no record was kept, and the sources are only removed.
        Returns None, and changes nothing, if the log no longer has these segments.
        """
        if not self.holds(sources):
            return None
        index = self.segment_index(sources[0].base_offset)
        return self._take_out(index, sources, compacted)

    def holds(self, segments: list[Segment]) -> bool:
        """Whether the log has exactly these `Segment` objects, one after the other."""
        index = self.segment_index(segments[0].base_offset)
        return self.segments[index : index + len(segments)] == segments

    def _take_out(self, index: int, segments: list[Segment], instead: Segment | None) -> list[Path]:
        self._check_open()
        self._tail.clear()
        retired: list[Path] = []
        # The oldest first: a crash in between must not leave an old value of a key without the tombstone that followed it.
        for segment in segments:
            retired += retire(segment)
            snapshot = self.directory / file_name(segment.base_offset, "snapshot")
            stays = instead is not None and instead.base_offset == segment.base_offset
            if not stays and (gone := retire_file(snapshot)) is not None:
                retired.append(gone)
        if instead is not None:
            swap_in(instead)
        self._list.take_out(index, index + len(segments), instead)
        return retired

    # -- durability ---------------------------------------------------------------------------------------------

    def flush_targets(self) -> list[Segment]:
        """Segments with bytes that are not synced yet. Any thread may call their ``sync``.

        The index entries of the active segment are written to the files first, so that they are synced before the
        recovery point passes their batches: a recovery that begins inside a segment trusts the entries below the
        recovery point.
        """
        if self.segments:
            self.active.save_indexes()
        return self.segments[self.segment_index(self.flushed_offset) :]

    @property
    def recovery_point(self) -> int:
        """Offset for the recovery point checkpoint. Segments that end at or below it are synced, with indexes.

        If all batches are flushed but the log was not closed cleanly, this is the last offset and not the log end
        offset, since the last index entries of the active segment are written later.
        """
        if self._closed_clean or not self.segments or self.flushed_offset <= self.active.base_offset:
            return self.flushed_offset
        return min(self.flushed_offset, self.log_end_offset - 1)

    def flushed_up_to(self, offset: int) -> None:
        self.flushed_offset = max(self.flushed_offset, offset)

    def seal(self) -> Callable[[], None]:
        """Complete the files for a clean stop. Returns a function that syncs them, which may run in any thread.

        The function does nothing if there was no append since `note_sealed`.
        """
        if not self.segments or self._sealed == (self.active, self.log_end_offset):
            return lambda: None
        self._check_open()
        self.active.seal()
        self.take_snapshot()
        if self.flushed_offset == self.log_end_offset:
            return self.active.sync_indexes
        epochs = self.epochs.unsaved_below(self.log_end_offset)
        return partial(_sync, self.flush_targets(), self.directory / EPOCH_FILE, epochs)

    def note_sealed(self) -> None:
        """Note that all files are synced and complete: after `seal`, or because the previous process stopped cleanly."""
        if self.segments:
            self.flushed_up_to(self.log_end_offset)
            self._sealed = self.active, self.log_end_offset

    def close(self, *, clean: bool) -> None:
        """Close the files. A clean close seals the indexes, writes the producer snapshot and fsyncs everything."""
        if clean and self.segments:
            self.seal()()
            self.note_sealed()
            self._closed_clean = True
        self.is_closed = True
        # Break a reference cycle (the listener usually refers to this log), so that the log is freed at once.
        self.on_roll = None
        for segment in self.segments:
            segment.close()

    def _check_open(self) -> None:
        if self.is_closed:
            raise ClosedLog(self.directory)


def _sync(segments: list[Segment], epoch_file: Path, epochs: bytes | None) -> None:
    if epochs is not None:
        replace_file(epoch_file, epochs)
    for segment in segments:
        segment.sync()


__all__ = ["CorruptBatch", "Log", "Place", "Span", "TimestampedOffset"]
