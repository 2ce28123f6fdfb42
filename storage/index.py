"""The three index files of a segment, in Kafka's layout.

Offset and time index entries of the active segment stay in memory and are written when the segment is flushed or closed:
after a kill they are rebuilt from the log anyway, and a missing tail only makes a look-up scan further.
Aborted transactions are written at once (they are rare, and tools like to see them).
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from storage.files import AppendFile, StorageError

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
ABORTED_ENTRY = struct.Struct(">hqqqq")


class OffsetIndex:
    """(last offset of a batch, position of that batch), every ``index.interval.bytes`` or so."""

    __slots__ = ("_loaded", "base_offset", "dirty", "offsets", "path", "positions")

    def __init__(self, path: Path, base_offset: int, *, fresh: bool = False) -> None:
        self.path = path
        self.base_offset = base_offset
        self.offsets = array("I")
        self.positions = array("I")
        self._loaded = fresh
        self.dirty = fresh

    def __len__(self) -> int:
        self._load()
        return len(self.offsets)

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        entries = array("I", _read(self.path, OFFSET_ENTRY.size))
        if sys.byteorder == "little":
            entries.byteswap()
        self.offsets, self.positions = entries[0::2], entries[1::2]
        # A segment that Kafka preallocated and did not close ends in zero entries.
        while len(self.offsets) > 1 and self.offsets[-1] == 0:
            self.offsets.pop()
            self.positions.pop()
        if len(self.offsets) == 1 and self.offsets[0] == 0 and self.positions[0] == 0:
            self.offsets.pop()
            self.positions.pop()

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
            entries = array(
                "I", [value for pair in zip(self.offsets, self.positions, strict=True) for value in pair]
            )
            if sys.byteorder == "little":
                entries.byteswap()
            replace_plain(self.path, entries.tobytes())
            self.dirty = False


class TimeIndex:
    """(largest timestamp so far, last offset of the batch that has it)."""

    __slots__ = ("_loaded", "base_offset", "dirty", "offsets", "path", "timestamps")

    def __init__(self, path: Path, base_offset: int, *, fresh: bool = False) -> None:
        self.path = path
        self.base_offset = base_offset
        self.timestamps = array("q")
        self.offsets = array("I")
        self._loaded = fresh
        self.dirty = fresh

    def __len__(self) -> int:
        self._load()
        return len(self.timestamps)

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        for timestamp, offset in TIME_ENTRY.iter_unpack(_read(self.path, TIME_ENTRY.size)):
            if self.timestamps and timestamp <= self.timestamps[-1]:
                break  # zero entries of a preallocated file
            self.timestamps.append(timestamp)
            self.offsets.append(offset)

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Timestamps only rise: an entry that says nothing new is left out."""
        self._load()
        if not self.timestamps or timestamp_ms > self.timestamps[-1]:
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
            pairs = zip(self.timestamps, self.offsets, strict=True)
            replace_plain(self.path, b"".join(TIME_ENTRY.pack(*pair) for pair in pairs))
            self.dirty = False


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

    def _read(self) -> Iterator[AbortedTransaction]:
        data = _read(self.path, ABORTED_ENTRY.size)
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


def replace_plain(path: Path, data: bytes) -> None:
    """Write a whole index file. Not atomic: an index is rebuilt from its log when it does not fit."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise StorageError(path, error) from error


def _read(path: Path, entry_size: int) -> bytes:
    """A file's whole entries; nothing when it is missing."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StorageError(path, error) from error
    return data[: len(data) // entry_size * entry_size]


__all__ = ["AbortedTransaction", "OffsetIndex", "TimeIndex", "TransactionIndex"]
