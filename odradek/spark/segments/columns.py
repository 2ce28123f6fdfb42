"""Arrow columns made from arrays of numbers, for all tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_type

from odradek.spark.records import heads
from odradek.spark.segments import schemas
from odradek.spark.segments.planning import Piece
from odradek.spark.segments.reading import Flaw

HEADERS = to_arrow_type(schemas.HEADERS)
TIMESTAMP = pa.timestamp("us", "UTC")
NO_TIME = np.iinfo(np.int64).min
"""The value for a null time: no timestamp, or one that Python's and Spark's calendars do not have."""

CODECS = pa.array(["none", "gzip", "snappy", "lz4", "zstd", "unknown"])
TIMESTAMP_TYPES = pa.array(["CreateTime", "LogAppendTime"])
MARKERS = pa.array(["abort", "commit"])
_CODEC_IDS_MAX = 5
_TIME_MS_MAX = 253_402_300_799_999  # 9999-12-31T23:59:59.999


def microseconds(milliseconds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Convert Kafka's timestamps (ms) to Spark's (us). A timestamp without an equivalent becomes ``NO_TIME``."""
    known = (milliseconds >= 0) & (milliseconds <= _TIME_MS_MAX)
    if known.all():
        return milliseconds * 1000
    return np.where(known, milliseconds * 1000, NO_TIME)


def times(values: NDArray[np.int64]) -> pa.Array:
    """A timestamp column from microseconds; ``NO_TIME`` is null."""
    missing = values == NO_TIME
    plain = pa.array(values, pa.int64(), mask=missing if missing.any() else None)
    return plain.view(TIMESTAMP)


def constant(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def words(dictionary: pa.Array, numbers: NDArray[Any]) -> pa.Array:
    """The word in ``dictionary`` for each number; null for negative numbers."""
    if len(numbers) and (numbers == numbers[0]).all():
        first = int(numbers[0])
        return (
            pa.nulls(len(numbers), pa.string()) if first < 0 else pa.repeat(dictionary[first], len(numbers))
        )
    return dictionary.take(pa.array(numbers.astype(np.int32), mask=numbers < 0))


def flags(attributes: NDArray[np.int64], mask: int) -> pa.Array:
    return pa.array(attributes & mask != 0)


def codecs(attributes: NDArray[np.int64]) -> pa.Array:
    return words(CODECS, np.minimum(attributes & heads.CODEC_MASK, _CODEC_IDS_MAX))


def int32(values: NDArray[np.int64]) -> pa.Array:
    return pa.array(values.astype(np.int32))


def place(piece: Piece) -> dict[str, Any]:
    """The values of ``log_dir``, ``topic``, ``partition`` and ``file`` in all rows of a piece of a segment."""
    partition = piece.segment.partition
    return {
        "log_dir": partition.log_dir,
        "topic": partition.topic,
        "partition": partition.partition,
        "file": piece.segment.file,
    }


def place_column(value: Any, count: int) -> pa.Array:
    return (
        constant(value, count) if isinstance(value, str) else pa.repeat(pa.scalar(value, pa.int32()), count)
    )


def errors(schema: pa.Schema, common: Mapping[str, Any], flaws: Sequence[Flaw]) -> pa.RecordBatch:
    """Rows for errors: each has its message and its place (``common`` and position); all other columns are null."""
    known = {
        "position": pa.array([flaw.position for flaw in flaws], pa.int64()),
        "error": pa.array([flaw.error for flaw in flaws], pa.string()),
        **{name: place_column(value, len(flaws)) for name, value in common.items()},
    }
    columns = [known.get(field.name, pa.nulls(len(flaws), field.type)) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
