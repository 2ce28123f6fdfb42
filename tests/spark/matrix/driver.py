"""A Spark driver as a process of its own, so that it can be killed: it runs the queries that it is told of.

    python -m tests.spark.matrix.driver CORES JAVA-OPTIONS

Orders come line by line as JSON, and so does what happened: ``{"start": {...}}`` runs a query over all that its input
topic has, in the background; ``{"event": "ended", "query": ..., "error": ...}`` says how it came to its end. It is over
when its standard input is.
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
"""Tasks that stand at a point of theirs hold a core each; a task is tried four times, as on a cluster."""
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
    say(event="ready", jvm=spark.sparkContext._gateway.proc.pid)
    for line in sys.stdin:
        order = json.loads(line)
        if "start" in order:
            # Here and not in its thread: Python's formats are known to the session of this thread alone.
            query = _start(spark, order["start"])
            threading.Thread(target=_follow, args=(query, order["start"]["query"], say), daemon=True).start()
        if "audit" in order:
            say(event="audited", violations=_violations(spark, **order["audit"]))
    # Nothing of it is worth an orderly end: what must last is in the checkpoints.
    os._exit(0)


def _violations(spark: SparkSession, data: str, out: str) -> list[str]:
    from odradek.spark.audit import audit
    from odradek.spark.audit.findings import VIOLATION

    found = audit(spark, data, out).findings
    return [f"{each.name}: {each.where}: {each.detail}" for each in found if each.severity == VIOLATION]


class _Voice:
    """Whole lines, from all threads."""

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
    """What the sink said, of all that Spark says."""
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
        # Who gets a row depends on the run: its salt.
        found = found.repartition(what["shuffle"], F.xxhash64("key", "value", F.lit(what["salt"])))
    return found


if __name__ == "__main__":
    main()
