"""A compaction pass over a partition's files. It may run in any thread, because its input does not change meanwhile.

A pass reads sealed segments and writes ``.cleaned`` files. No reader opens these, and the next start removes them. The log's
own thread then makes them part of the log (``Cleaned.offer``, then ``Log.replace``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from protocol.batch import CorruptBatch, Reason, RecordBatch
from protocol.slotted import slotted
from storage import files
from storage.aborted import AbortedTransaction
from storage.compaction.filtering import Filter, Rules, learn
from storage.compaction.grouping import Sized, Source, groups
from storage.compaction.offset_map import OffsetMap
from storage.compaction.transactions import CleanedTransactionMetadata
from storage.config import LogConfig
from storage.descriptors import SPARES
from storage.files import StorageError, read_file, remove, rename, sync_file, write_file
from storage.index import ABORTED_ENTRY, OFFSET_ENTRY, TIME_ENTRY, aborted_of
from storage.renaming import CLEANED, SWAP
from storage.segment import SEGMENT_SUFFIXES, Segment, batch_bytes, file_name
from storage.steps import check_sizes, limits_sizes, run

READ_BYTES = 256 * 1024
"""Bytes per read: few enough that one read does not delay other disk access for long."""
WRITE_BYTES = 256 * 1024

Tick = Callable[[int], None]
"""Function that a pass calls between batches, with the number of bytes read and written since the last call.

The function may sleep. To end the pass, it raises an exception.
"""


@slotted(frozen=True)
class Order:
    """The input of a pass: the sealed segments of a log below ``rules.upper_bound``, from the first one on, and the
    settings.
    """

    directory: Path
    sources: Sequence[Source]
    first_dirty_offset: int
    log_start_offset: int
    config: LogConfig
    rules: Rules
    map_capacity: int


@slotted
class Counts:
    """Counts of what a pass has read and written so far."""

    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0


@slotted
class Cleaned:
    """The files of one compacted segment, complete and synced, under names that no reader opens."""

    directory: Path
    base_offset: int
    size: int
    has_aborted: bool

    def offer(self) -> None:
        """Rename the files to ``.swap``. If the process crashes after the directory was synced, the next start
        installs them.
        """
        for path in self._paths():
            cleaned = path.with_name(path.name + CLEANED)
            if cleaned.exists():
                rename(cleaned, path.with_name(path.name + SWAP))

    def discard(self) -> None:
        """Remove the files, because the log was truncated or deleted meanwhile.

        The ``.log`` file is the first to be renamed from ``.swap`` to ``.cleaned``, and the last to be removed: if a
        ``.cleaned`` file exists, a start removes all files of the compacted segment.
        """
        log, *indexes = self._paths()
        cleaned, swap = log.with_name(log.name + CLEANED), log.with_name(log.name + SWAP)
        if swap.exists():
            rename(swap, cleaned)
        for path in indexes:
            remove(path.with_name(path.name + SWAP))
            remove(path.with_name(path.name + CLEANED))
        remove(cleaned)

    def _paths(self) -> list[Path]:
        return [self.directory / file_name(self.base_offset, suffix) for suffix in SEGMENT_SUFFIXES]

    def segment(self, now_ms: int) -> Segment:
        """The compacted files as a sealed segment, for ``Log.replace``."""
        return Segment(
            self.directory,
            self.base_offset,
            created_ms=now_ms,
            size=self.size,
            has_aborted=self.has_aborted,
        )


class Pass:
    """One compaction pass over one log. Call ``prepare``, then ``rewrite`` for each group of segments, then ``finish``."""

    def __init__(self, order: Order, tick: Tick = lambda moved: None) -> None:
        self.order = order
        self.counts = Counts()
        self.end_offset = -1
        """Offset up to which the log is compacted after this pass."""
        self.groups: list[list[Source]] = []
        self.keyless = 0
        self._tick = tick
        self._map = OffsetMap(order.map_capacity)
        self._transactions = CleanedTransactionMetadata(())

    def prepare(self) -> None:
        """Map the keys of the dirty part to their last offsets, until the map is full, and group the segments."""
        self._build_map()
        self.end_offset = self._map.latest_offset + 1
        order = self.order
        sources = [source for source in order.sources if source.base_offset < self.end_offset]
        self.groups = list(
            groups(
                [self._sized(source) for source in sources],
                order.config.segment_bytes,
                order.config.segment_index_bytes,
                order.rules.upper_bound,
            )
        )
        self._transactions = CleanedTransactionMetadata(self._aborted_from(order.sources[0].base_offset))

    def finish(self, tick: Tick = lambda moved: None) -> None:
        """Free the memory of the map of keys to offsets."""
        self._map.clear(lambda: tick(0))

    def _build_map(self) -> None:
        order = self.order
        sources = order.sources
        dirty = [
            source
            for source, following in zip(sources, [*sources[1:], None], strict=True)
            if following is None or following.base_offset > order.first_dirty_offset
        ]
        if not dirty:
            return
        transactions = CleanedTransactionMetadata(self._aborted_from(dirty[0].base_offset))
        for source, following in zip(dirty, [*dirty[1:], None], strict=True):
            for batch in self._batches(source):
                aborted = transactions.may_discard(batch) or batch.is_control
                if batch.last_offset < order.first_dirty_offset:
                    continue
                if not aborted and not learn(batch, order.first_dirty_offset, self._map, self._breathe):
                    return
                self._map.latest_offset = batch.last_offset
            # Offsets missing at the segment's end count as part of the segment.
            end = order.rules.upper_bound if following is None else following.base_offset
            self._map.latest_offset = end - 1

    def _breathe(self) -> None:
        self._tick(0)

    def _sized(self, source: Source) -> Sized:
        return Sized(source, self._size_of(source, "index"), self._size_of(source, "timeindex"))

    def _size_of(self, source: Source, suffix: str) -> int:
        path = self.order.directory / file_name(source.base_offset, suffix)
        try:
            return path.stat().st_size
        except OSError as error:
            raise StorageError(path, error) from error

    def _aborted_from(self, base_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions whose markers are in the segment at ``base_offset`` or in later segments."""
        found: list[AbortedTransaction] = []
        for path in (Path(entry) for entry in SPARES.entries(self.order.directory)):
            if path.suffix == ".txnindex" and path.stem.isdecimal() and int(path.stem) >= base_offset:
                found += _aborted_in(path)
        return [entry for entry in found if entry.last_offset >= self.order.log_start_offset]

    def rewrite(self, group: Sequence[Source]) -> Cleaned:
        """Write one new segment with the batches of neighbouring segments that the filter keeps, and sync its files."""
        order = self.order
        filter_ = Filter(self._map, self._transactions, order.rules, self._breathe)
        writer = _Writer(order.directory, group[0].base_offset, order.config.index_interval_bytes)
        try:
            for source in group:
                for batch in self._batches(source):
                    left = filter_.left_of(batch)
                    if left is not None:
                        writer.append(left)
                        self._tick(left.size)
            writer.add_aborted(self._transactions.still_needed)
            self._transactions.still_needed.clear()
            last = order.directory / file_name(group[-1].base_offset, "log")
            cleaned = writer.finish(last)
        except BaseException:
            writer.abandon()
            raise
        self.counts.bytes_before += sum(source.size for source in group)
        self.counts.bytes_after += cleaned.size
        self.counts.records_before += filter_.records_read
        self.counts.records_after += filter_.records_kept
        self.keyless += filter_.keyless
        return cleaned

    def _batches(self, source: Source) -> Iterator[RecordBatch]:
        """Batches of a segment. Each CRC is verified here, because a rewritten batch gets a new CRC."""
        path = self.order.directory / file_name(source.base_offset, "log")
        try:
            fd = SPARES.open(os.open, path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StorageError(path, error) from error
        try:
            position = 0
            while position < source.size:
                chunk = _read(fd, path, position, source.size - position)
                at = 0
                while at + batch_bytes(chunk, at) <= len(chunk):
                    batch = RecordBatch.parse(chunk, at)
                    if not batch.has_valid_crc():
                        raise CorruptBatch(
                            Reason.RECORDS,
                            f"the CRC of the batch at offset {batch.base_offset} does not match",
                        )
                    self._check_sizes(batch)
                    yield batch
                    at += batch.size
                    self._tick(batch.size)
                if at == 0:
                    raise CorruptBatch(Reason.SHORT, f"there is no whole batch at position {position}")
                position += at
        except CorruptBatch as error:
            raise StorageError(path, str(error)) from error
        finally:
            SPARES.close(fd)

    def _check_sizes(self, batch: RecordBatch) -> None:
        bytes_max = self.order.config.max_decompressed_message_bytes
        if limits_sizes(batch, bytes_max):
            run(check_sizes(batch, batch.plain_body(), bytes_max))


def _read(fd: int, path: Path, position: int, left: int) -> bytes:
    """Read from ``position``, where a batch begins, and return the bytes, at most ``left``.

    These are ``READ_BYTES`` bytes, or the whole batch if it is larger.
    """
    try:
        chunk = os.pread(fd, min(READ_BYTES, left), position)
        needed = batch_bytes(chunk, 0)
        if len(chunk) < needed <= left:
            chunk = os.pread(fd, needed, position)
    except OSError as error:
        raise StorageError(path, error) from error
    return chunk


def _aborted_in(path: Path) -> Iterator[AbortedTransaction]:
    """Entries of a transaction index, without a partly written last one; none if retention has removed the file."""
    data = read_file(path) or b""
    whole = len(data) // ABORTED_ENTRY.size * ABORTED_ENTRY.size
    return aborted_of(ABORTED_ENTRY.iter_unpack(data[:whole]), path)


class _Writer:
    """Writer of one segment, as ``.cleaned`` files."""

    def __init__(self, directory: Path, base_offset: int, index_interval_bytes: int) -> None:
        self._directory = directory
        self._base_offset = base_offset
        self._index_interval_bytes = index_interval_bytes
        self._log, self._offsets, self._times, self._aborted = (
            directory / (file_name(base_offset, suffix) + CLEANED) for suffix in SEGMENT_SUFFIXES
        )
        self._offset_entries, self._time_entries = bytearray(), bytearray()
        self._last_indexed_ms = -1
        self._chunks: list[memoryview] = []
        self._waiting = 0
        self._size = 0
        self._since_entry = 0
        self._has_aborted = False
        self._max_timestamp_ms, self._max_timestamp_offset = -1, base_offset
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            self._fd = SPARES.open(files.system.open, self._log, flags, 0o666)
        except OSError as error:
            raise StorageError(self._log, error) from error

    def append(self, batch: RecordBatch) -> None:
        """Append one batch, with index entries as for an append by a client (`LogSegment.append`)."""
        if batch.max_timestamp > self._max_timestamp_ms:
            self._max_timestamp_ms, self._max_timestamp_offset = batch.max_timestamp, batch.last_offset
        if self._since_entry > self._index_interval_bytes:
            self._offset_entries += OFFSET_ENTRY.pack(batch.last_offset - self._base_offset, self._size)
            self._index_time()
            self._since_entry = 0
        self._since_entry += batch.size
        self._size += batch.size
        self._chunks.append(batch.data)
        self._waiting += batch.size
        if self._waiting >= WRITE_BYTES:
            self._write()

    def _index_time(self) -> None:
        if self._max_timestamp_ms > self._last_indexed_ms:
            offset = self._max_timestamp_offset - self._base_offset
            self._time_entries += TIME_ENTRY.pack(self._max_timestamp_ms, offset)
            self._last_indexed_ms = self._max_timestamp_ms

    def _write(self) -> None:
        data = b"".join(self._chunks)
        position = self._size - self._waiting
        try:
            written = 0
            while written < len(data):
                written += files.system.pwritev(self._fd, [memoryview(data)[written:]], position + written)
        except OSError as error:
            raise StorageError(self._log, error) from error
        self._chunks, self._waiting = [], 0

    def add_aborted(self, entries: Sequence[AbortedTransaction]) -> None:
        if entries:
            self._has_aborted = True
            write_file(self._aborted, b"".join(ABORTED_ENTRY.pack(0, *entry) for entry in entries))
            sync_file(self._aborted)

    def finish(self, last_source: Path) -> Cleaned:
        """Sync all files, and set the modification time of the ``.log`` file to that of the last source.

        For records without timestamps, retention uses the modification time.
        """
        self._write()
        self._index_time()
        for path, entries in ((self._offsets, self._offset_entries), (self._times, self._time_entries)):
            write_file(path, bytes(entries))
            sync_file(path)
        try:
            files.system.fsync(self._fd)
            modified_s = last_source.stat().st_mtime
            files.system.utime(self._log, (modified_s, modified_s))
        except OSError as error:
            raise StorageError(self._log, error) from error
        self._close()
        return Cleaned(self._directory, self._base_offset, self._size, self._has_aborted)

    def _close(self) -> None:
        if self._fd >= 0:
            SPARES.close(self._fd)
            self._fd = -1

    def abandon(self) -> None:
        """Remove the incomplete ``.cleaned`` files. A file that the disk cannot remove is left for the next start."""
        self._close()
        for path in (self._log, self._offsets, self._times, self._aborted):
            try:
                remove(path)
            except StorageError:
                continue  # the next start removes it
