"""A query in which a speculative copy of a task loses: speculated.py BOOTSTRAP SOURCE TOPIC CHECKPOINT NAME MASTER.

In batch 1 the first attempt of task 0 writes, and waits until the copy that Spark starts for it writes as well. Then the
first attempt ends and wins, and Spark kills the copy. The file CHECKPOINT.copies has the transactional ids of the copy."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.taskcontext import TaskContext

from odradek.spark import session
from odradek.spark.sink.names import read_task_id
from odradek.spark.sink.plan import ongoing
from odradek.spark.testing.kafka import Kafka
from odradek.spark.wire import ClientSettings, Cluster

CONF = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "10ms",
    "spark.executor.memory": "512m",
    # The sink gets the first row while its task still waits for the next one.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
}


def open_ones(kafka: Kafka, name: str, pooled: bool) -> list[str]:
    """Transactional ids of task 0 with an open transaction.

    If ``pooled`` is true, only the id of the pool, which a first attempt uses; else only ids that one attempt has
    for itself.
    """
    with Cluster(ClientSettings.from_options(kafka.options)) as cluster:
        found = [(each, read_task_id(name, each)) for each in ongoing(cluster, name)]
    return [each for each, read in found if read and read.task == 0 and (read.plan is None) == pooled]


def slow(
    servers: str, checkpoint: str, name: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() or context.getLocalProperty("streaming.sql.batchId") != "1":
            yield from rows
            return
        kafka = Kafka(servers)
        try:
            os.close(os.open(f"{checkpoint}.first", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            kafka.eventually(lambda: bool(open_ones(kafka, name, True)), "the first attempt writes")
            yield from rows
            threading.Event().wait()
        yield from rows
        kafka.eventually(lambda: bool(open_ones(kafka, name, False)), "the copy writes")
        Path(f"{checkpoint}.copies").write_text("\n".join(open_ones(kafka, name, False)))

    return write


def main() -> None:
    servers, source, topic, checkpoint, name, master = sys.argv[1:]
    kafka = {"kafka.bootstrap.servers": servers}
    reader = session("speculated", master, CONF).readStream.format("kafka").options(**kafka, subscribe=source)
    rows = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 8).load()
    slowed = rows.select("value").mapInArrow(slow(servers, checkpoint, name), "value binary")
    writer = slowed.writeStream.format("odradek.exactly_once").options(**kafka, topic=topic).queryName(name)
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
