"""A Spark driver as a process of its own, so that it can be killed: it runs the queries that it is told of.

    python -m tests.spark.matrix.driver CORES

Orders come line by line as JSON, and so does what happened: ``{"start": {...}}`` runs a query over all that its input
topic has, in the background; ``{"event": "ended", "query": ..., "error": ...}`` says how it came to its end. It is over
when its standard input is.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

from odradek.spark.environment import session
from tests.spark.matrix import sinks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MASTER = "local[{}, 4]"
"""Tasks that stand at a point of theirs hold a core each; a task is tried four times, as on a cluster."""
CONF = {
    "spark.driver.memory": "1g",
    # It lives for a minute at most.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.streaming.pollingDelay": "20ms",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.log.level": "ERROR",
}


def main() -> None:
    spark = session("crash matrix", MASTER.format(sys.argv[1]), CONF)
    say = _Voice()
    say(event="ready", jvm=spark.sparkContext._gateway.proc.pid)
    for line in sys.stdin:
        order = json.loads(line)
        if "start" in order:
            threading.Thread(target=_run, args=(spark, order["start"], say), daemon=True).start()
    # Nothing of it is worth an orderly end: what must last is in the checkpoints.
    os._exit(0)


class _Voice:
    """Whole lines, whoever speaks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._out = os.fdopen(os.dup(1), "w")

    def __call__(self, **said: Any) -> None:
        with self._lock:
            print(json.dumps(said), file=self._out, flush=True)


def _run(spark: SparkSession, what: dict[str, Any], say: _Voice) -> None:
    try:
        if what["format"] == sinks.STAGED:
            from tests.spark.matrix.staged import Staged

            spark.dataSource.register(Staged)
        query = (
            _rows(spark, what)
            .writeStream.format(what["format"])
            .options(**what["options"])
            .option("checkpointLocation", what["checkpoint"])
            .queryName(what["query"])
            .trigger(availableNow=True)
            .start()
        )
        say(event="started", query=what["query"])
        query.awaitTermination()
    except Exception as error:
        say(event="ended", query=what["query"], error=str(error) or repr(error), trace=traceback.format_exc())
    else:
        say(event="ended", query=what["query"], error=None)


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
