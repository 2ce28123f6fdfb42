"""Read the index files of a partition directory entry by entry, in Spark's tasks.

Formats: ``OffsetIndex``, ``TimeIndex`` and ``TransactionIndex`` of Kafka's storage module. A broker preallocates the index
files of an active segment with zeros; the entries end where the zeros begin.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from odradek.spark.segments.finding import Partition, Segment, segments

OFFSET, TIME, TRANSACTION, FLAW, SEGMENT = "offset", "time", "transaction", "flaw", "segment"
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_TRANSACTION_ENTRY: Final = struct.Struct(">hqqqq")
_TRANSACTION_VERSION: Final = 0


class Entry(NamedTuple):
    """One entry of the index file ``file``. Offsets are absolute; ``position`` is the entry's first byte in the file.

    The meaning of the fields depends on ``kind``. ``offset``: ``first`` is the offset, ``second`` the position in the
    segment. ``transaction``: ``first`` and ``second`` are the first offset and the marker's offset of ``producer_id``'s
    transaction. ``flaw``: ``text`` describes an error in the file. ``segment``: ``position`` is the size of the segment,
    ``first`` its inode, and ``second`` is 1 for the last segment, else 0.
    """

    file: str
    log_file: str
    kind: str
    position: int
    first: int | None = None
    second: int | None = None
    producer_id: int | None = None
    text: str | None = None


def entries(partition: Partition) -> Iterator[Entry]:
    """Yield all entries of the ``.index`` and ``.txnindex`` files, and the errors found in all index files."""
    for segment in segments(partition):
        yield from _offsets(segment, *_read(segment, "index"))
        yield from _times(segment, *_read(segment, "timeindex"))
        yield from _transactions(segment, *_read(segment, "txnindex"))


def looked_at(partition: Partition) -> Iterator[Entry]:
    """Yield an entry for each segment, with its size before any index file is read, and then the index ``entries``."""
    for segment in segments(partition):
        is_last = int(segment.next_offset is None)
        yield Entry(segment.file, segment.file, SEGMENT, segment.size, segment.inode, is_last)
    yield from entries(partition)


def _read(segment: Segment, suffix: str) -> tuple[str, bytes]:
    name = f"{segment.file.removesuffix('.log')}.{suffix}"
    try:
        with open(os.path.join(segment.partition.directory, name), "rb") as file:
            return name, file.read()
    except FileNotFoundError:
        return name, b""


def _offsets(segment: Segment, name: str, data: bytes) -> Iterator[Entry]:
    position = 0
    for position in range(0, len(data) - _OFFSET_ENTRY.size + 1, _OFFSET_ENTRY.size):
        relative, at = _OFFSET_ENTRY.unpack_from(data, position)
        if relative == at == 0:
            if data.count(0, position) < len(data) - position:
                text = f"zeros at byte {position} are followed by entries"
                yield Entry(name, segment.file, FLAW, position, text=text)
            return
        yield Entry(name, segment.file, OFFSET, position, segment.base_offset + relative, at)
    yield from _uneven(segment, name, data, _OFFSET_ENTRY.size)


def _times(segment: Segment, name: str, data: bytes) -> Iterator[Entry]:
    before = (-1, -1)
    for position in range(0, len(data) - _TIME_ENTRY.size + 1, _TIME_ENTRY.size):
        timestamp, relative = _TIME_ENTRY.unpack_from(data, position)
        if timestamp == relative == 0 and data.count(0, position) == len(data) - position:
            return
        if timestamp < before[0] or relative < before[1]:
            text = f"the entry at byte {position} has a lower timestamp or offset than the one before it"
            yield Entry(name, segment.file, FLAW, position, text=text)
            return
        before = (timestamp, relative)
    yield from _uneven(segment, name, data, _TIME_ENTRY.size)


def _transactions(segment: Segment, name: str, data: bytes) -> Iterator[Entry]:
    size = _TRANSACTION_ENTRY.size
    for position in range(0, len(data) - size + 1, size):
        version, producer_id, first, marker, _stable = _TRANSACTION_ENTRY.unpack_from(data, position)
        if version != _TRANSACTION_VERSION:
            text = f"the entry at byte {position} has version {version}"
            yield Entry(name, segment.file, FLAW, position, text=text)
            return
        yield Entry(name, segment.file, TRANSACTION, position, first, marker, producer_id)
    yield from _uneven(segment, name, data, size)


def _uneven(segment: Segment, name: str, data: bytes, size: int) -> Iterator[Entry]:
    if left := len(data) % size:
        text = f"{left} bytes at the end are not an entry, which has {size}: the file was truncated"
        yield Entry(name, segment.file, FLAW, len(data) - left, text=text)
