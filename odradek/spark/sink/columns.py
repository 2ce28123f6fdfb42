"""The columns of the sink: those of Spark's own Kafka sink, with its rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.spark.sink.errors import SinkError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from odradek.spark.wire import Cluster, ProducerId, TransactionalWriter

# By name, the types as Spark's simpleString says them.
COLUMNS = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}


def check_schema(schema: StructType, topic: str | None) -> None:
    """``SinkError`` if a query with these columns cannot be written: said before a task runs."""
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


class RecordBatches:
    """RecordBatches into an open transaction."""

    def __init__(
        self, cluster: Cluster, transactional_id: str, producer: ProducerId, topic: str | None
    ) -> None:
        # Only tasks write: planning does without the compiler that this brings.
        from odradek.spark.wire import TransactionalWriter

        self._writer: TransactionalWriter = TransactionalWriter(cluster, transactional_id, producer)
        self._topic = topic

    @property
    def records(self) -> int:
        return self._writer.records

    @property
    def partitions(self) -> frozenset[tuple[str, int]]:
        return self._writer.partitions

    @property
    def topics(self) -> dict[str, bytes]:
        return self._writer.topics

    def write(self, rows: pa.RecordBatch) -> None:
        names = rows.schema.names

        def column(name: str) -> Any:
            return rows.column(names.index(name)) if name in names else None

        topics = None if self._topic is not None else column("topic")
        if topics is not None and topics.null_count:
            raise SinkError("null topic present in the data. Use the topic option for setting a topic.")
        self._writer.write(
            column("value"),
            topic=self._topic,
            keys=column("key"),
            headers=column("headers"),
            topics=topics,
            partitions=column("partition"),
        )

    def flush(self) -> None:
        self._writer.flush()
