"""The exactly-once sink with stage points: each of its processes checks at every point whether it has to stop there.

It is registered next to the sink, as ``odradek.exactly_once.staged``, and otherwise equals it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from odradek.spark.sink import ExactlyOnce, points
from tests.spark.matrix import stage
from tests.spark.matrix.sinks import NAME_OPTION, STAGED

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class Staged(ExactlyOnce):
    @classmethod
    def name(cls) -> str:
        return STAGED

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        query = self.options[NAME_OPTION]
        watch(query)
        return Watched(query, super().streamWriter(schema, overwrite))


class Watched(DataSourceStreamArrowWriter):
    """The sink's writer. Unpickling it installs the stage in the process."""

    def __init__(self, query: str, writer: DataSourceStreamArrowWriter) -> None:
        self._query = query
        self._writer = writer

    def __reduce__(self) -> tuple[Any, ...]:
        return arrived, (self._query, self._writer)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._writer.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._writer.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._writer.abort(messages, batchId)


def arrived(query: str, writer: DataSourceStreamArrowWriter) -> Watched:
    watch(query)
    return Watched(query, writer)


def watch(query: str) -> None:
    """Report the points that this process reaches from now on as points of this query."""
    here = stage.here()
    points.watcher = None if here is None else partial(here.reached, query)
