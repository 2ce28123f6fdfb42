"""The sink under Spark: streaming, batch writes, foreachBatch, and a killed driver (all kills are in tests/spark/matrix)."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from odradek.spark.sink import ExactlyOnceListener, progress
from odradek.spark.testing.driver import kill_driver_after
from odradek.spark.testing.streams import process_all
from tests.spark.sink.job import Job
from tests.support.deadlines import HANG_S

pytestmark = pytest.mark.spark

ROWS = 500
CHECKPOINTS = "spark.sql.streaming.checkpointLocation"
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ALLOWLIST_CHECK = "spark.sql.streaming.realTimeMode.allowlistCheck"


def values(kafka, topic) -> list[str]:
    return sorted(each.text for each in kafka.read(topic))


@pytest.fixture
def listener(spark):
    listening = ExactlyOnceListener()
    spark.streams.addListener(listening)
    yield listening
    spark.streams.removeListener(listening)


def test_a_stream_is_copied_once_and_a_restart_goes_on(spark, kafka, tmp_path, listener):
    source, topic, name = kafka.topic(partitions=3), kafka.topic(partitions=2), kafka.name()
    job = Job(kafka.bootstrap_servers, source, topic, str(tmp_path / "checkpoint"), name)
    kafka.produce(source, [(f"k{number}", f"{number:04}") for number in range(ROWS)])
    job.start(spark).awaitTermination()
    kafka.produce(source, ["more"])
    query = job.start(spark)
    query.awaitTermination()
    assert values(kafka, topic) == [*(f"{number:04}" for number in range(ROWS)), "more"]
    decision = progress({**kafka.options, "name": name})
    assert decision is not None
    assert (decision.batch, decision.rows, decision.query_id, decision.run) == (3, 1, str(query.id), 1)
    kafka.eventually(lambda: len(listener.batches) == 4, "all batches are reported")
    assert [(each.batch, each.rows) for each in listener.batches][-1] == (3, 1)
    assert {each.query_name for each in listener.batches} == {name}
    assert sum(each.rows for each in listener.batches) == ROWS + 1


# `make test` has a sample of the crash matrix instead.
@pytest.mark.more
@pytest.mark.parametrize(
    ("step", "target"),
    [pytest.param("end.first", "driver", marks=pytest.mark.slow), ("task.flushed", "both")],
)
def test_a_driver_that_dies_is_continued_by_another(spark, kafka, tmp_path, step, target):
    source, topic, name = kafka.topic(partitions=3), kafka.topic(partitions=2), kafka.name()
    job = Job(kafka.bootstrap_servers, source, topic, str(tmp_path / "checkpoint"), name)
    kafka.produce(source, [f"{number:04}" for number in range(ROWS)])
    kill_driver_after(step, job.command, batch=1, target=target)
    job.start(spark).awaitTermination()
    assert values(kafka, topic) == [f"{number:04}" for number in range(ROWS)]


def test_batch_writes_and_foreach_batch(spark, kafka, tmp_path):
    topic, name = kafka.topic(partitions=2), kafka.name()
    sink = {**kafka.options, "topic": topic, "name": name}
    rows = spark.createDataFrame([("k", "a"), ("k", "b"), (None, "c")], "key string, value string")
    rows.write.format("odradek.exactly_once").mode("append").options(**sink).save()
    assert values(kafka, topic) == ["a", "b", "c"]

    other = kafka.name()

    def write(batch, batch_id):
        for _ in range(2):
            (
                batch.selectExpr("key", "cast(rows as string) value")
                .write.format("odradek.exactly_once")
                .mode("append")
                .options(**sink)
                .option("name", other)
                .option("batchId", batch_id)
                .save()
            )

    source = kafka.topic()
    kafka.produce(source, [("x", "1"), ("y", "1"), ("x", "1")])
    counted = (
        spark.readStream.format("kafka")
        .options(**kafka.options, subscribe=source, startingOffsets="earliest")
        .load()
        .groupBy("key")
        .count()
        .withColumnRenamed("count", "rows")
    )
    query = (
        counted.writeStream.outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(write)
        .start()
    )
    process_all(query)
    query.stop()
    assert values(kafka, topic) == ["1", "2", "a", "b", "c"]


@pytest.mark.parametrize(
    ("ddl", "sentence"),
    [("value int", "value attribute type must be string or binary"), ("key string", "'value' not found")],
)
def test_columns_that_cannot_be_written_are_refused_in_a_sentence(spark, kafka, ddl, sentence):
    rows = spark.createDataFrame([], ddl)
    with pytest.raises(Exception, match=sentence):
        rows.write.format("odradek.exactly_once").mode("append").options(**kafka.options, topic="t").save()


def count_with_state(spark, kafka, source, topic, checkpoint, failed: Path):
    """A query that counts each word by transformWithState; the task of the word c creates a file and fails once."""

    class Count(StatefulProcessor):
        def init(self, handle):
            self.count = handle.getValueState("count", "n long")

        def handleInputRows(self, key, rows, timers):
            before = self.count.get()[0] if self.count.exists() else 0
            after = before + sum(1 for _ in rows)
            self.count.update((after,))
            yield Row(key=key[0], value=f"{key[0]}{after}")
            if key[0] == "c" and not failed.exists():
                failed.touch()
                raise ValueError("fails once")

        def close(self):
            pass

    return (
        spark.readStream.format("kafka")
        .options(**kafka.options, subscribe=source, startingOffsets="earliest")
        .load()
        .selectExpr("cast(value as string) word")
        .groupBy("word")
        .transformWithState(Count(), "key string, value string", "append", "none")
        .writeStream.format("odradek.exactly_once")
        .options(**kafka.options, topic=topic, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def test_rows_of_transform_with_state_are_written_once(spark, kafka, tmp_path):
    """Rows of transformWithState are written once, also if a task is repeated or another query continues with the state."""
    source, topic, checkpoint = kafka.topic(partitions=2), kafka.topic(), str(tmp_path / "checkpoint")
    failed = tmp_path / "failed"
    spark.conf.set(STATE_STORE, "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    try:
        for words in ("aabc", "abc"):
            kafka.produce(source, list(words))
            count_with_state(spark, kafka, source, topic, checkpoint, failed).awaitTermination()
    finally:
        spark.conf.unset(STATE_STORE)
    assert failed.exists()
    assert values(kafka, topic) == ["a2", "a3", "b1", "b2", "c1", "c2"]


def start_continuous(spark, kafka, source, topic, **options):
    return (
        spark.readStream.format("kafka")
        .options(**kafka.options, subscribe=source, startingOffsets="earliest")
        .load()
        .writeStream.format("odradek.exactly_once")
        .options(**kafka.options, topic=topic, **options)
        .trigger(continuous="1 second")
        .start()
    )


def test_continuous_processing_is_refused_before_anything_is_written(spark, kafka, tmp_path):
    """Continuous processing is refused, with a new checkpoint and with one of a query that has written micro-batches.

    The query that has written micro-batches continues afterwards.
    """
    source, topic, name = kafka.topic(), kafka.topic(), kafka.name()
    used, new = str(tmp_path / "used"), str(tmp_path / "new")
    kafka.produce(source, ["a"])
    Job(kafka.bootstrap_servers, source, topic, used, name).start(spark).awaitTermination()
    kafka.produce(source, ["b"])
    for checkpoint in (new, used):
        query = start_continuous(spark, kafka, source, topic, checkpointLocation=checkpoint)
        try:
            with pytest.raises(Exception, match=r"SinkError: .*micro-batches.*trigger\(processingTime="):
                query.awaitTermination(HANG_S)
        finally:
            query.stop()
    Job(kafka.bootstrap_servers, source, topic, used, name).start(spark).awaitTermination()
    assert values(kafka, topic) == ["a", "b"]


def test_continuous_processing_with_a_checkpoint_by_configuration_writes_nothing(spark, kafka, tmp_path):
    """The sink writes nothing in continuous processing with a checkpoint location that only Spark's configuration has.

    If the query's offsets are deleted, another query writes all rows.
    """
    source, topic, name = kafka.topic(), kafka.topic(), kafka.name()
    kafka.produce(source, ["a"])
    spark.conf.set(CHECKPOINTS, str(tmp_path))
    try:
        query = start_continuous(spark, kafka, source, topic, queryName=name)
        offsets = tmp_path / name / "offsets"
        kafka.eventually((offsets / "0").exists, "Spark has recorded an epoch")
        kafka.produce(source, ["b"])
        kafka.eventually((offsets / "2").exists, "Spark has recorded further epochs")
        query.stop()
    finally:
        spark.conf.unset(CHECKPOINTS)
    assert values(kafka, topic) == []
    assert list((tmp_path / name / "commits").iterdir()) == []
    shutil.rmtree(offsets)
    Job(kafka.bootstrap_servers, source, topic, str(tmp_path / name), name).start(spark).awaitTermination()
    assert values(kafka, topic) == ["a", "b"]


@pytest.mark.parametrize("output_mode", ["append", "update"])
def test_real_time_mode_is_refused_by_spark(spark, kafka, tmp_path, output_mode):
    """Spark refuses real-time mode, even if its list of allowed sinks is not checked.

    The mode needs the output mode update, which Python sinks lack.
    """
    source = kafka.topic()
    spark.conf.set(ALLOWLIST_CHECK, "false")
    try:
        with pytest.raises(Exception, match=r"OUTPUT_MODE_NOT_SUPPORTED|does not support Update mode"):
            (
                spark.readStream.format("kafka")
                .options(**kafka.options, subscribe=source, startingOffsets="earliest")
                .load()
                .writeStream.format("odradek.exactly_once")
                .options(
                    **kafka.options, topic=kafka.topic(), checkpointLocation=str(tmp_path / "checkpoint")
                )
                .outputMode(output_mode)
                .trigger(realTime="5 seconds")
                .start()
                .awaitTermination(HANG_S)
            )
    finally:
        spark.conf.unset(ALLOWLIST_CHECK)
