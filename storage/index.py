"""The three index files of a segment, in Kafka's layout.

Offset and time index entries of the active segment stay in memory and are written when the segment is flushed or closed:
after a kill they are rebuilt from the log anyway, and a missing tail only makes a look-up scan further.
Aborted transactions are written at once (they are rare, and tools like to see them).
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from storage.files import AppendFile, StorageError, sync_file, write_file

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
ABORTED_ENTRY = struct.Struct(">hqqqq")


class OffsetIndex:
    """(last offset of a batch, position of that batch), every ``index.interval.bytes`` or so."""

    __slots__ = ("_loaded", "_synced", "base_offset", "dirty", "offsets", "path", "positions")

    def __init__(self, path: Path, base_offset: int, *, fresh: bool = False) -> None:
        self.path = path
        self.base_offset = base_offset
        self.offsets = array("I")
        self.positions = array("I")
        self._loaded = fresh
        self.dirty = fresh
        self._synced = not fresh

    def __len__(self) -> int:
        self._load()
        return len(self.offsets)

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        # No real entry is zero: the first batch, at position 0, is never indexed.
        words = _words(_without_padding(_read(self.path), OFFSET_ENTRY_BYTES))
        self.offsets, self.positions = words[0::2], words[1::2]

    def append(self, offset: int, position: int) -> None:
        self._load()
        self.offsets.append(offset - self.base_offset)
        self.positions.append(position)
        self.dirty = True

    def position_at_or_before(self, offset: int) -> int:
        """Where to start scanning for ``offset``; the segment's start when nothing is known."""
        self._load()
        index = bisect_right(self.offsets, offset - self.base_offset)
        return self.positions[index - 1] if index else 0

    def last_position(self) -> int:
        """Of the last indexed batch; the segment's start when there is none."""
        self._load()
        return self.positions[-1] if self.positions else 0

    def offset_after_position(self, position: int) -> int | None:
        """The first indexed offset at or after a position: an upper bound for what a read up to there holds."""
        self._load()
        index = bisect_right(self.positions, position)
        if index and self.positions[index - 1] == position:
            index -= 1
        return self.base_offset + self.offsets[index] if index < len(self.offsets) else None

    def truncate(self, offset: int) -> None:
        """Forget entries at or after an offset."""
        self._load()
        relative = offset - self.base_offset
        while self.offsets and self.offsets[-1] >= relative:
            self.offsets.pop()
            self.positions.pop()
            self.dirty = True

    def clear(self) -> None:
        self.offsets, self.positions = array("I"), array("I")
        self._loaded = self.dirty = True

    def save(self) -> None:
        if self.dirty:
            words = array("I", bytes(OFFSET_ENTRY_BYTES * len(self.offsets)))
            words[0::2], words[1::2] = self.offsets, self.positions
            write_file(self.path, _big_endian(words).tobytes())
            self.dirty = self._synced = False

    def sync(self) -> None:
        """Make what was saved durable."""
        if not self._synced:
            self._synced = True
            try:
                sync_file(self.path)
            except StorageError:
                self._synced = False
                raise


class TimeIndex:
    """(largest timestamp so far, last offset of the batch that has it)."""

    __slots__ = ("_loaded", "_synced", "base_offset", "dirty", "offsets", "path", "timestamps")

    def __init__(self, path: Path, base_offset: int, *, fresh: bool = False) -> None:
        self.path = path
        self.base_offset = base_offset
        self.timestamps = array("q")
        self.offsets = array("I")
        self._loaded = fresh
        self.dirty = fresh
        self._synced = not fresh

    def __len__(self) -> int:
        self._load()
        return len(self.timestamps)

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        data = _read(self.path)
        # One entry alone may be zero: a record of the first millisecond of 1970, at the base offset.
        if len(data) > TIME_ENTRY_BYTES:
            data = _without_padding(data, TIME_ENTRY_BYTES)
        words = _words(data[: len(data) // TIME_ENTRY_BYTES * TIME_ENTRY_BYTES])
        halves = array("I", bytes(8 * (len(words) // 3)))
        first, second = (1, 0) if sys.byteorder == "little" else (0, 1)
        halves[first::2], halves[second::2] = words[0::3], words[1::3]
        self.timestamps = array("q", halves.tobytes())
        self.offsets = words[2::3]

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Timestamps only rise: an entry that says nothing new is left out."""
        self._load()
        if timestamp_ms > (self.timestamps[-1] if self.timestamps else -1):
            self.timestamps.append(timestamp_ms)
            self.offsets.append(offset - self.base_offset)
            self.dirty = True

    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry, (-1, base offset) when there is none."""
        self._load()
        if not self.timestamps:
            return -1, self.base_offset
        return self.timestamps[-1], self.base_offset + self.offsets[-1]

    def offset_at_or_before(self, timestamp_ms: int) -> int:
        """The offset up to which every timestamp is smaller than the one asked for."""
        self._load()
        index = bisect_right(self.timestamps, timestamp_ms - 1)
        return self.base_offset + self.offsets[index - 1] if index else self.base_offset

    def truncate(self, offset: int) -> None:
        self._load()
        relative = offset - self.base_offset
        while self.offsets and self.offsets[-1] >= relative:
            self.timestamps.pop()
            self.offsets.pop()
            self.dirty = True

    def clear(self) -> None:
        self.timestamps, self.offsets = array("q"), array("I")
        self._loaded = self.dirty = True

    def save(self) -> None:
        if self.dirty:
            halves = array("I", self.timestamps.tobytes())
            words = array("I", bytes(TIME_ENTRY_BYTES * len(self.offsets)))
            first, second = (1, 0) if sys.byteorder == "little" else (0, 1)
            words[0::3], words[1::3], words[2::3] = halves[first::2], halves[second::2], self.offsets
            write_file(self.path, _big_endian(words).tobytes())
            self.dirty = self._synced = False

    def sync(self) -> None:
        """Make what was saved durable."""
        if not self._synced:
            self._synced = True
            try:
                sync_file(self.path)
            except StorageError:
                self._synced = False
                raise


class AbortedTransaction(NamedTuple):
    """One aborted transaction with data in this partition.

    ``last_offset`` is its marker's; ``last_stable_offset`` what became stable with that marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions whose markers lie in this segment, in marker order. The file is made at the first one."""

    __slots__ = ("_entries", "_file", "path")

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self.path = path
        self._entries: list[AbortedTransaction] | None = [] if fresh else None
        self._file: AppendFile | None = None

    def entries(self) -> list[AbortedTransaction]:
        if self._entries is None:
            self._entries = list(self._read())
        return self._entries

    def from_offset(self, offset: int) -> list[AbortedTransaction]:
        """The transactions whose markers lie at or after ``offset``."""
        entries = self.entries()
        return entries[bisect_left(entries, offset, key=_marker_offset) :] if entries else entries

    def is_sane(self, base_offset: int) -> bool:
        """Whole entries of a known version whose markers rise from the segment's base on."""
        try:
            whole = len(_read(self.path)) % ABORTED_ENTRY.size == 0
            markers = [entry.last_offset for entry in self.entries()]
        except StorageError:
            return False
        return whole and all(a < b for a, b in zip([base_offset - 1, *markers], markers, strict=False))

    def _read(self) -> Iterator[AbortedTransaction]:
        data = _read(self.path)
        data = data[: len(data) // ABORTED_ENTRY.size * ABORTED_ENTRY.size]
        for version, *fields in ABORTED_ENTRY.iter_unpack(data):
            if version != 0:
                raise StorageError(self.path, f"entry version {version} is not known")
            yield AbortedTransaction(*fields)

    def append(self, entry: AbortedTransaction) -> None:
        entries = self.entries()
        if self._file is None:
            self._file = AppendFile(self.path)
        data = ABORTED_ENTRY.pack(0, *entry)
        self._file.append([data], len(data))
        entries.append(entry)

    def truncate(self, offset: int) -> None:
        """Forget transactions whose markers lie at or after an offset."""
        entries = self.entries()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) != len(entries):
            self.clear()
            for entry in kept:
                self.append(entry)

    def clear(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)
        self._entries = []

    def sync(self) -> None:
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _marker_offset(entry: AbortedTransaction) -> int:
    return entry.last_offset


def _read(path: Path) -> bytes:
    """A whole index file; nothing when it is missing."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StorageError(path, error) from error


def _without_padding(data: bytes, entry_bytes: int) -> bytes:
    """The whole entries, without the zeros that a preallocated file ends in when Kafka did not close it."""
    entries = -(-len(data.rstrip(b"\0")) // entry_bytes)
    return data[: min(entries, len(data) // entry_bytes) * entry_bytes]


def _words(data: bytes) -> array[int]:
    """The file's 32-bit numbers, in this machine's byte order."""
    return _big_endian(array("I", data))


def _big_endian(words: array[int]) -> array[int]:
    """To and from the files' byte order."""
    if sys.byteorder == "little":
        words.byteswap()
    return words


__all__ = ["AbortedTransaction", "OffsetIndex", "TimeIndex", "TransactionIndex"]
