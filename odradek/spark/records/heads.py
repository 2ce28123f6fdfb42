"""Read the headers of record batches, many at a time: positions, fields, and whether each batch is sound.

Three compiled passes over a part of a segment file: ``scan`` follows the lengths from batch to batch, ``sound`` checks the
CRCs, ``out_of_order`` finds offsets that do not increase. The format is that of Kafka's ``DefaultRecordBatch``; batches of
formats 0 and 1 (``LegacyRecord``) are recognised and skipped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from odradek.spark.records.compiled import compiled, inlined

Bytes = NDArray[np.uint8]

HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12
"""Size of the base offset and the length field, which a batch's length does not include."""
SIZE_BYTES_MIN = LOG_OVERHEAD_BYTES + 14
"""Least size of a message of format 0: overhead, CRC, magic, attributes, and the lengths of key and value."""

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
SEQUENCE_MASK = 0x7FFF_FFFF

FIELDS = (
    "position",
    "size",
    "magic",
    "base_offset",
    "last_offset",
    "leader_epoch",
    "crc",
    "attributes",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "records",
)
HEAD = np.dtype([(name, np.int64) for name in FIELDS])
"""The fields of a batch header. ``position`` counts from the start of the buffer; fields that a format lacks are -1."""

# The reason why a scan stopped.
DONE, SHORT, CUT, LENGTH, LOST = range(5)
"""Reasons why a scan stopped, in this order: the end of the buffer, too few bytes for a header, a batch that the
buffer cuts off, a length that no batch can have, bytes that are no batch."""

_CRC_START = 21
_COMPILED_CRC_BYTES_MAX = 1024


class Scan(NamedTuple):
    """The batches in a buffer.

    ``stop`` is the end of the last batch, ``size`` the size of the next batch by its length field.
    """

    heads: NDArray[Any]
    stop: int
    reason: int
    size: int


def scan(buffer: Bytes, start: int, end: int, final: bool) -> Scan:
    """The batches that are completely in ``buffer[start:end]``.

    ``final``: whether the file ends at ``end``. A batch of an unknown format is skipped if its length leads to another
    batch, or to the end of the file.
    """
    heads = np.empty(max((end - start) // HEADER_BYTES, 1) + 1, HEAD)
    table = heads.view(np.int64).reshape(len(heads), len(FIELDS))
    count, stop, reason, size = _scan(buffer, start, end, final, table)
    return Scan(heads[:count], stop, reason, size)


def header_at(buffer: Bytes, position: int) -> Any:
    """The header of the batch of format 2 at ``position``; the buffer must contain all 61 bytes of the header."""
    heads = np.empty(1, HEAD)
    _read_header(buffer, position, heads.view(np.int64).reshape(1, len(FIELDS))[0])
    return heads[0]


@inlined
def _int32(buffer, p):  # type: ignore[no-untyped-def]
    return np.int64(
        np.int32(
            (np.uint32(buffer[p]) << np.uint32(24))
            | (np.uint32(buffer[p + 1]) << np.uint32(16))
            | (np.uint32(buffer[p + 2]) << np.uint32(8))
            | np.uint32(buffer[p + 3])
        )
    )


@inlined
def _int16(buffer, p):  # type: ignore[no-untyped-def]
    return np.int64(np.int16((np.uint16(buffer[p]) << np.uint16(8)) | np.uint16(buffer[p + 1])))


@inlined
def _int64(buffer, p):  # type: ignore[no-untyped-def]
    return (_int32(buffer, p) << np.int64(32)) | (_int32(buffer, p + 4) & np.int64(0xFFFFFFFF))


@compiled
def _read_header(buffer, p, head):  # type: ignore[no-untyped-def]
    head[0] = p
    head[1] = _int32(buffer, p + 8) + 12
    head[2] = buffer[p + 16]
    head[3] = _int64(buffer, p)
    head[4] = head[3] + _int32(buffer, p + 23)
    head[5] = _int32(buffer, p + 12)
    head[6] = _int32(buffer, p + 17) & np.int64(0xFFFFFFFF)
    head[7] = _int16(buffer, p + 21)
    head[8] = _int64(buffer, p + 27)
    head[9] = _int64(buffer, p + 35)
    head[10] = _int64(buffer, p + 43)
    head[11] = _int16(buffer, p + 51)
    head[12] = _int32(buffer, p + 53)
    head[13] = _int32(buffer, p + 57)


@compiled
def _looks_like_a_batch(buffer, p, end, final):  # type: ignore[no-untyped-def]
    """Whether a batch may begin at ``p``, or the file ends there."""
    if p == end:
        return True
    if end - p < 17:
        return not final
    return _int32(buffer, p + 8) + 12 >= 26 and buffer[p + 16] <= 2 and _int64(buffer, p) >= 0


@compiled
def _scan(buffer, start, end, final, heads):  # type: ignore[no-untyped-def]
    count = 0
    p = start
    while p < end:
        if end - p < 17:
            return count, p, 1, 17
        size = _int32(buffer, p + 8) + 12
        if size < 26:
            return count, p, 3, size
        if p + size > end:
            return count, p, 2, size
        if buffer[p + 16] == 2 and size >= 61:
            _read_header(buffer, p, heads[count])
        else:
            if not final and end - (p + size) < 17:
                return count, p, 2, size + 17
            if not _looks_like_a_batch(buffer, p + size, end, final):
                return count, p, 4, size
            heads[count, :] = -1
            heads[count, 0] = p
            heads[count, 1] = size
            heads[count, 2] = buffer[p + 16]
            heads[count, 3] = _int64(buffer, p)
        count += 1
        p += size
    return count, p, 0, 0


# ---- CRC-32C


def _tables() -> NDArray[np.uint32]:
    """The eight tables of "slicing by eight" for the Castagnoli polynomial."""
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        tables[0, byte] = value
    for byte in range(256):
        for step in range(1, 8):
            before = int(tables[step - 1, byte])
            tables[step, byte] = (before >> 8) ^ int(tables[0, before & 0xFF])
    return tables


_TABLES = _tables()


@compiled
def _crc32c(buffer, start, end, tables):  # type: ignore[no-untyped-def]
    crc = np.uint32(0xFFFFFFFF)
    p = start
    while end - p >= 8:
        a = crc ^ (
            np.uint32(buffer[p])
            | np.uint32(buffer[p + 1]) << np.uint32(8)
            | np.uint32(buffer[p + 2]) << np.uint32(16)
            | np.uint32(buffer[p + 3]) << np.uint32(24)
        )
        crc = (
            tables[7, a & np.uint32(0xFF)]
            ^ tables[6, (a >> np.uint32(8)) & np.uint32(0xFF)]
            ^ tables[5, (a >> np.uint32(16)) & np.uint32(0xFF)]
            ^ tables[4, a >> np.uint32(24)]
            ^ tables[3, buffer[p + 4]]
            ^ tables[2, buffer[p + 5]]
            ^ tables[1, buffer[p + 6]]
            ^ tables[0, buffer[p + 7]]
        )
        p += 8
    while p < end:
        crc = (crc >> np.uint32(8)) ^ tables[0, (crc ^ np.uint32(buffer[p])) & np.uint32(0xFF)]
        p += 1
    return np.int64(crc ^ np.uint32(0xFFFFFFFF))


@compiled
def _small_sound(buffer, heads, largest, tables, result):  # type: ignore[no-untyped-def]
    for i in range(len(heads)):
        size = heads[i, 1]
        if heads[i, 2] == 2 and size <= largest:
            p = heads[i, 0]
            result[i] = _crc32c(buffer, p + 21, p + size, tables) == heads[i, 6]


def sound(buffer: Bytes, heads: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether the CRC of each batch is right; False for formats 0 and 1, whose CRC is of another kind (CRC-32).

    Compiled code checks small batches, because its calls cost nothing. google_crc32c checks large ones, because it uses
    the processor's CRC instruction.
    """
    result = np.zeros(len(heads), np.bool_)
    largest = _COMPILED_CRC_BYTES_MAX
    _small_sound(buffer, heads.view(np.int64).reshape(len(heads), len(FIELDS)), largest, _TABLES, result)
    large = np.flatnonzero((heads["size"] > largest) & (heads["magic"] == 2))
    positions, sizes, crcs = (heads[name][large].tolist() for name in ("position", "size", "crc"))
    value = google_crc32c.value
    for i, position, size, crc in zip(large.tolist(), positions, sizes, crcs, strict=True):
        result[i] = value(buffer[position + _CRC_START : position + size]) == crc
    return result


# ---- order


@compiled
def _out_of_order(heads, good, before, following, result):  # type: ignore[no-untyped-def]
    last = before
    n = len(heads)
    for i in range(n):
        if not good[i]:
            continue
        base, end = heads[i, 3], heads[i, 4]
        if base <= last or end < base:
            result[i] = True
            continue
        j = i + 1
        while j < n and not good[j]:
            j += 1
        following_base = heads[j, 3] if j < n else following
        # This batch is wrong, and not the next, if it leaves a gap into which the next batch fits.
        if base > last + 1 and last + (end - base) + 1 < following_base <= end:
            result[i] = True
            continue
        last = end
    return last


def out_of_order(
    heads: NDArray[Any], good: NDArray[np.bool_], before: int, following: int = -1
) -> tuple[NDArray[np.bool_], int]:
    """Find the batches whose offsets do not increase, and the last offset of the other batches.

    The CRC does not cover the base offset, so a wrong base offset can only be found by comparing it with its neighbours.
    ``before`` is the last offset so far, ``following`` the base offset of the batch after the last one (-1 if unknown).
    Batches that are not ``good`` are ignored.
    """
    result = np.zeros(len(heads), np.bool_)
    last = _out_of_order(
        heads.view(np.int64).reshape(len(heads), len(FIELDS)), good, before, following, result
    )
    return result, int(last)


# ---- transaction markers

NO_MARKER, ABORT, COMMIT = -1, 0, 1


@compiled
def _markers(buffer, heads, types, epochs):  # type: ignore[no-untyped-def]
    for i in range(len(heads)):
        types[i] = -1
        epochs[i] = -1
        attributes = heads[i, 7]
        if heads[i, 2] != 2 or attributes & 0x27 != 0x20 or heads[i, 13] < 1:
            continue
        # Length, attributes, two deltas of one byte each, and the length of the key. The key of a marker has four bytes,
        # its value six or more.
        p = heads[i, 0] + 61
        end = heads[i, 0] + heads[i, 1]
        for _ in range(4):
            while p < end and buffer[p] >= 0x80:
                p += 1
            p += 1
        if p >= end or buffer[p] != 8 or p + 6 > end:
            continue
        version, kind = _int16(buffer, p + 1), _int16(buffer, p + 3)
        if version < 0 or kind < 0 or kind > 1 or p + 12 > end or buffer[p + 5] < 12:
            continue
        types[i] = kind
        epochs[i] = _int32(buffer, p + 8)


def markers(buffer: Bytes, heads: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The marker of each batch (``NO_MARKER``, ``ABORT``, ``COMMIT``) and its coordinator's epoch (-1 if none)."""
    types, epochs = np.empty(len(heads), np.int64), np.empty(len(heads), np.int64)
    _markers(buffer, heads.view(np.int64).reshape(len(heads), len(FIELDS)), types, epochs)
    return types, epochs
