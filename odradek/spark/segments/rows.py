"""The table ``records``: batches are decompressed and decoded in groups, and only the requested columns are built."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from odradek.spark.records import decode, heads
from odradek.spark.records.codecs import NONE, PlainBuffer, Undecodable
from odradek.spark.records.decode import Fields
from odradek.spark.records.heads import Bytes
from odradek.spark.segments import batches, columns
from odradek.spark.segments.filters import Conditions
from odradek.spark.segments.options import Options
from odradek.spark.segments.planning import Piece
from odradek.spark.segments.reading import Chunk, Flaw

Heads = NDArray[Any]

GROUP_BYTES = 64 << 20
"""Number of decompressed bytes that are decoded at once; a single batch may have more."""


class Bodies(NamedTuple):
    """The decompressed bodies of batches: that of the batch ``table[i]`` is ``data[starts[i]:ends[i]]``."""

    data: Bytes
    table: Heads
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


class RecordRows:
    """Converter of the chunks of one task to rows of the table ``records``. The rows contain copies of the bytes."""

    def __init__(self, schema: pa.Schema, conditions: Conditions, asked: Options) -> None:
        self._schema, self._conditions, self._asked = schema, conditions, asked
        self._plain = PlainBuffer(asked.plain_bytes_max)

    def rows(self, piece: Piece, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """The rows of a chunk (some batches of a segment): its records, then its errors."""
        flaws = list(chunk.flaws)
        for bodies in self._bodies(chunk, self._wanted(chunk.sound), flaws):
            yield from self._decoded(piece, chunk, bodies, flaws)
        if flaws and self._conditions.admit_errors:
            yield columns.errors(self._schema, columns.place(piece), sorted(flaws))

    def _wanted(self, table: Heads) -> Heads:
        """The headers of those batches that may contain records which satisfy the conditions."""
        keep = batches.judged(table, self._conditions.batch)
        for condition in self._conditions.row:
            if condition.column == "offset":
                keep &= condition.may_hold(table["base_offset"], table["last_offset"])
            else:
                highest = columns.microseconds(table["max_timestamp"])
                keep &= condition.may_hold(np.full(len(table), columns.NO_TIME + 1), highest)
        return table if keep.all() else table[keep]

    def _bodies(self, chunk: Chunk, table: Heads, flaws: list[Flaw]) -> Iterator[Bodies]:
        """Yield groups of batches with about ``rows_max`` records (by their headers) and a limited size."""
        promised = np.cumsum(np.clip(table["records"], 1, self._asked.rows_max))
        start = 0
        while start < len(table):
            before = int(promised[start - 1]) if start else 0
            stop = int(np.searchsorted(promised, before + self._asked.rows_max, side="right"))
            stop = max(stop, start + 1)
            if not (table["attributes"][start:stop] & heads.CODEC_MASK).any():
                group = table[start:stop]
                ends = group["position"] + group["size"]
                yield Bodies(chunk.buffer, group, group["position"] + heads.HEADER_BYTES, ends)
            else:
                stop, bodies = self._decompressed(chunk, table, start, stop, flaws)
                yield bodies
            start = stop

    def _decompressed(
        self, chunk: Chunk, table: Heads, start: int, stop: int, flaws: list[Flaw]
    ) -> tuple[int, Bodies]:
        """Decompress batches of ``table[start:stop]`` until ``GROUP_BYTES`` are exceeded.

        Returns the start of the next group, and the bodies. An error is added to ``flaws`` for each damaged body.
        """
        plain = self._plain
        plain.clear()
        good, starts, ends = [], [], []
        positions = table["position"][start:stop].tolist()
        sizes = table["size"][start:stop].tolist()
        codecs = (table["attributes"][start:stop] & heads.CODEC_MASK).tolist()
        at = start
        for position, size, codec in zip(positions, sizes, codecs, strict=True):
            if plain.used > GROUP_BYTES:
                break
            body = chunk.buffer[position + heads.HEADER_BYTES : position + size]
            try:
                # Compaction leaves empty batches, which have no compressed frame.
                first, after = plain.add(codec if len(body) else NONE, body)
            except Undecodable as error:
                flaws.append(Flaw(chunk.position + position, f"the batch cannot be decompressed: {error}"))
            else:
                good.append(at)
                starts.append(first)
                ends.append(after)
            at += 1
        return at, Bodies(plain.data, table[good], np.array(starts, np.int64), np.array(ends, np.int64))

    def _decoded(
        self, piece: Piece, chunk: Chunk, bodies: Bodies, flaws: list[Flaw]
    ) -> Iterator[pa.RecordBatch]:
        table = bodies.table
        fields, bad = decode.find_fields(
            bodies.data,
            bodies.starts,
            bodies.ends,
            np.ascontiguousarray(table["records"]),
            table["last_offset"] - table["base_offset"],
        )
        for at in np.flatnonzero(bad).tolist():
            position = chunk.position + int(table["position"][at])
            flaws.append(Flaw(position, f"the records of the batch are malformed: {decode.FLAWS[bad[at]]}"))
        group = _Group(piece, chunk.position, bodies, fields)
        if self._conditions.row:
            group = self._filtered(group)
        if len(group.batch):
            whole = group.record_batch(self._schema)
            for start in range(0, len(group.batch), self._asked.rows_max):
                yield whole.slice(start, self._asked.rows_max)

    def _filtered(self, group: _Group) -> _Group:
        keep = np.ones(len(group.batch), np.bool_)
        for condition in self._conditions.row:
            if condition.column == "offset":
                keep &= condition.holds(group.offsets)
            else:
                keep &= condition.holds(group.times) & (group.times != columns.NO_TIME)
        return group if keep.all() else group.taken(np.flatnonzero(keep))


class _Group:
    """Decoded records, with a method for each column that can be built from them."""

    def __init__(self, piece: Piece, position: int, bodies: Bodies, fields: Fields) -> None:
        self._piece, self._position, self._bodies, self._fields = piece, position, bodies, fields
        self.batch = fields.batch

    def taken(self, keep: NDArray[np.intp]) -> _Group:
        return _Group(self._piece, self._position, self._bodies, self._fields.taken(keep))

    def record_batch(self, schema: pa.Schema) -> pa.RecordBatch:
        common = columns.place(self._piece)
        arrays = []
        for field in schema:
            if field.name in common:
                arrays.append(columns.place_column(common[field.name], len(self.batch)))
            elif field.name in _NUMBERS:
                name, kind = _NUMBERS[field.name]
                arrays.append(pa.array(self._of_batch(name).astype(kind, copy=False)))
            else:
                arrays.append(_OTHERS[field.name](self))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _of_batch(self, name: str) -> NDArray[np.int64]:
        """A field of the batch header, per record."""
        values: NDArray[np.int64] = np.ascontiguousarray(self._bodies.table[name])
        return values.take(self.batch)

    @cached_property
    def attributes(self) -> NDArray[np.int64]:
        return self._of_batch("attributes")

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        return self._of_batch("base_offset") + self._fields.offset_delta

    @cached_property
    def times(self) -> NDArray[np.int64]:
        """Timestamps in microseconds: the broker's with LogAppendTime, else the producer's."""
        table = self._bodies.table
        appended = table["attributes"] & heads.LOG_APPEND_TIME != 0
        if not appended.any():
            return columns.microseconds(self._of_batch("base_timestamp") + self._fields.timestamp_delta)
        times = self._of_batch("base_timestamp") + self._fields.timestamp_delta
        times = np.where(appended.take(self.batch), self._of_batch("max_timestamp"), times)
        return columns.microseconds(times)

    @cached_property
    def marks(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        return decode.markers(self._bodies.data, self._fields, self.attributes & heads.CONTROL != 0)

    def timestamp_type(self) -> pa.Array:
        return columns.words(columns.TIMESTAMP_TYPES, (self.attributes & heads.LOG_APPEND_TIME != 0) * 1)

    def key(self) -> pa.Array:
        return decode.binary(self._bodies.data, self._fields.key_start, self._fields.key_size)

    def value(self) -> pa.Array:
        return decode.binary(self._bodies.data, self._fields.value_start, self._fields.value_size)

    def sequence(self) -> pa.Array:
        first = self._of_batch("base_sequence")
        return columns.int32(
            np.where(first < 0, -1, (first + self._fields.offset_delta) & heads.SEQUENCE_MASK)
        )

    def coordinator_epoch(self) -> pa.Array:
        kinds, epochs = self.marks
        return pa.array(epochs, mask=kinds < 0)

    def position(self) -> pa.Array:
        return pa.array(self._of_batch("position") + self._position)


_NUMBERS: dict[str, tuple[str, type[Any]]] = {
    "producer_id": ("producer_id", np.int64),
    "producer_epoch": ("producer_epoch", np.int32),
    "leader_epoch": ("leader_epoch", np.int32),
    "batch_offset": ("base_offset", np.int64),
}

_OTHERS: dict[str, Callable[[_Group], pa.Array]] = {
    "offset": lambda group: pa.array(group.offsets),
    "timestamp": lambda group: columns.times(group.times),
    "timestamp_type": _Group.timestamp_type,
    "key": _Group.key,
    "value": _Group.value,
    "headers": lambda group: decode.headers(group._bodies.data, group._fields, columns.HEADERS),
    "sequence": _Group.sequence,
    "transactional": lambda group: columns.flags(group.attributes, heads.TRANSACTIONAL),
    "control": lambda group: columns.flags(group.attributes, heads.CONTROL),
    "marker": lambda group: columns.words(columns.MARKERS, group.marks[0]),
    "coordinator_epoch": _Group.coordinator_epoch,
    "codec": lambda group: columns.codecs(group.attributes),
    "position": _Group.position,
    "error": lambda group: pa.nulls(len(group.batch), pa.string()),
}
