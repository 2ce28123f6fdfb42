"""The table ``batches``: the headers of batches. Records are not read, except the marker of a control batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from odradek.spark.records import heads
from odradek.spark.segments import columns
from odradek.spark.segments.filters import Condition, Conditions
from odradek.spark.segments.options import Options
from odradek.spark.segments.planning import Piece
from odradek.spark.segments.reading import Chunk

Heads = NDArray[Any]

_TIMES = {"timestamp": "base_timestamp", "max_timestamp": "max_timestamp"}
_FLAGS = {"transactional": heads.TRANSACTIONAL, "control": heads.CONTROL}
_NUMBERS: dict[str, pa.DataType] = {
    "base_offset": pa.int64(),
    "last_offset": pa.int64(),
    "leader_epoch": pa.int32(),
    "producer_id": pa.int64(),
    "producer_epoch": pa.int32(),
    "base_sequence": pa.int32(),
    "records": pa.int32(),
}
_FIELD = {"batch_offset": "base_offset"}


def judged(table: Heads, conditions: tuple[Condition, ...]) -> NDArray[np.bool_]:
    """For each batch, whether it satisfies all of the conditions."""
    keep = np.ones(len(table), np.bool_)
    for condition in conditions:
        name = condition.column
        if name in _TIMES:
            values = _time(table, name)
            keep &= condition.holds(values) & (values != columns.NO_TIME)
        elif name in _FLAGS:
            keep &= condition.holds(table["attributes"] & _FLAGS[name] != 0)
        else:
            keep &= condition.holds(table[_FIELD.get(name, name)])
    return keep


def _time(table: Heads, name: str) -> NDArray[np.int64]:
    values = columns.microseconds(table[_TIMES[name]])
    if name == "timestamp":
        # The base timestamp of a batch with a delete horizon (KIP-534) is that horizon; an empty batch has none.
        unknown = (table["attributes"] & heads.DELETE_HORIZON != 0) | (table["records"] == 0)
        values = np.where(unknown, columns.NO_TIME, values)
    return values


def last_sequences(table: Heads) -> NDArray[np.int64]:
    """The last sequence of each batch, wrapping after 2^31-1; -1 for batches without sequences."""
    spans = table["last_offset"] - table["base_offset"]
    return np.where(table["base_sequence"] < 0, -1, (table["base_sequence"] + spans) & heads.SEQUENCE_MASK)


class BatchRows:
    """Converter of the chunks of one task to rows of the table ``batches``."""

    def __init__(self, schema: pa.Schema, conditions: Conditions, asked: Options) -> None:
        self._schema, self._conditions, self._rows_max = schema, conditions, asked.rows_max

    def rows(self, piece: Piece, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """The rows of a chunk (some batches of a segment): one for each batch, then its errors."""
        table = chunk.sound
        if self._conditions.batch:
            table = table[judged(table, self._conditions.batch)]
        if len(table):
            whole = _Rows(piece, chunk, table).record_batch(self._schema)
            for start in range(0, len(table), self._rows_max):
                yield whole.slice(start, self._rows_max)
        if chunk.flaws and self._conditions.admit_errors:
            yield columns.errors(self._schema, columns.place(piece), chunk.flaws)


class _Rows:
    """The columns of a chunk, with one row per batch."""

    def __init__(self, piece: Piece, chunk: Chunk, table: Heads) -> None:
        self._piece, self._chunk, self._table = piece, chunk, table
        self._marks: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def record_batch(self, schema: pa.Schema) -> pa.RecordBatch:
        common = columns.place(self._piece)
        arrays = []
        for name in schema.names:
            if name in common:
                arrays.append(columns.place_column(common[name], len(self._table)))
            elif name in _NUMBERS:
                arrays.append(pa.array(self._table[name].astype(_NUMBERS[name].to_pandas_dtype())))
            elif name in _TIMES:
                arrays.append(columns.times(_time(self._table, name)))
            elif name in _FLAGS:
                arrays.append(columns.flags(self._table["attributes"], _FLAGS[name]))
            else:
                arrays.append(_OTHERS[name](self))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _markers(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if self._marks is None:
            self._marks = heads.markers(self._chunk.buffer, self._table)
        return self._marks

    def last_sequence(self) -> pa.Array:
        return columns.int32(last_sequences(self._table))

    def timestamp_type(self) -> pa.Array:
        appended = self._table["attributes"] & heads.LOG_APPEND_TIME != 0
        return columns.words(columns.TIMESTAMP_TYPES, appended.astype(np.int32))

    def marker(self) -> pa.Array:
        return columns.words(columns.MARKERS, self._markers()[0])

    def coordinator_epoch(self) -> pa.Array:
        types, epochs = self._markers()
        return pa.array(epochs.astype(np.int32), mask=types < 0)

    def codec(self) -> pa.Array:
        return columns.codecs(self._table["attributes"])

    def size_bytes(self) -> pa.Array:
        return columns.int32(self._table["size"])

    def position(self) -> pa.Array:
        return pa.array(self._table["position"] + self._chunk.position)

    def error(self) -> pa.Array:
        return pa.nulls(len(self._table), pa.string())


_OTHERS: dict[str, Callable[[_Rows], pa.Array]] = {
    "last_sequence": _Rows.last_sequence,
    "timestamp_type": _Rows.timestamp_type,
    "marker": _Rows.marker,
    "coordinator_epoch": _Rows.coordinator_epoch,
    "codec": _Rows.codec,
    "size_bytes": _Rows.size_bytes,
    "position": _Rows.position,
    "error": _Rows.error,
}
