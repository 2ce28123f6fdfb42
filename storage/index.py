"""The three index files of a segment, in Kafka's layout.

Entries are sorted and have a fixed size, so a look-up reads only a few of them, and the others need not be in memory. The
newest entries of the active segment are in memory. The files are read, not mapped. A page of a mapped file that the disk
cannot read ends the process (SIGBUS), but an unreadable file must take only its partition offline. Besides, mapping a file
costs 20 us, a look-up that reads costs less than 10, and a mapping has to be renewed when the file grows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import Any, ClassVar

from storage.aborted import AbortedTransaction
from storage.files import AppendFile, Name, StorageError, file_size, remove, replace_file, write_file

OFFSET_ENTRY = Struct(">II")
TIME_ENTRY = Struct(">qI")
ABORTED_ENTRY = Struct(">hqqqq")
OFFSET_ENTRY_BYTES = OFFSET_ENTRY.size
TIME_ENTRY_BYTES = TIME_ENTRY.size
TAIL_ENTRIES = 512
"""Number of entries in memory at which they are written to the file: 2 MiB of log by Kafka's defaults."""
BLOCK_ENTRIES = 256
"""Number of entries that a binary search reads at once, as soon as no more entries than this are left to search. They stay
in memory until the next search reads others: a consumer that reads on mostly finds its next position among them."""


class IndexFile:
    """An index file with entries in ascending order. The newest entries may still be in memory only."""

    __slots__ = ("_block", "_file", "_must_replace", "_saved", "_tail", "base_offset", "name")

    ENTRY: ClassVar[Struct]

    def __init__(self, path: Name, base_offset: int, *, fresh: bool = False) -> None:
        self.name = str(path)
        self.base_offset = base_offset
        self._file: AppendFile | None = None
        # Number of entries in the file; -1: not counted yet.
        self._saved = 0 if fresh else -1
        self._tail = bytearray()
        # The entries of the file that the last search has read, and the index of the first of them.
        self._block = (0, b"")
        # Ignore and replace an existing file of this name.
        self._must_replace = fresh

    def __len__(self) -> int:
        if self._saved < 0:
            self._load()
        return self._saved + len(self._tail) // self.ENTRY.size

    @property
    def path(self) -> Path:
        return Path(self.name)

    @property
    def has_unsaved(self) -> bool:
        """Whether the file lacks entries that are in memory, or must be replaced."""
        return bool(self._tail) or self._must_replace

    @property
    def has_full_tail(self) -> bool:
        return len(self._tail) >= TAIL_ENTRIES * self.ENTRY.size

    # -- reading ------------------------------------------------------------------------------------------------

    def _load(self) -> AppendFile:
        """Open the file, and count its entries at the first call."""
        file = self._file
        if file is None:
            file = self._file = AppendFile(self.name)
        if self._saved < 0:
            self._saved = self._count(file)
        return file

    def _count(self, file: AppendFile) -> int:
        """Number of whole entries, without the zeros at the end of a preallocated file that Kafka did not close."""
        size = self.ENTRY.size
        whole = file.size // size
        nothing = bytes(size)

        def is_zero(index: int) -> bool:
            return file.read(index * size, size) == nothing

        if not whole or not is_zero(whole - 1):
            return whole
        # The first entry may be a real zero. Padding zeros follow the entries.
        count = 1 + bisect_right(range(1, whole), False, key=is_zero)
        return self._count_of_zeros(whole) if count == 1 and is_zero(0) else count

    @staticmethod
    def _count_of_zeros(whole: int) -> int:
        """Number of real entries in a file whose ``whole`` entries consist of zeros."""
        return 0

    def entry(self, index: int) -> tuple[Any, ...]:
        file = self._file if self._saved >= 0 else self._load()
        size = self.ENTRY.size
        if index >= self._saved:
            return self.ENTRY.unpack_from(self._tail, (index - self._saved) * size)
        first, block = self._block
        if 0 <= (at := (index - first) * size) < len(block):
            return self.ENTRY.unpack_from(block, at)
        return self.ENTRY.unpack(self._read(file, index, 1))

    def _read(self, file: AppendFile | None, index: int, count: int) -> bytes:
        """Bytes of ``count`` entries of the file, from the entry ``index`` on."""
        size = self.ENTRY.size
        data = file.read(index * size, count * size) if file is not None else b""
        if len(data) < count * size:
            raise StorageError(
                self.name, f"the file has become shorter: it ends before entry {index + count}"
            )
        return data

    def search(self, target: int, column: int) -> int:
        """Number of entries whose value in ``column`` is at most ``target``. The values of both columns rise from entry to
        entry.
        """
        count = len(self)
        unpack, size, tail, saved = self.ENTRY.unpack_from, self.ENTRY.size, self._tail, self._saved
        if tail and unpack(tail)[column] <= target:
            return saved + bisect_right(
                range(count - saved), target, key=lambda index: unpack(tail, index * size)[column]
            )
        if not saved:
            return 0
        first, block = self._block
        if not block or not unpack(block)[column] <= target < unpack(block, len(block) - size)[column]:
            self._block = first, block = self._find_block(target, column)
        return first + bisect_right(
            range(len(block) // size), target, key=lambda index: unpack(block, index * size)[column]
        )

    def _find_block(self, target: int, column: int) -> tuple[int, bytes]:
        """The entries of the file among which ``target`` is, by a binary search, and the index of the first of them."""
        low, high = 0, self._saved
        while high - low > BLOCK_ENTRIES:
            middle = (low + high) // 2
            if self.entry(middle)[column] <= target:
                low = middle + 1
            else:
                high = middle
        return low, self._read(self._file, low, high - low) if low < high else b""  # above all entries

    def rows(self, first: int = 0) -> Iterator[tuple[Any, ...]]:
        """Entries from ``first`` on, as in the file."""
        count = len(self)
        while first < min(self._saved, count):
            some = min(self._saved - first, BLOCK_ENTRIES)
            yield from self.ENTRY.iter_unpack(self._read(self._file, first, some))
            first += some
        tail = bytes(self._tail)
        yield from self.ENTRY.iter_unpack(tail[(first - self._saved) * self.ENTRY.size :])

    # -- changing -----------------------------------------------------------------------------------------------

    def keep(self, count: int) -> None:
        """Remove all entries but the first ``count``."""
        if count >= len(self):
            return
        size = self.ENTRY.size
        if count >= self._saved:
            del self._tail[(count - self._saved) * size :]
            return
        self._tail.clear()
        self._block = 0, b""
        self._saved = count
        self._load().truncate(count * size)
        self._rest()

    def clear(self) -> None:
        """Remove all entries in memory. The file stays as it is until ``save`` replaces it."""
        self._tail.clear()
        self._block = 0, b""
        self._saved = 0
        self._must_replace = True

    def save(self) -> None:
        """Write the entries in memory to the file."""
        if self._must_replace:
            self._replace()
        elif self._file is not None:
            size = self.ENTRY.size
            if self._file.size != self._saved * size:
                self._file.truncate(self._saved * size)  # zeros that were not entries
            if self._tail:
                self._file.append([bytes(self._tail)], len(self._tail))
            self._rest()
        self._saved += len(self._tail) // self.ENTRY.size
        self._tail.clear()

    def _replace(self) -> None:
        content = bytes(self._tail)
        self.close()
        size = self._size_if_beginning_of(content)
        if size is not None:
            self._file = AppendFile(self.name, size)
            if size < len(content):
                self._file.append([content[size:]], len(content) - size)
                self._rest()
        else:
            if content:
                # A kill meanwhile must leave the old file, because half an index looks like a whole one.
                replace_file(self.path, content, durable=False)
            else:
                write_file(self.name, b"")
            self._file = AppendFile(self.name, len(content))
        self._must_replace = False

    def _size_if_beginning_of(self, content: bytes) -> int | None:
        """Size of the file if ``content`` begins with the file's bytes, else None.

        After a crash most index files pass this test and are kept, because creating a file is expensive.
        """
        size = file_size(self.name)
        if size is None or size > len(content):
            return None
        file = AppendFile(self.name, size)
        try:
            return size if file.read(0, size) == content[:size] else None
        finally:
            file.close()

    def sync(self) -> None:
        """fsync the file. Any thread may call it."""
        file = self._file
        if file is not None:
            file.sync()

    def _rest(self) -> None:
        """Close the descriptor, since the next entries are written only seconds or megabytes later."""
        if self._file is not None:
            self._file.close()

    def close(self) -> None:
        self._rest()

    @property
    def can_be_forgotten(self) -> bool:
        """Whether this object may be replaced by a new one for the same file without losing information."""
        return not self.has_unsaved and (self._file is None or self._file.can_be_forgotten)


class PairIndex(IndexFile):
    """An index whose entries have two columns that rise together. One column is an offset relative to the segment's base."""

    __slots__ = ()

    OFFSET_COLUMN: ClassVar[int]
    BEFORE_FIRST: ClassVar[tuple[int, int]]
    """Values that the first entry must exceed, in both columns."""

    def truncate(self, offset: int) -> None:
        """Remove entries at or after an offset."""
        self.keep(self.search(offset - self.base_offset - 1, self.OFFSET_COLUMN))

    def count_below(self, offset: int) -> int:
        """Number of entries, from the first on, that rise correctly and are below an offset. Reads each of them."""
        relative_end, column = offset - self.base_offset, self.OFFSET_COLUMN
        count, (last_first, last_second) = 0, self.BEFORE_FIRST
        for row in self.rows():
            first, second = row
            if first <= last_first or second <= last_second or row[column] >= relative_end:
                break
            count, last_first, last_second = count + 1, first, second
        return count


class OffsetIndex(PairIndex):
    """The offset index: an entry (last offset of a batch, position of the batch) about every ``index.interval.bytes``."""

    __slots__ = ()

    ENTRY = OFFSET_ENTRY
    OFFSET_COLUMN = 0
    # The first batch, at position 0, is never indexed.
    BEFORE_FIRST = (-1, 0)

    def append(self, offset: int, position: int) -> None:
        if self._saved < 0:
            self._load()
        self._tail += OFFSET_ENTRY.pack(offset - self.base_offset, position)

    def position_at_or_before(self, offset: int) -> int:
        """Position where a scan for ``offset`` starts; 0, the segment's start, if no entry is at or below it."""
        count = self.search(offset - self.base_offset, 0)
        position: int = self.entry(count - 1)[1] if count else 0
        return position

    def last_position(self) -> int:
        """Position of the last indexed batch; 0, the segment's start, if there is none."""
        count = len(self)
        position: int = self.entry(count - 1)[1] if count else 0
        return position

    def offset_after_position(self, position: int) -> int | None:
        """First indexed offset at or after a position, as an upper bound of the offsets before that position."""
        count = self.search(position - 1, 1)
        return self.base_offset + self.entry(count)[0] if count < len(self) else None


class TimeIndex(PairIndex):
    """The time index: entries (largest timestamp so far, last offset of the batch that has the timestamp)."""

    __slots__ = ()

    ENTRY = TIME_ENTRY
    OFFSET_COLUMN = 1
    BEFORE_FIRST = (-1, -1)

    @staticmethod
    def _count_of_zeros(whole: int) -> int:
        # One entry alone may be zero: a record of the first millisecond of 1970, at the base offset.
        return int(whole == 1)

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Append an entry if the timestamp is larger than the last entry's."""
        if timestamp_ms > self.last()[0]:
            self._tail += TIME_ENTRY.pack(timestamp_ms, offset - self.base_offset)

    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) if there is none."""
        count = len(self)
        if not count:
            return -1, self.base_offset
        timestamp_ms, relative = self.entry(count - 1)
        return timestamp_ms, self.base_offset + relative

    def offset_at_or_before(self, timestamp_ms: int) -> int:
        """Offset up to which every timestamp is surely smaller than ``timestamp_ms``; at least the base offset."""
        count = self.search(timestamp_ms - 1, 0)
        return self.base_offset + (self.entry(count - 1)[1] if count else 0)


_MARKER_COLUMN = 3


def aborted_of(rows: Iterable[tuple[Any, ...]], path: Name) -> Iterator[AbortedTransaction]:
    """Decode the entries of a transaction index. ``path`` is for the error message."""
    for version, *fields in rows:
        if version != 0:
            raise StorageError(path, f"entry version {version} is not known")
        yield AbortedTransaction(*fields)


class TransactionIndex(IndexFile):
    """The transaction index: the aborted transactions whose markers are in the segment, in marker order.

    The first entry creates the file. Entries are rare, so each is written at once, and Kafka's tools can read them.
    """

    __slots__ = ()

    ENTRY = ABORTED_ENTRY

    def __init__(self, path: Name, *, fresh: bool = False) -> None:
        super().__init__(path, 0, fresh=fresh)
        self._must_replace = False

    def _count(self, file: AppendFile) -> int:
        return file.size // self.ENTRY.size  # never preallocated

    def from_offset(self, offset: int) -> Iterator[AbortedTransaction]:
        """Aborted transactions whose markers are at or after ``offset``."""
        if not len(self):
            return
        for version, *fields in self.rows(self.search(offset - 1, _MARKER_COLUMN)):
            if version != 0:
                raise StorageError(self.name, f"entry version {version} is not known")
            yield AbortedTransaction(*fields)

    def entries(self) -> list[AbortedTransaction]:
        return list(self.from_offset(0))

    def is_sane(self, base_offset: int) -> bool:
        """Whether the file has whole entries of a known version, with markers that rise from the segment's base on."""
        last_marker = base_offset - 1
        try:
            if self._load().size % self.ENTRY.size:
                return False
            for version, _, first_offset, marker, _ in self.rows():
                if version != 0 or marker <= last_marker or first_offset >= marker:
                    return False
                last_marker = marker
        except StorageError:
            return False
        return True

    def append(self, entry: AbortedTransaction) -> None:
        self._load()
        self._tail += ABORTED_ENTRY.pack(0, *entry)
        try:
            self.save()
        finally:
            self._tail.clear()

    def truncate(self, offset: int) -> None:
        """Remove transactions whose markers are at or after an offset."""
        count = self.search(offset - 1, _MARKER_COLUMN)
        if count:
            self.keep(count)
        else:
            self.clear()

    def clear(self) -> None:
        if self._file is None or self._file.size:
            remove(self.name)
        self.close()
        self._file, self._saved = None, 0


__all__ = ["AbortedTransaction", "IndexFile", "OffsetIndex", "TimeIndex", "TransactionIndex", "aborted_of"]
