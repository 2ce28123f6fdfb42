"""The sink under Spark: streaming, batch, foreachBatch, and a driver that dies (all its deaths: tests/spark/matrix)."""

import sys
from pathlib import Path

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from odradek.spark.sink import ExactlyOnceListener, progress
from odradek.spark.testing.driver import kill_driver_after
from odradek.spark.testing.streams import process_all
from tests.spark.sink.job import copy

pytestmark = pytest.mark.spark

ROWS = 500
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"


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
    where = (kafka.bootstrap_servers, source, topic, str(tmp_path / "checkpoint"), name)
    kafka.produce(source, [(f"k{number}", f"{number:04}") for number in range(ROWS)])
    copy(spark, *where).awaitTermination()
    kafka.produce(source, ["more"])
    query = copy(spark, *where)
    query.awaitTermination()
    assert values(kafka, topic) == [*(f"{number:04}" for number in range(ROWS)), "more"]
    decision = progress({**kafka.options, "name": name})
    assert (decision.batch, decision.rows, decision.query_id, decision.run) == (3, 1, str(query.id), 1)
    kafka.eventually(lambda: len(listener.batches) == 4, "all batches are told")
    assert [(each.batch, each.rows) for each in listener.batches][-1] == (3, 1)
    assert {each.query_name for each in listener.batches} == {name}
    assert sum(each.rows for each in listener.batches) == ROWS + 1


# `make test` has a sample of the crash matrix for that.
@pytest.mark.more
@pytest.mark.parametrize(("step", "target"), [("end.first", "driver"), ("task.flushed", "both")])
def test_a_driver_that_dies_is_continued_by_another(spark, kafka, tmp_path, step, target):
    source, topic, name = kafka.topic(partitions=3), kafka.topic(partitions=2), kafka.name()
    where = (kafka.bootstrap_servers, source, topic, str(tmp_path / "checkpoint"), name)
    kafka.produce(source, [f"{number:04}" for number in range(ROWS)])
    job = Path(__file__).with_name("job.py")
    kill_driver_after(step, [sys.executable, job, *where], batch=1, target=target)
    copy(spark, *where).awaitTermination()
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
    """A query that counts each word by transformWithState; the task of the word c makes the file and fails once."""

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
    """When a task is repeated, and by a query that goes on with the state of another."""
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
