"""One segment of a partition's log: the batches from its base offset on, and their indexes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct

from protocol.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, CorruptBatch, Reason, RecordBatch
from storage.files import (
    AppendFile,
    Buffer,
    DamagedFile,
    Recent,
    end_of_file,
    file_size,
    sync_file,
)
from storage.index import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY,
    TIME_ENTRY_BYTES,
    AbortedTransaction,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
)

# base offset, batch length, last offset delta: the fields that a search by offset reads.
_POSITIONS = Struct(">qi11xi")
_MAX_TIMESTAMP = Struct(">35xq")
SEGMENT_SUFFIXES = ("log", "index", "timeindex", "txnindex")
SCAN_BYTES = 16 * 1024
"""Bytes per read when searching for a batch: a few index intervals."""
REPLAY_BYTES = 1024 * 1024
"""Bytes per read when all batches are read."""
UNKNOWN = -2
"""Placeholder for a value that has not been read from the segment's files yet. -1 means that there is no
timestamp."""


def file_name(offset: int, suffix: str) -> str:
    """File name of a segment.
    >>> file_name(979, "log")
    '00000000000000000979.log'
    """
    return f"{offset:020d}.{suffix}"


OPEN_SEGMENTS: Recent[Segment] = Recent(limit=2048)
"""The recently used segments of this process, which have file objects. Of all others only a few numbers are in memory."""


class Segment:
    """One ``.log`` file and its indexes, which are opened when needed."""

    __slots__ = (
        "_bytes_since_index_entry",
        "_first_timestamp_ms",
        "_index_tail_is_full",
        "_log",
        "_max_timestamp_ms",
        "_max_timestamp_offset",
        "_offset_index",
        "_size",
        "_time_index",
        "_transaction_index",
        "_unsynced_names",
        "base_offset",
        "created_ms",
        "directory",
        "has_aborted",
        "jitter_ms",
        "used",
    )

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        *,
        created_ms: int,
        jitter_ms: int = 0,
        fresh: bool = False,
        new_names_in: Sequence[Path] = (),
        size: int = UNKNOWN,
        has_aborted: bool = True,
        log: AppendFile | None = None,
    ) -> None:
        """``size`` and ``has_aborted`` come from a listing of the directory, if there was one.

        ``log`` is for a ``.log`` file that does not have its final name yet.
        """
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        self.used = False
        self.has_aborted = has_aborted and not fresh
        """Whether there may be aborted transactions. If not, the transaction index is not read."""
        self._size = size
        self._log = log
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transaction_index: TransactionIndex | None = None
        # Only in memory, as in Kafka: after a restart the next index entry comes later than it would have.
        self._bytes_since_index_entry = 0
        self._index_tail_is_full = False
        self._first_timestamp_ms: int | None = None
        self._max_timestamp_ms = UNKNOWN
        self._max_timestamp_offset = base_offset
        # Directories with new entries. The first sync of the segment syncs them too.
        self._unsynced_names: list[Path] | None = None
        if fresh:
            self._begin(new_names_in)

    def _begin(self, new_names_in: Sequence[Path]) -> None:
        """Initialise a segment that has no files yet."""
        self._size, self._max_timestamp_ms = 0, -1
        self._log = AppendFile(self._name("log"), 0)
        self._offset_index = OffsetIndex(self._name("index"), self.base_offset, fresh=True)
        self._time_index = TimeIndex(self._name("timeindex"), self.base_offset, fresh=True)
        self._transaction_index = TransactionIndex(self._name("txnindex"), fresh=True)
        self._unsynced_names = [self.directory, *new_names_in]

    # -- its files ----------------------------------------------------------------------------------------------

    def path(self, suffix: str) -> Path:
        return self.directory / file_name(self.base_offset, suffix)

    def _name(self, suffix: str) -> str:
        """Path of the segment's file with this suffix, as a string. Faster than ``str(self.path(suffix))``."""
        return f"{self.directory}/{self.base_offset:020d}.{suffix}"

    def paths(self) -> list[Path]:
        """All files that the segment may have."""
        return [self.path(suffix) for suffix in SEGMENT_SUFFIXES]

    @property
    def log(self) -> AppendFile:
        if (log := self._log) is None:
            log = self._log = AppendFile(self._name("log"), self.size)
            OPEN_SEGMENTS.add(self)
        return log

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        if index is None:
            index = self._offset_index = OffsetIndex(self._name("index"), self.base_offset)
            OPEN_SEGMENTS.add(self)
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            index = self._time_index = TimeIndex(self._name("timeindex"), self.base_offset)
            OPEN_SEGMENTS.add(self)
        return index

    @property
    def transaction_index(self) -> TransactionIndex:
        index = self._transaction_index
        if index is None:
            index = self._transaction_index = TransactionIndex(self._name("txnindex"))
            OPEN_SEGMENTS.add(self)
        return index

    def rest(self) -> None:
        """Release memory and descriptors, unless an index has entries in memory only, or a file has failed."""
        log, indexes = self._log, (self._offset_index, self._time_index, self._transaction_index)
        if log is not None and not log.can_be_forgotten:
            return
        if all(index is None or index.can_be_forgotten for index in indexes):
            self.close()
            self._size = self.size
            self._log = self._offset_index = self._time_index = self._transaction_index = None

    def close(self) -> None:
        OPEN_SEGMENTS.forget(self)
        for file in (self._log, self._offset_index, self._time_index, self._transaction_index):
            if file is not None:
                file.close()

    # -- properties ---------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        return self.size_now()

    def size_now(self) -> int:
        log = self._log
        if log is not None:
            return log.size
        if self._size == UNKNOWN:
            self._size = file_size(self._name("log")) or 0
        return self._size

    @property
    def synced_size(self) -> int:
        """Number of bytes of the ``.log`` file known to be on the disk (`AppendFile.synced_size`)."""
        return 0 if self._log is None else self._log.synced_size

    @property
    def first_timestamp_ms(self) -> int:
        """Largest timestamp of the first batch, from which time-based rolling counts; -1 if there is none."""
        known = self._first_timestamp_ms
        if known is None:
            header = self.log.read(0, HEADER_BYTES)
            if len(header) < HEADER_BYTES:
                return -1
            known = self._first_timestamp_ms = int(_MAX_TIMESTAMP.unpack_from(header)[0])
        return known

    @property
    def max_timestamp_ms(self) -> int:
        """Largest timestamp of the segment's records, -1 if none has one."""
        if self._max_timestamp_ms == UNKNOWN:
            self.load_timestamps()
        return self._max_timestamp_ms

    @max_timestamp_ms.setter
    def max_timestamp_ms(self, timestamp_ms: int) -> None:
        self._max_timestamp_ms = timestamp_ms

    @property
    def max_timestamp_offset(self) -> int:
        """Last offset of the batch with the largest timestamp."""
        if self._max_timestamp_ms == UNKNOWN:
            self.load_timestamps()
        return self._max_timestamp_offset

    @max_timestamp_offset.setter
    def max_timestamp_offset(self, offset: int) -> None:
        self._max_timestamp_offset = offset

    def load_timestamps(self) -> None:
        """Load the largest timestamp of a sealed segment, from the last entry of its time index."""
        if self._time_index is None:
            data = end_of_file(self._name("timeindex"), TIME_ENTRY_BYTES)
            if data.strip(b"\0"):
                timestamp_ms, relative = TIME_ENTRY.unpack(data)
                self._max_timestamp_ms, self._max_timestamp_offset = timestamp_ms, self.base_offset + relative
                return
        # The file has no entry, or Kafka preallocated it.
        self._max_timestamp_ms, self._max_timestamp_offset = self.time_index.last()

    # -- appending ----------------------------------------------------------------------------------------------

    def append(
        self,
        chunks: Sequence[Buffer],
        length: int,
        last_offset: int,
        max_timestamp_ms: int,
        index_interval_bytes: int,
    ) -> int:
        """Write one batch and index it; returns its position."""
        if self._index_tail_is_full:
            self._index_tail_is_full = False
            self.save_indexes()
        position = (self.log if self._log is None else self._log).append(chunks, length)
        if position and self._bytes_since_index_entry <= index_interval_bytes:
            # The short form of `note_batch` for a batch that needs no index entry and has no larger timestamp.
            self._bytes_since_index_entry += length
            if max_timestamp_ms > self._max_timestamp_ms:
                self._max_timestamp_ms, self._max_timestamp_offset = max_timestamp_ms, last_offset
        else:
            self.note_batch(position, length, last_offset, max_timestamp_ms, index_interval_bytes)
        return position

    def note_batch(
        self, position: int, length: int, last_offset: int, max_timestamp_ms: int, index_interval_bytes: int
    ) -> None:
        """Index a batch at ``position`` (``LogSegment.append``: the entry is written before the bytes are counted)."""
        if position == 0:
            self._first_timestamp_ms = max_timestamp_ms
        if max_timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = max_timestamp_ms
            self._max_timestamp_offset = last_offset
        if self._bytes_since_index_entry > index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self._max_timestamp_ms, self._max_timestamp_offset)
            self._bytes_since_index_entry = 0
            self._index_tail_is_full = self.offset_index.has_full_tail
        self._bytes_since_index_entry += length

    def note_aborted(self, entry: AbortedTransaction) -> None:
        """Index an aborted transaction whose marker is in this segment."""
        self.transaction_index.append(entry)
        self.has_aborted = True

    def index_is_full(self, index_bytes_max: int) -> bool:
        """Whether an index has no space for another entry. The time index reserves space for its final entry."""
        if self.size < self.bytes_until_index_is_full(index_bytes_max):
            return False
        offset_room = index_bytes_max // OFFSET_ENTRY_BYTES - len(self.offset_index)
        return offset_room <= 0 or len(self.time_index) >= index_bytes_max // TIME_ENTRY_BYTES - 1

    @staticmethod
    def bytes_until_index_is_full(index_bytes_max: int) -> int:
        """Segment size below which no index can be full: an index has at most one entry per batch, and no batch is
        smaller than its header.
        """
        return (index_bytes_max // TIME_ENTRY_BYTES - 2) * HEADER_BYTES

    # -- reading ------------------------------------------------------------------------------------------------

    def locate(self, offset: int) -> tuple[int, int] | None:
        """(position, size) of the batch that contains ``offset``, or of the next one if it was compacted away."""
        self.used = True
        position = self.offset_index.position_at_or_before(offset)
        for last_offset, start, size in self._scan(position):
            if last_offset >= offset:
                return start, size
        return None

    def _scan(self, position: int) -> Iterator[tuple[int, int, int]]:
        """(last offset, position, size) of each batch from ``position`` on. Reads only headers."""
        end = self.size
        while position < end:
            chunk = self.log.read(position, SCAN_BYTES)
            at = 0
            while at + HEADER_BYTES <= len(chunk):
                base_offset, length, delta = _POSITIONS.unpack_from(chunk, at)
                size = length + LOG_OVERHEAD_BYTES
                if size < HEADER_BYTES or position + at + size > end:
                    raise DamagedFile(self.log.name, f"there is no whole batch at position {position + at}")
                yield base_offset + delta, position + at, size
                at += size
            if at == 0:
                raise DamagedFile(self.log.name, f"there is no whole batch at position {position}")
            position += at

    def batches(self, position: int = 0, window: int = REPLAY_BYTES) -> Iterator[RecordBatch]:
        """Whole batches from ``position`` on, where a batch must begin. Raises ``CorruptBatch`` at the first invalid one."""
        end = self.size
        while position < end:
            chunk = self.log.read(position, window)
            at, needed = 0, 0
            while at < len(chunk):
                needed = batch_bytes(chunk, at)
                if at + needed > len(chunk):
                    break
                batch = RecordBatch.parse(chunk, at)
                yield batch
                at += batch.size
            if at == 0:
                # The batch is larger than the window, or its length field exceeds the rest of the file.
                if needed <= len(chunk) or position + needed > end:
                    raise CorruptBatch(Reason.SHORT, f"the file ends inside the batch at position {position}")
                window = needed
            position += at

    def headers(self, position: int = 0, window: int = SCAN_BYTES) -> Iterator[RecordBatch]:
        """Like ``batches``, but a batch that is larger than the window is returned as its header only."""
        end = self.size
        while position < end:
            chunk = self.log.read(position, window)
            at = 0
            while at < len(chunk):
                needed = batch_bytes(chunk, at)
                if position + at + needed > end:
                    raise CorruptBatch(Reason.SHORT, f"the file ends inside the batch at {position + at}")
                if at + needed <= len(chunk):
                    yield RecordBatch.parse(chunk, at)
                elif at == 0:
                    yield RecordBatch.parse_header(chunk[:HEADER_BYTES])
                else:
                    break
                at += needed
            position += at

    def load_end(self) -> int:
        """Offset after the last batch. Also loads the largest timestamp. Reads the batches behind the last index entry.

        Raises ``CorruptBatch`` if the file does not end with a whole batch.
        """
        self.load_timestamps()
        end_offset = self.base_offset
        for batch in self.headers(self.offset_index.last_position()):
            end_offset = batch.last_offset + 1
            if batch.max_timestamp > self._max_timestamp_ms:
                self._max_timestamp_ms, self._max_timestamp_offset = batch.max_timestamp, batch.last_offset
        return end_offset

    # -- shortening, and the disk --------------------------------------------------------------------------------

    def truncate(self, offset: int) -> None:
        """Cut every batch with offsets at or above ``offset``."""
        if (found := self.locate(offset)) is not None:
            self.log.truncate(found[0])
        self.offset_index.truncate(offset)
        self.time_index.truncate(offset)
        if self.has_aborted:
            self.transaction_index.truncate(offset)
        self.forget_batches()
        self.load_end()

    def forget_batches(self) -> None:
        """Reset the first batch's timestamp and the number of bytes since the last index entry."""
        self._bytes_since_index_entry = 0
        self._first_timestamp_ms = None

    def reopened(self) -> Segment:
        """A new segment object for the same files, to which batches can be appended again.

        The new object is not identical to the sealed one, so `Log.holds` is False for a list with the sealed one.
        """
        self.log.unshare()
        segment = Segment(
            self.directory,
            self.base_offset,
            created_ms=self.created_ms,
            jitter_ms=self.jitter_ms,
            size=self.size,
            has_aborted=self.has_aborted,
            log=self.log,
        )
        segment._offset_index, segment._time_index = self.offset_index, self.time_index
        segment._transaction_index = self._transaction_index
        segment._unsynced_names = self._unsynced_names
        OPEN_SEGMENTS.forget(self)
        OPEN_SEGMENTS.add(segment)
        return segment

    def seal(self) -> None:
        """Write the final time index entry and the index files. There will be no more appends."""
        if self.size:
            self.time_index.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)
        self.save_indexes()
        OPEN_SEGMENTS.add(self)

    def save_indexes(self) -> None:
        """Write all index entries to the files. The time index is first: without it the largest timestamps are lost."""
        for index in (self._time_index, self._offset_index):
            if index is not None:
                index.save()

    def sync(self) -> None:
        """fsync all files of the segment and, the first time, the directories with its new entries.

        Any thread may call it. It covers everything appended, and all index entries saved, before the call.
        """
        (self._log or AppendFile(self._name("log"), self._size)).sync()
        self.sync_indexes()
        while self._unsynced_names:
            sync_file(self._unsynced_names[0])
            del self._unsynced_names[0]

    def sync_indexes(self) -> None:
        """fsync the index files, so that all entries saved before the call are on the disk."""
        for suffix, index in (
            ("txnindex", self._transaction_index),
            ("index", self._offset_index),
            ("timeindex", self._time_index),
        ):
            if index is not None:
                index.sync()
            elif suffix != "txnindex" or self.has_aborted:
                sync_file(self._name(suffix))


def batch_bytes(chunk: bytes, at: int) -> int:
    """Size of the batch at ``at`` by its own length field, at least a header's size."""
    if at + LOG_OVERHEAD_BYTES > len(chunk):
        return HEADER_BYTES
    length = int.from_bytes(chunk[at + 8 : at + LOG_OVERHEAD_BYTES], "big", signed=True)
    return max(length + LOG_OVERHEAD_BYTES, HEADER_BYTES)
