"""A query that copies a topic exactly once, in this process or in a process that can be killed."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

CHECKPOINTS = "spark.sql.streaming.checkpointLocation"


@dataclass(frozen=True)
class Job:
    """A query over all records that the topic ``source`` has when it starts, in batches of ``per_batch`` rows.

    ``name``: the query's name, None if it has none. ``checkpoint``: a directory, for the option checkpointLocation; with
    ``by_conf`` the checkpoint is ``<checkpoint>/<name>``, set only by the session's configuration. ``rows``: ``"copied"``;
    ``"random"``, with random characters behind each value; ``"sampled"``, half of the rows; or ``"distinct"`` rows, which
    need a state store. ``options``: further options of the sink. ``conf``: configuration of the session in its own
    process."""

    bootstrap_servers: str
    source: str
    topic: str
    checkpoint: str
    name: str | None
    per_batch: int = 200
    rows: str = "copied"
    by_conf: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)

    def but(self, **changes: Any) -> Job:
        """A copy of the job with changed fields."""
        return dataclasses.replace(self, **changes)

    @property
    def directory(self) -> Path:
        """The directory of the checkpoint."""
        return Path(self.checkpoint, self.name or "") if self.by_conf else Path(self.checkpoint)

    @property
    def command(self) -> list[str]:
        """The command that runs the job in its own process."""
        return [sys.executable, __file__, json.dumps(dataclasses.asdict(self))]

    def start(self, spark: SparkSession) -> StreamingQuery:
        kafka = {"kafka.bootstrap.servers": self.bootstrap_servers}
        rows = (
            spark.readStream.format("kafka")
            .options(**kafka, subscribe=self.source, startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", self.per_batch)
            .load()
        )
        writer = self._chosen(rows).writeStream.format("odradek.exactly_once").trigger(availableNow=True)
        writer = writer.options(**kafka, topic=self.topic)
        writer = writer.options(**self.options) if self.options else writer
        if self.name is not None:
            writer = writer.queryName(self.name)
        if not self.by_conf:
            return writer.option("checkpointLocation", self.checkpoint).start()
        spark.conf.set(CHECKPOINTS, self.checkpoint)
        try:
            return writer.start()
        finally:
            spark.conf.unset(CHECKPOINTS)

    def _chosen(self, rows: DataFrame) -> DataFrame:
        if self.rows == "random":
            return rows.selectExpr("key", "concat(cast(value as string), ':', uuid()) value")
        some = rows.select("key", "value")
        if self.rows == "sampled":
            return some.where("rand() < 0.5")
        return some.dropDuplicates(["value"]) if self.rows == "distinct" else some


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    spark = session("copy", master="local[2, 4]", conf=job.conf)
    job.start(spark).awaitTermination()


if __name__ == "__main__":
    main()
