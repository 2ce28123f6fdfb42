"""The columns of the rows that the sink writes. Names and rules are those of Spark's own Kafka sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.spark.sink.decision_record import DIGEST_MODULUS
from odradek.spark.sink.errors import SinkError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from odradek.spark.wire import Cluster, ProducerId, TransactionalWriter

# The allowed types of each column, as Spark's simpleString spells them.
COLUMNS = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}


def check_schema(schema: StructType, topic: str | None) -> None:
    """Raise ``SinkError`` if rows with these columns cannot be written. Called before any task runs."""
    given = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in given:
        raise SinkError(
            "Required attribute 'value' not found: the sink writes a column value (string or binary)."
        )
    if topic is None and "topic" not in given:
        raise SinkError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    for name, types in COLUMNS.items():
        if name in given and given[name] not in types:
            raise SinkError(f"{name} attribute type must be {' or '.join(types)}, not {given[name]}.")


def _column(rows: pa.RecordBatch, name: str) -> Any:
    names = rows.schema.names
    return rows.column(names.index(name)) if name in names else None


class RecordBatchSum:
    """A `task.RowSum` of RecordBatches. ``hashed``: whether to compute ``digest``."""

    def __init__(self, topic: str | None, hashed: bool) -> None:
        self.rows = 0
        self.digest: int | None = 0 if hashed else None
        self.topics: frozenset[str] = frozenset()
        self._topic = topic

    def add(self, rows: pa.RecordBatch) -> None:
        self.rows += len(rows)
        named = None if self._topic is not None else _column(rows, "topic")
        names = [self._topic] if named is None else named.unique().to_pylist()
        self.topics |= {each for each in names if each is not None}
        if self.digest is None:
            return
        # Imported here because only tasks sum rows: planning must not load the compiler that this needs.
        from odradek.spark.records.digest import digest_columns

        added = digest_columns(
            _column(rows, "value"),
            topic=self._topic,
            keys=_column(rows, "key"),
            headers=_column(rows, "headers"),
            topics=named,
            partitions=_column(rows, "partition"),
        )
        self.digest = (self.digest + added) % DIGEST_MODULUS


class RecordBatches:
    """A `task.Writer` of Arrow RecordBatches into an open transaction."""

    def __init__(
        self, cluster: Cluster, transactional_id: str, producer: ProducerId, topic: str | None
    ) -> None:
        # Imported here because only tasks write: planning must not load the compiler that this needs.
        from odradek.spark.wire import TransactionalWriter

        self._writer: TransactionalWriter = TransactionalWriter(cluster, transactional_id, producer)
        self._topic = topic

    @property
    def partitions(self) -> frozenset[tuple[str, int]]:
        return self._writer.partitions

    @property
    def topics(self) -> dict[str, bytes]:
        return self._writer.topics

    def write(self, rows: pa.RecordBatch) -> None:
        topics = None if self._topic is not None else _column(rows, "topic")
        if topics is not None and topics.null_count:
            raise SinkError("null topic present in the data. Use the topic option for setting a topic.")
        self._writer.write(
            _column(rows, "value"),
            topic=self._topic,
            keys=_column(rows, "key"),
            headers=_column(rows, "headers"),
            topics=topics,
            partitions=_column(rows, "partition"),
        )

    def flush(self) -> None:
        self._writer.flush()
