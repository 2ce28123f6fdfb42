"""The data source that Spark calls: it plans tasks from options and filters, and returns Arrow batches."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from odradek.spark.segments import filters, finding, options, planning, reading, where
from odradek.spark.segments.batches import BatchRows
from odradek.spark.segments.internal import OffsetRows, TransactionRows
from odradek.spark.segments.rows import RecordRows
from odradek.spark.segments.schemas import TABLES

if TYPE_CHECKING:
    from odradek.spark.segments.planning import Piece
    from odradek.spark.segments.reading import Chunk


class Rows(Protocol):
    """Converter of the chunks that a task reads to rows of a table."""

    def __init__(self, schema: pa.Schema, conditions: filters.Conditions, asked: options.Options) -> None: ...

    def rows(self, piece: Piece, chunk: Chunk) -> Iterator[pa.RecordBatch]: ...


_INTERNAL = {"transaction_state": "__transaction_state", "offsets": "__consumer_offsets"}


class Task(InputPartition):
    """The pieces (parts of segments) that one Spark task reads."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces


class Segments(DataSource):
    """The data source ``format("odradek.segments")``: partition directories of Odradek or Apache Kafka as a table."""

    @classmethod
    def name(cls) -> str:
        return "odradek.segments"

    def schema(self) -> StructType:
        asked = options.read(self.options)
        return _projection(asked.table, asked.columns or TABLES[asked.table].fieldNames())

    def reader(self, schema: StructType) -> DataSourceReader:
        asked = options.read(self.options)
        if _projection(asked.table, schema.fieldNames()) != schema:
            raise options.BadOption(
                f"The given schema does not fit table {asked.table}, whose columns are "
                f"{TABLES[asked.table].simpleString()}."
            )
        return PushingReader(asked, schema) if asked.pushdown else Reader(asked, schema)


def _projection(table: str, names: Iterable[str]) -> StructType:
    there = {field.name: field for field in TABLES[table]}
    if missing := [name for name in names if name not in there]:
        raise options.BadOption(f"Table {table} has no column {missing[0]}; it has {', '.join(there)}.")
    return StructType([there[name] for name in names])


class Reader(DataSourceReader):
    """The reader of a table: it plans on the driver and reads in tasks. Only the columns in ``schema`` are built."""

    def __init__(self, asked: options.Options, schema: StructType) -> None:
        self.options = asked
        self.schema = schema
        self.conditions = filters.Conditions()
        if asked.filter:
            self.conditions = where.conditions(asked.table, asked.filter)

    def partitions(self) -> Sequence[InputPartition]:
        found = [
            segment
            for partition in self._partitions()
            if self.conditions.admits(self._place(partition))
            for segment in finding.segments(partition)
            if self._may_hold(segment)
        ]
        tasks_min = self.options.partitions_min or 2 * (os.cpu_count() or 1)
        tasks = planning.plan(found, self.options.split_bytes, tasks_min)
        # Without any task Spark would create one with None.
        return [Task(pieces) for pieces in tasks] or [Task([])]

    def _partitions(self) -> list[finding.Partition]:
        found = finding.partitions(self.options.paths)
        internal = _INTERNAL.get(self.options.table)
        if internal is not None:
            return finding.chosen(found, [internal])
        for condition in self.conditions.place:
            self._refuse_internal(condition)
        return finding.chosen(found, self.options.topics)

    def _refuse_internal(self, condition: filters.Condition) -> None:
        """Raise ``BadOption`` if a filter names an internal topic that is not read: it would seem to be empty."""
        if condition.column != "topic" or condition.negated or condition.test not in ("=", "in"):
            return
        named = {condition.value} if condition.test == "=" else set(condition.value)
        hidden = sorted((named & finding.INTERNAL_TOPICS) - set(self.options.topics or ()))
        if hidden and self.options.topics is None:
            raise options.BadOption(
                f"{hidden[0]} is an internal topic and only read if it is named: option('topics', '{hidden[0]}')."
            )

    def _place(self, partition: finding.Partition) -> dict[str, Any]:
        number = filters.PLACE[self.options.table][-1]
        return {"log_dir": partition.log_dir, "topic": partition.topic, number: partition.partition}

    def _may_hold(self, segment: finding.Segment) -> bool:
        """Whether the segment may contain a requested offset, according to the base offsets in the segments' names."""
        return filters.may_hold_offsets(self.conditions, segment.base_offset, segment.next_offset)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        schema = to_arrow_schema(self.schema, timezone="UTC")
        made = _ROWS[self.options.table](schema, self.conditions, self.options)
        for planned in partition.pieces:
            for piece, chunk in reading.chunks(planned, self.options):
                yield from made.rows(piece, chunk)


class PushingReader(Reader):
    """A reader that accepts filters from Spark, if the option ``pushdown`` is set.

    The option is off by default, because Spark 4.2 keeps the filters that one query of a loaded DataFrame has pushed down,
    and applies them to every later scan of the same DataFrame that pushes none (``PythonScanBuilder.pushFilters`` calls
    ``setReadInfo`` on the source that they share). Such a DataFrame is right for one query only.
    """

    def pushFilters(self, filters_: list[Filter]) -> Iterable[Filter]:
        pushed, returned = filters.take(self.options.table, filters_)
        self.conditions = filters.Conditions(*(a + b for a, b in zip(self.conditions, pushed, strict=True)))
        return returned


_ROWS: dict[str, type[Rows]] = {
    "records": RecordRows,
    "batches": BatchRows,
    "transaction_state": TransactionRows,
    "offsets": OffsetRows,
}
