"""The tables ``transaction_state`` and ``offsets``: records of the coordinators' topics with decoded keys and values."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from odradek.spark.segments import columns
from odradek.spark.segments.coordinator_records import Decoded, Malformed, decode
from odradek.spark.segments.filters import Conditions
from odradek.spark.segments.options import Options
from odradek.spark.segments.planning import Piece
from odradek.spark.segments.reading import Chunk, Flaw
from odradek.spark.segments.rows import RecordRows

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""Names of the states, by the number in ``transaction_status`` (``TransactionState.java``)."""

_RAW = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", columns.TIMESTAMP),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("transactional", pa.bool_()),
        ("control", pa.bool_()),
        ("marker", pa.string()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("error", pa.string()),
    ]
)
_ZERO_ID = "00000000-0000-0000-0000-000000000000"

Row = dict[str, Any]


class InternalRows:
    """Base class of converters of an internal topic's records to rows of a table, one subclass per table."""

    topic: str
    carried: tuple[str, ...]
    """Columns of the table that are copied from the record; all others are decoded from its key and value."""

    def __init__(self, schema: pa.Schema, conditions: Conditions, asked: Options) -> None:
        self._schema = schema
        self._records = RecordRows(_RAW, conditions, asked)

    def rows(self, piece: Piece, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """The rows of a chunk (some batches of a segment): its decoded records, then its errors."""
        common = self.place(piece)
        for raw in self._records.rows(piece, chunk):
            if raw["offset"].null_count:
                rows = zip(raw["position"].to_pylist(), raw["error"].to_pylist(), strict=True)
                yield columns.errors(self._schema, common, [Flaw(*row) for row in rows])
            else:
                yield self._decoded(common, raw)

    def _decoded(self, common: dict[str, Any], raw: pa.RecordBatch) -> pa.RecordBatch:
        fields = zip(*(raw[name].to_pylist() for name in ("key", "value", "control")), strict=True)
        rows = [self._row(*row) for row in fields]
        arrays = []
        for field in self._schema:
            if field.name in common:
                arrays.append(columns.place_column(common[field.name], len(rows)))
            elif field.name in self.carried:
                arrays.append(raw[field.name])
            else:
                arrays.append(_array([row.get(field.name) for row in rows], field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _row(self, key: bytes | None, value: bytes | None, control: bool) -> Row:
        if control:
            return self.of_control()
        try:
            found = decode(self.topic, key, value)
            row = self.of_record(found)
        except Malformed as error:
            return {"error": f"{error} (key {_start(key)}, value {_start(value)})"}
        row["tombstone"] = found.value is None
        row["version"] = found.version
        return row

    def place(self, piece: Piece) -> dict[str, Any]:
        raise NotImplementedError

    def of_control(self) -> Row:
        raise NotImplementedError

    def of_record(self, found: Decoded) -> Row:
        raise NotImplementedError


class TransactionRows(InternalRows):
    """Converter of records of ``__transaction_state`` to rows of the table ``transaction_state``."""

    topic = "__transaction_state"
    carried = ("offset", "timestamp", "position")

    def place(self, piece: Piece) -> dict[str, Any]:
        common = columns.place(piece)
        del common["topic"]
        return common

    def of_control(self) -> Row:
        return {"error": "a control record, which does not belong in this topic"}

    def of_record(self, found: Decoded) -> Row:
        row: Row = dict(found.key)
        if found.value is None:
            return row
        row |= found.value
        if not 0 <= row["status"] < len(STATES):
            raise Malformed(f"transaction status {row['status']} is unknown")
        row["state"] = STATES[row["status"]]
        if row["partitions"] is not None:
            row["partitions"] = [
                {"topic": one["topic"], "partition": partition}
                for one in row["partitions"]
                for partition in one["partition_ids"]
            ]
        return row


class OffsetRows(InternalRows):
    """Converter of records of ``__consumer_offsets`` to rows of the table ``offsets``."""

    topic = "__consumer_offsets"
    carried = (
        "offset",
        "timestamp",
        "producer_id",
        "producer_epoch",
        "transactional",
        "control",
        "marker",
        "position",
    )

    def place(self, piece: Piece) -> dict[str, Any]:
        common = columns.place(piece)
        del common["topic"]
        common["log_partition"] = common.pop("partition")
        return common

    def of_control(self) -> Row:
        return {}

    def of_record(self, found: Decoded) -> Row:
        row: Row = {"kind": found.kind, "group": found.key["group"]}
        value = found.value
        if found.kind == "offset":
            row["topic"], row["partition"] = found.key["topic"], found.key["partition"]
            if value is not None:
                row |= value
                row["committed_offset"] = row.pop("offset")
                if row["topic_id"] == _ZERO_ID:
                    row["topic_id"] = None
            return row
        details = {name: part for name, part in found.key.items() if name != "group"} | (value or {})
        if details:
            row["details"] = json.dumps(details, default=_base64)
        return row


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_timestamp(kind):
        return pa.array(values, kind)
    times = np.array([-1 if value is None else value for value in values], np.int64)
    return columns.times(columns.microseconds(times))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _start(data: bytes | None) -> str:
    return "null" if data is None else f"{data[:32].hex()}{'…' if len(data) > 32 else ''}"
