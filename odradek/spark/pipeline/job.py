"""The job: compute the delays per airport and hour from one topic, and write them to another, exactly once.

It is a separate program that runs on any cluster (``spark-submit odradek/spark/pipeline/job.py --bootstrap ...``) and only
gets the address of Kafka. It ends when the last window is closed, if its checkpoint is on this machine; otherwise it runs
like any other stream.

**No flight is late.** Spark has one watermark per ``withWatermark``: the latest event time that any task has seen, less
the delay. One watermark for the whole topic is not enough: when the job has much to catch up with, a micro-batch takes
a share of each partition, and equal shares of two partitions need not end at the same event time. Spark would silently
drop flights of the partition that is behind. So each partition is a stream with its own watermark, and Spark takes the
least watermark of a union. Within a partition the flights are in the order of departure, so their scheduled times are
at most 21:40 hours out of order; the watermark's delay is 24 hours.

**The last hours are written.** A window is written when the watermark has passed it, and the watermark follows the
data. So the producer ends each partition with a record of a distant time. A filter after ``withWatermark`` removes this
record when it has moved the watermark. The filter is on the event time, because Spark pushes other filters down below
``withWatermark``.
"""

from __future__ import annotations

import argparse
import functools
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.deadlines import stretched
from odradek.spark.pipeline.departures import CLOSING, WATERMARK_DELAY
from odradek.spark.pipeline.expected import LATE_MINUTES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

QUERY = "hourly-delays"
EXACTLY_ONCE = "odradek.exactly_once"
FLIGHT = "row LONG, scheduled TIMESTAMP, origin STRING, delay_minutes INT"
POLL_S = 0.1
JVM_KILLED = 137
"""Exit code of a driver whose JVM was killed: 128 + SIGKILL, as in shells."""
JVM_END_S = stretched(5.0)


def flights(spark: SparkSession, bootstrap: str, topic: str, partitions: int, per_batch: int) -> DataFrame:
    """The flights as a stream, without closing records: a union of one stream, with its own watermark, per partition.

    A micro-batch has at most ``per_batch`` offsets.
    """
    assigned = [{"assign": json.dumps({topic: [number]})} for number in range(partitions)]
    streams = [stream(spark, bootstrap, each, per_batch // partitions) for each in assigned]
    return functools.reduce(lambda one, other: one.union(other), streams)


def stream(spark: SparkSession, bootstrap: str, what: Mapping[str, str], per_batch: int) -> DataFrame:
    """The flights as a stream with one watermark. ``what`` is the connector's option ``assign`` or ``subscribe``."""
    from pyspark.sql import functions as f

    records = (
        spark.readStream.format("kafka")
        .options(**what)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("maxOffsetsPerTrigger", max(per_batch, 1))
        .load()
    )
    departures = records.select(f.from_json(f.col("value").cast("string"), FLIGHT).alias("flight")).select(
        "flight.*"
    )
    marked = departures.withWatermark("scheduled", f"{int(WATERMARK_DELAY.total_seconds())} seconds")
    return marked.filter(f.col("scheduled") < f.lit(CLOSING).cast("timestamp"))


def hour_of() -> Column:
    from pyspark.sql import functions as f

    return f.window("scheduled", "1 hour")


def delays(departures: DataFrame) -> DataFrame:
    """Records (key, value) of the delays per airport and hour; the value is JSON with the fields of ``expected``."""
    from pyspark.sql import functions as f

    delay = f.col("delay_minutes")
    hourly = departures.groupBy(hour_of(), "origin").agg(
        f.count(f.lit(1)).alias("flights"),
        f.count(delay).alias("departed"),
        f.avg(delay).alias("mean_delay_minutes"),
        f.max(delay).alias("max_delay_minutes"),
        f.avg((delay > LATE_MINUTES).cast("int")).alias("delayed_share"),
    )
    hour = f.date_format("window.start", "yyyy-MM-dd'T'HH:mm:ss'Z'").alias("hour")
    rows = hourly.select("origin", hour, *hourly.columns[2:])
    # If no flight of an hour departed, its delays are null.
    value = f.to_json(f.struct(*rows.columns), {"ignoreNullFields": "false"})
    return rows.select(f.concat_ws(" ", "origin", "hour").alias("key"), value.alias("value"))


def is_over(checkpoint: Path) -> bool:
    """Whether the query has processed all flights: its last finished batch began with a watermark after all windows."""
    done = [int(file.name) for file in (checkpoint / "commits").glob("[0-9]*")]
    if not done:
        return False
    # The file has a version, the batch's watermark, then the offsets of each source.
    _, said, *_ = (checkpoint / "offsets" / str(max(done))).read_text().split("\n", 2)
    closing = datetime.fromisoformat(CLOSING) - WATERMARK_DELAY
    return int(json.loads(said)["batchWatermarkMs"]) >= closing.timestamp() * 1000


class Reporter:
    """The printer of one line per finished micro-batch: ``batch ID ROWS-IN ROWS-OUT LATE LAST-ROW MILLISECONDS``."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._said = -1

    def report_new(self) -> None:
        for batch in self._query.recentProgress:
            if batch["batchId"] > self._said and batch["durationMs"].get("addBatch") is not None:
                self._said = batch["batchId"]
                print("batch", *_figures(batch), flush=True)


def _figures(batch: Any) -> tuple[int, ...]:
    [windows] = batch["stateOperators"]
    seen = batch["observedMetrics"].get("flights")
    return (
        batch["batchId"],
        batch["numInputRows"],
        batch["sink"]["numOutputRows"],
        windows["numRowsDroppedByWatermark"],
        -1 if seen is None or seen["row"] is None else seen["row"],
        batch["durationMs"]["triggerExecution"],
    )


def start(spark: SparkSession, options: argparse.Namespace) -> StreamingQuery:
    from pyspark.sql import functions as f

    departures = flights(spark, options.bootstrap, options.source, options.partitions, options.per_batch)
    return (
        delays(departures.observe("flights", f.max("row").alias("row")))
        .writeStream.queryName(QUERY)
        .format(options.format)
        .outputMode("append")
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("topic", options.sink)
        .option("checkpointLocation", options.checkpoint)
        # The exactly-once sink finds its decision record by this name. The topics of each run have names of their own.
        .option("name", f"{QUERY}-{options.sink}")
        .start()
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="job.py", description="Delays per airport and hour, exactly once.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    parser.add_argument("--source", default="flights", metavar="TOPIC")
    parser.add_argument("--partitions", type=int, required=True, help="partitions of the source topic")
    parser.add_argument("--sink", default="delays", metavar="TOPIC")
    parser.add_argument("--checkpoint", required=True, metavar="DIR")
    parser.add_argument("--per-batch", type=int, default=30_000, metavar="OFFSETS")
    parser.add_argument(
        "--format", default=EXACTLY_ONCE, help="kafka: Spark's own sink, which is at-least-once"
    )
    options = parser.parse_args(arguments)
    from odradek.spark import session

    spark = session(
        "flights", conf={"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    )
    try:
        return run(start(spark, options), Path(options.checkpoint))
    except Exception:
        if _jvm_was_killed(spark):
            return JVM_KILLED
        raise


def run(query: StreamingQuery, checkpoint: Path) -> int:
    """Print the finished micro-batches until the query has processed all flights."""
    print("ready", flush=True)
    reporter = Reporter(query)
    # awaitTermination raises the query's error.
    while not query.awaitTermination(POLL_S):  # type: ignore[arg-type]
        reporter.report_new()
        if is_over(checkpoint):
            reporter.report_new()
            query.stop()
            return 0
    return 1


def _jvm_was_killed(spark: SparkSession) -> bool:
    """Whether the JVM below this process, if there is one, was killed by SIGKILL."""
    gateway = getattr(getattr(spark, "_sc", None), "_gateway", None)
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:
        return False
    try:
        return process.wait(JVM_END_S) == -signal.SIGKILL
    except subprocess.TimeoutExpired:
        return False


if __name__ == "__main__":
    sys.exit(main())
