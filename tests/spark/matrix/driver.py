"""A Spark driver in its own process, so that it can be killed. The driver runs the queries that its standard input names.

    python -m tests.spark.matrix.driver CORES JAVA-OPTIONS

Orders and events are lines of JSON: ``{"start": {...}}`` starts a query over all records of its input topic in the
background, and ``{"event": "ended", "query": ..., "error": ...}`` reports its end. The driver exits at the end of its
standard input.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from odradek.spark.environment import session
from tests.spark.matrix import sinks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

MASTER = "local[{}, 4]"
"""Spark's master URL for a number of cores, and four attempts of a task as on a cluster.

A task that stops at a point occupies a core.
"""
CONF = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.streaming.pollingDelay": "20ms",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.log.level": "ERROR",
}


def main() -> None:
    spark = session(
        "crash matrix", MASTER.format(sys.argv[1]), {**CONF, "spark.driver.extraJavaOptions": sys.argv[2]}
    )
    say = _Voice()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    say(event="ready", jvm=gateway.proc.pid)
    for line in sys.stdin:
        order = json.loads(line)
        if "start" in order:
            # Start it in this thread: Python data sources are registered in this thread's session only.
            query = _start(spark, order["start"])
            threading.Thread(target=_follow, args=(query, order["start"]["query"], say), daemon=True).start()
        if "audit" in order:
            say(event="audited", violations=_violations(spark, **order["audit"]))
    # Skip an orderly shutdown: everything that must survive is in the checkpoints.
    os._exit(0)


def _violations(spark: SparkSession, data: str, out: str) -> list[str]:
    from odradek.spark.audit import audit
    from odradek.spark.audit.findings import VIOLATION

    found = audit(spark, data, out).findings
    return [f"{each.name}: {each.where}: {each.detail}" for each in found if each.severity == VIOLATION]


class _Voice:
    """A writer of whole lines to standard output, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._out = os.fdopen(os.dup(1), "w")

    def __call__(self, **said: Any) -> None:
        with self._lock:
            print(json.dumps(said), file=self._out, flush=True)


def _start(spark: SparkSession, what: dict[str, Any]) -> StreamingQuery:
    if what["format"] == sinks.STAGED:
        from tests.spark.matrix.staged import Staged

        spark.dataSource.register(Staged)
    rows = _rows(spark, what)
    writer = rows.writeStream.format(what["format"]).options(**what["options"]).queryName(what["query"])
    return writer.option("checkpointLocation", what["checkpoint"]).trigger(availableNow=True).start()


def _follow(query: StreamingQuery, name: str, say: _Voice) -> None:
    try:
        query.awaitTermination()
    except Exception as error:
        say(event="ended", query=name, error=_short(error), trace=str(error))
    else:
        say(event="ended", query=name, error=None)


def _short(error: Exception) -> str:
    """The error message of the sink, without the rest of Spark's message."""
    lines = str(error).splitlines()
    said = [each.strip() for each in lines if "Error" in each or "odradek" in each]
    return " | ".join([*lines[:1], *said[-2:]])[:600]


def _rows(spark: SparkSession, what: dict[str, Any]) -> DataFrame:
    from pyspark.sql import functions as F

    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", what["servers"])
        .option("subscribe", what["input"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", what["per_batch"])
    )
    if what["split"]:
        rows = rows.option("minPartitions", what["split"])
    found = rows.load().select("key", "value")
    if what["shuffle"]:
        # The task that gets a row depends on the run, because of the salt.
        found = found.repartition(what["shuffle"], F.xxhash64("key", "value", F.lit(what["salt"])))
    return found


if __name__ == "__main__":
    main()
