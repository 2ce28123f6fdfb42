"""Streaming queries for the conformance tests: they read topics and write to a topic or into memory."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from odradek.spark.testing.kafka import Kafka
from odradek.spark.testing.streams import process_all
from tests.support.deadlines import HANG_S

AVAILABLE_NOW = {"availableNow": True}
# Java's admin client keeps asking for a node or topic that has left the cluster until its timeout, a minute by default. Only
# then does Spark ask again and see the change.
SOON: dict[str, Any] = {"kafka.default.api.timeout.ms": 6_000, "kafka.request.timeout.ms": 5_000}


def values(rows: list[Any]) -> list[str]:
    """The values of Spark's rows, ordered by offset within each partition."""
    return [row["value"].decode() for row in sorted(rows, key=lambda row: (row["partition"], row["offset"]))]


class Query:
    """One run of a streaming query. ``rows`` are the rows that it has written into memory."""

    def __init__(self, running: Any, spark: Any) -> None:
        self.running, self._spark = running, spark

    @property
    def rows(self) -> list[Any]:
        return self._spark.table(self.running.name).collect()

    @property
    def values(self) -> list[str]:
        return values(self.rows)

    @property
    def end_offsets(self) -> str:
        """End offsets of the source in the query's last batch, as text. The query must have one source."""
        return str(self.running.lastProgress.sources[0].endOffset)

    def process_all(self) -> Query:
        process_all(self.running, HANG_S)
        return self

    def ended(self) -> Query:
        """Wait until a query ends by itself, as with the trigger availableNow, and return it."""
        assert self.running.awaitTermination(int(HANG_S)), self.running.lastProgress
        return self


class Queries:
    def __init__(self, spark: Any, kafka: Kafka, checkpoints: Path, leaving: ExitStack) -> None:
        self._spark, self._kafka, self._checkpoints, self._leaving = spark, kafka, checkpoints, leaving

    def start(
        self,
        *,
        out: str | None = None,
        trigger: Mapping[str, Any] = {"processingTime": "0 seconds"},
        checkpoint: str | None = None,
        mode: str = "append",
        isolation: str = "read_committed",
        **options: Any,
    ) -> Query:
        """Start a query from the source in ``options`` to the topic ``out`` or into memory. A checkpoint can be reused."""
        name = self._kafka.name()
        said = {**self._kafka.options, "kafka.isolation.level": isolation, "startingOffsets": "earliest"}
        if any(each.startswith(("startingTimestamp", "startingOffsetsBy")) for each in options):
            del said["startingOffsets"]
        said |= {each: str(value) for each, value in options.items()}
        source = self._spark.readStream.format("kafka").options(**said).load()
        writer = source.select("key", "value").writeStream if out else source.writeStream
        if out:
            writer = writer.format("kafka").options(**self._kafka.options, topic=out)
        else:
            writer = writer.format("memory").queryName(name.replace("-", "_").replace(".", "_"))
        writer = writer.option("checkpointLocation", str(self._checkpoints / (checkpoint or name)))
        running = writer.outputMode(mode).trigger(**trigger).start()
        self._leaving.callback(running.stop)
        return Query(running, self._spark)
