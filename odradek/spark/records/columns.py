"""Arrow columns as plain arrays for compiled code: the bytes, and for each value its start and its length."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

NULL = -1

Column: TypeAlias = "pa.Array | pa.ChunkedArray"


class Bytes(NamedTuple):
    """Values of any length in one buffer. ``lengths`` are in bytes, ``NULL`` for a null."""

    data: np.ndarray[Any, np.dtype[np.uint8]]
    starts: np.ndarray[Any, np.dtype[np.int64]]
    lengths: np.ndarray[Any, np.dtype[np.int64]]


class Headers(NamedTuple):
    """Headers of rows: row i has the headers from ``starts[i]`` to before ``starts[i] + counts[i]``."""

    starts: np.ndarray[Any, np.dtype[np.int64]]
    counts: np.ndarray[Any, np.dtype[np.int64]]
    keys: Bytes
    values: Bytes


def _readonly(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Make an array read-only: compiled code is specialised for one kind of array, and Arrow's buffers are read-only."""
    data.flags.writeable = False
    return data


NO_BYTES = _readonly(np.zeros(0, np.uint8))


def no_values(rows: int) -> Bytes:
    """A column of nulls."""
    return Bytes(NO_BYTES, np.zeros(rows, np.int64), np.full(rows, NULL, np.int64))


def no_headers(rows: int) -> Headers:
    """A column of rows without headers."""
    nothing = np.zeros(rows, np.int64)
    return Headers(nothing, nothing, no_values(0), no_values(0))


def row_columns(values: Column, keys: Column | None, headers: Column | None) -> tuple[Bytes, Bytes, Headers]:
    """Keys, values and headers of the same rows; a missing column of keys or headers is all null."""
    rows = len(values)
    return (
        no_values(rows) if keys is None else bytes_column(keys),
        bytes_column(values),
        no_headers(rows) if headers is None else header_column(headers),
    )


def one_piece(column: Column) -> pa.Array:
    """The column as one contiguous array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def bytes_column(column: Column) -> Bytes:
    """Convert a binary or string column of any Arrow layout, sliced or not. Raises ``TypeError`` for any other type."""
    array = one_piece(column)
    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    if pa.types.is_null(kind):
        return no_values(len(array))
    if pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        array = array.cast(pa.large_binary())
    elif pa.types.is_string_view(kind):
        array = array.cast(pa.large_string())
    elif not (
        pa.types.is_binary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_string(kind)
    ):
        raise TypeError(f"keys and values must be binary or string, not {kind}")
    return _from_buffers(array)


def _from_buffers(array: pa.Array) -> Bytes:
    rows = len(array)
    if rows == 0:
        return no_values(0)
    large = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    _, offsets_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(
        offsets_buffer,
        np.int64 if large else np.int32,
        count=rows + 1,
        offset=array.offset * (8 if large else 4),
    ).astype(np.int64)
    data = NO_BYTES
    if data_buffer is not None and data_buffer.size:
        data = _readonly(np.frombuffer(data_buffer, np.uint8))
    lengths = np.diff(offsets)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = NULL
    return Bytes(data, offsets[:-1], lengths)


def header_column(column: Column) -> Headers:
    """Convert a column of list<struct<key: string, value: binary>>, as in Spark's connector; null means no headers.

    Raises ``TypeError`` for any other type, and ``ValueError`` for a header without a key (Kafka has none)."""
    array = one_piece(column)
    kind = array.type
    if pa.types.is_null(kind):
        return no_headers(len(array))
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(
        kind.value_type
    ):
        raise TypeError(f"headers must be list<struct<key: string, value: binary>>, not {kind}")
    if kind.value_type.num_fields != 2:
        raise TypeError(f"a header must be a struct of key and value, not {kind.value_type}")
    rows = len(array)
    if rows == 0:
        return no_headers(0)
    offsets = array.offsets.to_numpy().astype(np.int64)
    counts = np.diff(offsets)
    if array.null_count:
        counts[array.is_null().to_numpy(zero_copy_only=False)] = 0
    # flatten() applies the struct's own offset, field() does not.
    keys, values = array.values.flatten()
    headers = Headers(offsets[:-1], counts, bytes_column(keys), bytes_column(values))
    if rows and _has_null_key(headers):
        raise ValueError("a header has no key")
    return headers


def _has_null_key(headers: Headers) -> bool:
    null = np.flatnonzero(headers.keys.lengths == NULL)
    if not len(null):
        return False
    # Check only headers that belong to a row: the buffer of a sliced array has others.
    ends = headers.starts + headers.counts
    row = np.searchsorted(headers.starts, null, side="right") - 1
    return bool(np.any((row >= 0) & (null < ends[np.maximum(row, 0)])))


def int_column(column: Column | None, rows: int, otherwise: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A column of integers, or of timestamps as milliseconds. Nulls, and all rows of a missing column, are ``otherwise``."""
    if column is None:
        return np.full(rows, otherwise, np.int64)
    array = one_piece(column)
    if pa.types.is_timestamp(array.type):
        # Truncate below a millisecond, as Java's Instant.toEpochMilli() does.
        array = array.cast(pa.timestamp("ms", array.type.tz), safe=False)
    values = array.cast(pa.int64())
    return np.asarray(values.fill_null(otherwise).to_numpy(zero_copy_only=False), np.int64)
