"""A streaming query that copies one topic to another, for the measures of the sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from benchmarks.spark import SparkRun

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

INPUT: Final = "input"
TIMEOUT_S: Final = 600


def copy(
    run: SparkRun,
    bootstrap: str,
    sink: str,
    topic: str,
    name: str,
    per_batch: int,
    columns: Sequence[str],
    options: Mapping[str, str] = {},
) -> StreamingQuery:
    """Copy these columns of all records in ``INPUT``, ``per_batch`` records at a time, and return the finished query.
    ``options`` are further options of the sink."""
    rows = (
        run.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", INPUT)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_batch)
        .load()
        .select(*columns)
    )
    query = (
        rows.writeStream.format(sink)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .option("queryName", name)
        .option("checkpointLocation", str(run.scratch / "checkpoints" / name))
        .options(**options)
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(TIMEOUT_S):
        raise RuntimeError(f"{name} did not finish")
    return query
