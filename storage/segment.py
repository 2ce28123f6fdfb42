"""One segment of a partition's log: the batches from its base offset on, and the indexes that find them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct

from protocol.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, CorruptBatch, Reason, RecordBatch
from storage.files import AppendFile, Buffer, StorageError, remove, rename, sync_file
from storage.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex, TransactionIndex

# base offset, batch length, last offset delta: all that a search by offset looks at.
_POSITIONS = Struct(">qi11xi")
_MAX_TIMESTAMP = Struct(">35xq")
SEGMENT_SUFFIXES = ("log", "index", "timeindex", "txnindex")
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
"""What files are called that are on their way out, or in: after retention, during and after compaction."""
SCAN_BYTES = 16 * 1024
"""How much is read at once when looking for a batch: a few index intervals."""
REPLAY_BYTES = 1024 * 1024
"""How much is read at once when all batches are wanted."""


def file_name(offset: int, suffix: str) -> str:
    """
    >>> file_name(979, "log")
    '00000000000000000979.log'
    """
    return f"{offset:020d}.{suffix}"


class Segment:
    """One ``.log`` file with its indexes."""

    __slots__ = (
        "_bytes_since_index_entry",
        "_first_timestamp_ms",
        "_unsynced_names",
        "base_offset",
        "created_ms",
        "directory",
        "jitter_ms",
        "log",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "offset_index",
        "time_index",
        "transaction_index",
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
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        self.log = AppendFile(directory / file_name(base_offset, "log"), 0 if fresh else None)
        self.offset_index = OffsetIndex(directory / file_name(base_offset, "index"), base_offset, fresh=fresh)
        self.time_index = TimeIndex(directory / file_name(base_offset, "timeindex"), base_offset, fresh=fresh)
        self.transaction_index = TransactionIndex(directory / file_name(base_offset, "txnindex"), fresh=fresh)
        # In memory only, as in Kafka: after a restart the next entry comes later than it would have.
        self._bytes_since_index_entry = 0
        self._first_timestamp_ms: int | None = None
        # Directories whose new names the first sync makes durable.
        self._unsynced_names = [directory, *new_names_in] if fresh else []
        self.max_timestamp_ms = -1
        self.max_timestamp_offset = base_offset

    @property
    def size(self) -> int:
        return self.log.size

    @property
    def first_timestamp_ms(self) -> int:
        """The largest timestamp of the first batch, from which time-based rolling counts; -1 when there is none."""
        known = self._first_timestamp_ms
        if known is None:
            header = self.log.read(0, HEADER_BYTES)
            if len(header) < HEADER_BYTES:
                return -1
            (known,) = _MAX_TIMESTAMP.unpack_from(header)
            self._first_timestamp_ms = known
        return known

    def append(
        self,
        chunks: Sequence[Buffer],
        length: int,
        *,
        last_offset: int,
        max_timestamp_ms: int,
        index_interval_bytes: int,
    ) -> int:
        """Write one batch and index it; returns its position."""
        position = self.log.append(chunks, length)
        self.note_batch(position, length, last_offset, max_timestamp_ms, index_interval_bytes)
        return position

    def note_batch(
        self, position: int, length: int, last_offset: int, max_timestamp_ms: int, index_interval_bytes: int
    ) -> None:
        """Index a batch that stands at ``position`` (``LogSegment.append``: the entry comes before the count)."""
        if position == 0:
            self._first_timestamp_ms = max_timestamp_ms
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.max_timestamp_offset = last_offset
        if self._bytes_since_index_entry > index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += length

    def index_is_full(self, index_bytes_max: int) -> bool:
        """No room for another entry; the time index keeps one place for its final entry."""
        return (
            len(self.offset_index) >= index_bytes_max // OFFSET_ENTRY_BYTES
            or len(self.time_index) >= index_bytes_max // TIME_ENTRY_BYTES - 1
        )

    def locate(self, offset: int) -> tuple[int, int] | None:
        """(position, size) of the batch that holds ``offset``, or of the next one when it was compacted away."""
        position = self.offset_index.position_at_or_before(offset)
        for last_offset, start, size in self._scan(position):
            if last_offset >= offset:
                return start, size
        return None

    def _scan(self, position: int) -> Iterator[tuple[int, int, int]]:
        """(last offset, position, size) of each batch from a batch border on, by headers only."""
        end = self.size
        while position < end:
            chunk = self.log.read(position, SCAN_BYTES)
            at = 0
            while at + HEADER_BYTES <= len(chunk):
                base_offset, length, delta = _POSITIONS.unpack_from(chunk, at)
                size = length + LOG_OVERHEAD_BYTES
                if size < HEADER_BYTES or position + at + size > end:
                    raise StorageError(self.log.path, f"there is no whole batch at position {position + at}")
                yield base_offset + delta, position + at, size
                at += size
            if at == 0:
                raise StorageError(self.log.path, f"there is no whole batch at position {position}")
            position += at

    def batches(self, position: int = 0, window: int = REPLAY_BYTES) -> Iterator[RecordBatch]:
        """Whole batches from a batch border on. Raises ``CorruptBatch`` at the first that is none."""
        end = self.size
        while position < end:
            chunk = self.log.read(position, window)
            at, needed = 0, 0
            while at < len(chunk):
                needed = self._needed(chunk, at)
                if at + needed > len(chunk):
                    break
                batch = RecordBatch.parse(chunk, at)
                yield batch
                at += batch.size
            if at == 0:
                # The batch is larger than the window, or by its own word larger than what is left of the file.
                if needed <= len(chunk) or position + needed > end:
                    raise CorruptBatch(Reason.SHORT, f"the file ends inside the batch at position {position}")
                window = needed
            position += at

    @staticmethod
    def _needed(chunk: bytes, at: int) -> int:
        """How many bytes the batch at ``at`` takes, by its own word."""
        if at + LOG_OVERHEAD_BYTES > len(chunk):
            return HEADER_BYTES
        length = int.from_bytes(chunk[at + 8 : at + LOG_OVERHEAD_BYTES], "big", signed=True)
        return max(length + LOG_OVERHEAD_BYTES, HEADER_BYTES)

    def load_end(self) -> int:
        """The offset after the last batch; learns the largest timestamp on the way. Reads what follows the last entry.

        Raises ``CorruptBatch`` when the file does not end with a whole batch.
        """
        self.load_timestamps()
        end_offset = self.base_offset
        for batch in self.batches(self.offset_index.last_position()):
            end_offset = batch.last_offset + 1
            if batch.max_timestamp > self.max_timestamp_ms:
                self.max_timestamp_ms, self.max_timestamp_offset = batch.max_timestamp, batch.last_offset
        return end_offset

    def load_timestamps(self) -> None:
        """The largest timestamp of a segment that was sealed: the last entry of its time index."""
        self.max_timestamp_ms, self.max_timestamp_offset = self.time_index.last()

    def truncate(self, offset: int) -> None:
        """Cut every batch that holds ``offset`` or more."""
        found = self.locate(offset)
        if found is not None:
            self.log.truncate(found[0])
        self.offset_index.truncate(offset)
        self.time_index.truncate(offset)
        self.transaction_index.truncate(offset)
        self.forget_batches()
        self.load_end()

    def forget_batches(self) -> None:
        """What is known of batches in memory is no longer so."""
        self._bytes_since_index_entry = 0
        self._first_timestamp_ms = None

    def seal(self) -> None:
        """No more appends: write the final time entry and the indexes."""
        if self.size:
            self.time_index.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)
        self.save_indexes()

    def save_indexes(self) -> None:
        self.offset_index.save()
        self.time_index.save()

    def sync(self) -> None:
        """fsync all files of the segment, and once the directories that name them."""
        self.log.sync()
        self.transaction_index.sync()
        self.sync_indexes()
        while self._unsynced_names:
            sync_file(self._unsynced_names[0])
            del self._unsynced_names[0]

    def sync_indexes(self) -> None:
        """fsync what was saved of the indexes since the last time."""
        self.offset_index.sync()
        self.time_index.sync()

    def close(self) -> None:
        self.log.close()
        self.transaction_index.close()

    def delete(self) -> None:
        """Remove every file of the segment."""
        self.close()
        for path in self.paths():
            remove(path)

    def retire(self) -> list[Path]:
        """Take the files out of the log by their names (``.deleted``); returns them, to be removed later.

        Quick whatever their size: to free the blocks of a big file takes long and may be done in another thread.
        """
        self.close()
        retired = []
        for path in self.paths():
            if path.exists():
                retired.append(path.with_name(path.name + DELETED))
                rename(path, retired[-1])
        return retired

    def swap_in(self) -> None:
        """Give the files of a compacted segment, which end in ``.swap``, their final names."""
        for path in self.paths():
            swap = path.with_name(path.name + SWAP)
            if swap.exists():
                rename(swap, path)

    def paths(self) -> list[Path]:
        """Every file of the segment that there can be."""
        return [self.directory / file_name(self.base_offset, suffix) for suffix in SEGMENT_SUFFIXES]
