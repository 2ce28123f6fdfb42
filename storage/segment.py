"""One segment of a partition's log: the batches from its base offset on, and the indexes that find them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct

from protocol.batch import CorruptBatch, RecordBatch
from storage.files import AppendFile, Buffer
from storage.index import OffsetIndex, TimeIndex, TransactionIndex

# base offset, batch length, last offset delta: all that a search by offset looks at.
_POSITIONS = Struct(">qi11xi")
HEADER_BYTES = 61
SCAN_BYTES = 16 * 1024
"""How much is read at once when looking for a batch: a few index intervals."""
OFFSET_INDEX_ENTRY_BYTES = 8
TIME_INDEX_ENTRY_BYTES = 12


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
        "base_offset",
        "created_ms",
        "directory",
        "first_timestamp_ms",
        "jitter_ms",
        "log",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "offset_index",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self, directory: Path, base_offset: int, *, created_ms: int, jitter_ms: int = 0, fresh: bool = False
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        self.log = AppendFile(directory / file_name(base_offset, "log"), 0 if fresh else None)
        self.offset_index = OffsetIndex(directory / file_name(base_offset, "index"), base_offset, fresh=fresh)
        self.time_index = TimeIndex(directory / file_name(base_offset, "timeindex"), base_offset, fresh=fresh)
        self.transaction_index = TransactionIndex(directory / file_name(base_offset, "txnindex"), fresh=fresh)
        self._bytes_since_index_entry = 0
        # Of the segment's first batch: time-based rolling counts from it.
        self.first_timestamp_ms = -1
        self.max_timestamp_ms = -1
        self.max_timestamp_offset = base_offset

    @property
    def size(self) -> int:
        return self.log.size

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
        if self.first_timestamp_ms < 0:
            self.first_timestamp_ms = max_timestamp_ms
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
            len(self.offset_index) >= index_bytes_max // OFFSET_INDEX_ENTRY_BYTES
            or len(self.time_index) >= index_bytes_max // TIME_INDEX_ENTRY_BYTES - 1
        )

    def locate(self, offset: int) -> tuple[int, int] | None:
        """(position, size) of the batch that holds ``offset``, or of the next one when it was compacted away."""
        position = self.offset_index.position_at_or_before(offset)
        for base_offset, last_offset, start, size in self._scan(position):
            if last_offset >= offset:
                return start, size
            del base_offset
        return None

    def _scan(self, position: int) -> Iterator[tuple[int, int, int, int]]:
        """(base offset, last offset, position, size) of each batch from a batch border on, by headers only."""
        end = self.size
        while position + HEADER_BYTES <= end:
            chunk = self.log.read(position, SCAN_BYTES)
            at = 0
            while at + HEADER_BYTES <= len(chunk):
                base_offset, length, delta = _POSITIONS.unpack_from(chunk, at)
                size = length + 12
                yield base_offset, base_offset + delta, position + at, size
                at += size
            position += at

    def batches(self, position: int = 0) -> Iterator[RecordBatch]:
        """Whole batches from a batch border on. Raises ``CorruptBatch`` at the first that is none."""
        end = self.size
        window = 1024 * 1024
        while position < end:
            chunk = self.log.read(position, window)
            at = 0
            while at < len(chunk):
                needed = self._needed(chunk, at)
                if at + needed > len(chunk):
                    break
                batch = RecordBatch.parse(chunk, at)
                yield batch
                at += batch.size
            if at == 0:
                if position + len(chunk) >= end:
                    RecordBatch.parse(chunk, 0)  # raises: the file ends inside a batch
                    return
                window = max(window * 2, self._needed(chunk, 0))
            position += at

    @staticmethod
    def _needed(chunk: bytes, at: int) -> int:
        """How many bytes the batch at ``at`` takes, by its own word."""
        if at + 12 > len(chunk):
            return HEADER_BYTES
        length = int.from_bytes(chunk[at + 8 : at + 12], "big", signed=True)
        return max(length + 12, HEADER_BYTES) if length >= 0 else HEADER_BYTES

    def load_timestamps(self) -> None:
        """The largest timestamp of a segment that was closed or recovered: the last entry of its time index."""
        self.max_timestamp_ms, self.max_timestamp_offset = self.time_index.last()
        if self.size and self.first_timestamp_ms < 0:
            try:
                self.first_timestamp_ms = next(self.batches()).max_timestamp
            except (CorruptBatch, StopIteration):
                self.first_timestamp_ms = -1

    def seal(self) -> None:
        """No more appends: write the final time entry and the indexes."""
        if self.size:
            self.time_index.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)
        self.save_indexes()

    def save_indexes(self) -> None:
        self.offset_index.save()
        self.time_index.save()

    def sync(self) -> None:
        """fsync the log and the transaction index (the two others can be rebuilt)."""
        self.log.sync()
        self.transaction_index.sync()

    def close(self) -> None:
        self.log.close()
        self.transaction_index.close()

    def paths(self) -> list[Path]:
        """Every file of the segment that there can be."""
        suffixes = ("log", "index", "timeindex", "txnindex")
        return [self.directory / file_name(self.base_offset, suffix) for suffix in suffixes]
