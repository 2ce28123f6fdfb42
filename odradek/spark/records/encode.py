"""Encode rows of Arrow columns as transactional record batches of format 2, in compiled code without I/O.

The format is that of KIP-98 (Kafka's DefaultRecordBatch.java and DefaultRecord.java).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from odradek.spark.records.columns import (
    Bytes,
    Column,
    Headers,
    int_column,
    row_columns,
)
from odradek.spark.records.compiled import compiled, inlined
from odradek.spark.records.compress import CODECS, compress

HEADER_BYTES = 61
SEQUENCE_MASK = 0x7FFF_FFFF

_TRANSACTIONAL = 0x10
_MAGIC = 2
_NO_LEADER_EPOCH = -1
_HEAD = Struct(">qiibI")
_TAIL = Struct(">hiqqqhii")
_HEAD_BYTES = _HEAD.size
_LOG_OVERHEAD_BYTES = 12

# Largest size of a record without its key, value and headers: length, attributes, timestamp, offset, three counts.
_RECORD_OVERHEAD_BYTES = 5 + 1 + 10 + 5 + 5 + 5 + 5
_LENGTH_BYTES_MAX = 5
_UNBOUNDED = 0x7FFF_FFFF

Numbers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of rows, prepared for the encoder. ``sizes_bytes``: an upper bound of each row's encoded size."""

    keys: Bytes
    values: Bytes
    headers: Headers
    timestamps_ms: Numbers
    sizes_bytes: Numbers

    @classmethod
    def of(
        cls,
        values: Column,
        now_ms: int,
        *,
        keys: Column | None = None,
        headers: Column | None = None,
        timestamps: Column | None = None,
    ) -> Rows:
        """Prepare Arrow columns. A missing column of keys or headers is all null; a missing timestamp is ``now_ms``.

        Raises ``TypeError`` or ``ValueError`` for a column of a wrong type or length."""
        rows = len(values)
        for name, column in (("keys", keys), ("headers", headers), ("timestamps", timestamps)):
            if column is not None and len(column) != rows:
                raise ValueError(f"{len(column)} {name} for {rows} values: each row needs one")
        columns = row_columns(values, keys, headers)
        return cls(*columns, int_column(timestamps, rows, now_ms), _sizes_bytes(*columns))

    def __len__(self) -> int:
        return len(self.timestamps_ms)


def _sizes_bytes(keys: Bytes, values: Bytes, headers: Headers) -> Numbers:
    sizes: Numbers = np.maximum(keys.lengths, 0) + np.maximum(values.lengths, 0) + _RECORD_OVERHEAD_BYTES
    if len(headers.keys.lengths):
        each = (
            np.maximum(headers.keys.lengths, 0)
            + np.maximum(headers.values.lengths, 0)
            + 2 * _LENGTH_BYTES_MAX
        )
        before = np.concatenate(([0], np.cumsum(each)))
        sizes += before[headers.starts + headers.counts] - before[headers.starts]
    return sizes


class Batch(NamedTuple):
    """An encoded record batch. ``data``: its bytes, or a view of them.

    ``halves`` encodes the batch's rows again as two batches.
    """

    data: bytes | memoryview
    records: int
    halves: Callable[[], list[Batch]]


def encode_batches(
    rows: Rows,
    select: Numbers,
    *,
    producer_id: int,
    epoch: int,
    base_sequence: int,
    compression: str,
    batch_size_bytes: int,
) -> list[Batch]:
    """Encode the selected rows, in their order, as batches of at most ``batch_size_bytes`` before compression.

    A larger record gets a batch of its own. Sequences begin at ``base_sequence`` and wrap at 2^31."""
    if not len(select):
        return []
    out, ends, counts, first_ms, max_ms = _fill_batches(rows, select, batch_size_bytes)
    batches = []
    start = taken = 0
    sequence = base_sequence
    for end, records, first, latest in zip(
        ends.tolist(), counts.tolist(), first_ms.tolist(), max_ms.tolist(), strict=True
    ):
        tail = (records - 1, first, latest, producer_id, epoch, sequence, records)
        sealed = _sealed(out[start:end], CODECS.index(compression), tail)
        part = select[taken : taken + records]
        batches.append(
            Batch(sealed, records, partial(_halves, rows, part, producer_id, epoch, sequence, compression))
        )
        sequence = (sequence + records) & SEQUENCE_MASK
        taken += records
        start = end
    return batches


def _halves(
    rows: Rows, select: Numbers, producer_id: int, epoch: int, sequence: int, compression: str
) -> list[Batch]:
    middle = len(select) // 2
    return [
        batch
        for part, first in (
            (select[:middle], sequence),
            (select[middle:], (sequence + middle) & SEQUENCE_MASK),
        )
        for batch in encode_batches(
            rows,
            part,
            producer_id=producer_id,
            epoch=epoch,
            base_sequence=first,
            compression=compression,
            batch_size_bytes=_UNBOUNDED,
        )
    ]


def _sealed(
    batch: np.ndarray[Any, np.dtype[np.uint8]], codec: int, tail: tuple[int, ...]
) -> bytes | memoryview:
    """Finish a batch: compress the records, and write header and checksum into the free space before the records."""
    if codec:
        packed = compress(CODECS[codec], batch[HEADER_BYTES:].data)
        batch = np.empty(HEADER_BYTES + len(packed), np.uint8)
        batch[HEADER_BYTES:] = np.frombuffer(packed, np.uint8)
    _TAIL.pack_into(batch.data, _HEAD_BYTES, _TRANSACTIONAL | codec, *tail)
    crc = google_crc32c.value(batch[_HEAD_BYTES:])
    _HEAD.pack_into(batch.data, 0, 0, len(batch) - _LOG_OVERHEAD_BYTES, _NO_LEADER_EPOCH, _MAGIC, crc)
    return batch.data


def _fill_batches(
    rows: Rows, select: Numbers, batch_size_bytes: int
) -> tuple[Any, Numbers, Numbers, Numbers, Numbers]:
    """Encode the records, with space for a header before each batch.

    Return the buffer, and four arrays with a value per batch: end, records, first and max timestamp.
    """
    total = int(rows.sizes_bytes[select].sum())
    # Two consecutive batches together are larger than the limit, or they would be one batch.
    batches_max = min(len(select), 2 * (total // max(batch_size_bytes - HEADER_BYTES, 1)) + 2)
    out = np.empty(total + HEADER_BYTES * batches_max, np.uint8)
    about = np.empty((4, batches_max), np.int64)
    headers = rows.headers
    count = _fill(
        select, *rows.keys, *rows.values, headers.starts, headers.counts, *headers.keys, *headers.values, rows.timestamps_ms,
        batch_size_bytes, out, about,
    )  # fmt: skip
    ends, counts, first_ms, max_ms = about[:, :count]
    return out, ends, counts, first_ms, max_ms


@inlined
def _varint_size(value: Any) -> Any:  # pragma: no cover - compiled
    left = np.uint64((value << 1) ^ (value >> 63))
    size = 1
    while left >= 128:
        left >>= np.uint64(7)
        size += 1
    return size


@inlined
def _put_varint(out: Any, position: int, value: Any) -> int:  # pragma: no cover - compiled
    left = np.uint64((value << 1) ^ (value >> 63))
    while left >= 128:
        out[position] = np.uint8(left & np.uint64(127)) | np.uint8(128)
        left >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(left)
    return position + 1


@inlined
def _put(out: Any, position: int, data: Any, start: int, length: int) -> int:  # pragma: no cover - compiled
    """Write a length and that many bytes, or no bytes for a negative length. Return the position after them."""
    position = _put_varint(out, position, length)
    for index in range(length):
        out[position + index] = data[start + index]
    return position + max(length, 0)


@inlined
def _sized(length: Any) -> Any:  # pragma: no cover - compiled
    return _varint_size(length) + max(length, 0)


@compiled
def _fill(  # pragma: no cover - compiled
    select: Any,
    key_data: Any, key_starts: Any, key_lengths: Any,
    value_data: Any, value_starts: Any, value_lengths: Any,
    header_starts: Any, header_counts: Any,
    hkey_data: Any, hkey_starts: Any, hkey_lengths: Any,
    hvalue_data: Any, hvalue_starts: Any, hvalue_lengths: Any,
    timestamps: Any, batch_size: int, out: Any, about: Any,
) -> int:  # fmt: skip
    batch = 0
    start = 0
    position = HEADER_BYTES
    delta = 0
    first = timestamps[select[0]]
    latest = first
    for row in select:
        fixed = 1 + _sized(key_lengths[row]) + _sized(value_lengths[row]) + _varint_size(header_counts[row])
        header_start = header_starts[row]
        header_end = header_start + header_counts[row]
        for header in range(header_start, header_end):
            fixed += _sized(hkey_lengths[header]) + _sized(hvalue_lengths[header])
        timestamp = timestamps[row]
        size = fixed + _varint_size(timestamp - first) + _varint_size(delta)
        if delta and position + _varint_size(size) + size - start > batch_size:
            about[0, batch], about[1, batch], about[2, batch], about[3, batch] = (
                position,
                delta,
                first,
                latest,
            )
            batch += 1
            start = position
            position += HEADER_BYTES
            delta = 0
            first = timestamp
            latest = timestamp
            size = fixed + 2
        latest = max(latest, timestamp)
        position = _put_varint(out, position, size)
        out[position] = 0
        position = _put_varint(out, position + 1, timestamp - first)
        position = _put_varint(out, position, delta)
        position = _put(out, position, key_data, key_starts[row], key_lengths[row])
        position = _put(out, position, value_data, value_starts[row], value_lengths[row])
        position = _put_varint(out, position, header_counts[row])
        for header in range(header_start, header_end):
            position = _put(out, position, hkey_data, hkey_starts[header], hkey_lengths[header])
            position = _put(out, position, hvalue_data, hvalue_starts[header], hvalue_lengths[header])
        delta += 1
    about[0, batch], about[1, batch], about[2, batch], about[3, batch] = position, delta, first, latest
    return batch + 1
