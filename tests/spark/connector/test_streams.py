"""Streaming reads and writes of Spark's connector."""

import json
from contextlib import ExitStack, closing

import pytest

from odradek.spark.testing.kafka import Kafka
from tests.spark.connector.queries import AVAILABLE_NOW, SOON, Queries
from tests.spark.connector.test_batch_reads import at, delete_records, numbered
from tests.support.deadlines import HANG_S

pytestmark = pytest.mark.spark

# The errors for a deleted topic. Which one occurs depends on what the connector had asked before the topic was deleted.
LOST = r"Some data may have been lost|UnknownTopicOrPartition"


def test_a_stream_follows_what_is_written(kafka, queries):
    topic = kafka.topic(partitions=2)
    query = queries.start(subscribe=topic, includeHeaders=True)
    for number in range(3):
        kafka.produce(topic, [(f"{number}", f"{number}")])
        query.process_all()
    assert sorted(query.values) == ["0", "1", "2"]


def test_a_restart_continues_from_the_checkpoint(kafka, queries):
    topic, out = kafka.topic(), kafka.topic()
    for number in range(3):
        kafka.produce(topic, [f"{number}"])
        queries.start(subscribe=topic, out=out, checkpoint="one", trigger=AVAILABLE_NOW).ended()
    assert [each.text for each in kafka.read(out)] == ["0", "1", "2"]


def test_available_now_ends_at_the_first_open_transaction(kafka, queries):
    topic, out = kafka.topic(), kafka.topic()
    kafka.produce(topic, ["a"])
    opened = kafka.begin(topic, ["b"])
    kafka.produce(topic, ["c"])

    def run() -> list[str | None]:
        query = queries.start(subscribe=topic, out=out, checkpoint="one", trigger=AVAILABLE_NOW)
        query.ended()
        return [each.text for each in kafka.read(out)]

    assert run() == ["a"]
    opened.commit()
    kafka.wait_for(topic, 3)
    assert run() == ["a", "b", "c"]


def test_batches_that_end_in_markers_and_aborted_data_lose_nothing(kafka, queries):
    """Streaming batches of three offsets, which may end in markers and aborted data, lose no committed record.

    Six transactions, three of them aborted, make 24 records and 6 markers.
    """
    topic = kafka.topic()
    for number in range(6):
        rows = [f"{number}.{each}" for each in range(4)]
        kafka.produce(topic, rows, transaction="abort" if number % 2 else "commit")
    query = queries.start(subscribe=topic, maxOffsetsPerTrigger=3, trigger=AVAILABLE_NOW).ended()
    assert query.values == [f"{number}.{each}" for number in (0, 2, 4) for each in range(4)]
    assert json.loads(query.end_offsets) == {topic: {"0": 30}}


def test_a_new_partition_is_read_from_its_beginning(kafka, queries):
    from confluent_kafka.admin import NewPartitions

    topic = kafka.topic()
    query = queries.start(subscribe=topic)
    kafka.produce(topic, ["a"])
    query.process_all()
    kafka.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(HANG_S)
    kafka.eventually(lambda: kafka.partitions(topic) == [0, 1], "the second partition")
    kafka.produce(topic, numbered(7, 8, partition=1))
    kafka.eventually(lambda: query.process_all().values == ["a", "7"], "what is in it")


def test_a_new_topic_of_the_pattern_is_read_from_its_beginning(kafka, queries):
    name = kafka.name()
    kafka.produce(kafka.topic(name=f"{name}.a"), ["a"])
    query = queries.start(subscribePattern=rf"{name}\..*").process_all()
    kafka.produce(kafka.topic(name=f"{name}.b"), ["b"])
    kafka.eventually(lambda: sorted(query.process_all().values) == ["a", "b"], "the second topic")


def test_a_stream_starts_at_the_given_offsets(kafka, queries):
    topic = kafka.topic(retention_ms=-1)
    kafka.produce(topic, numbered(0, 6))
    by_offset = queries.start(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 4}}))
    by_time = queries.start(subscribe=topic, startingTimestamp=at(2.5))
    by_each_time = queries.start(
        subscribe=topic, startingOffsetsByTimestamp=json.dumps({topic: {"0": at(5)}})
    )
    behind = {"startingOffsetsByTimestampStrategy": "latest"}
    at_the_end = queries.start(subscribe=topic, startingTimestamp=at(99), **behind)
    latest = queries.start(subscribe=topic, startingOffsets="latest")
    for query in (latest, at_the_end):
        query.process_all()
    kafka.produce(topic, numbered(6, 7))
    found = [each.process_all().values for each in (by_offset, by_time, by_each_time, at_the_end, latest)]
    assert found == [["4", "5", "6"], ["3", "4", "5", "6"], ["5", "6"], ["6"], ["6"]]


def test_a_trigger_waits_for_enough_offsets(kafka, queries):
    topic = kafka.topic()
    limits = {"minOffsetsPerTrigger": 5, "maxTriggerDelay": "10m"}
    kafka.produce(topic, ["first"])
    query = queries.start(subscribe=topic, **limits).process_all()
    assert query.values == ["first"]  # the first batch does not wait
    kafka.produce(topic, ["a", "b"])
    kafka.eventually(lambda: query.running.status["message"] == "Waiting for data to arrive", "rest")
    assert query.values == ["first"]
    kafka.produce(topic, ["c", "d", "e"])
    assert query.process_all().values == ["first", "a", "b", "c", "d", "e"]


def test_one_partition_of_a_stream_is_split_into_several_tasks(kafka, queries):
    topic = kafka.topic(retention_ms=-1)
    kafka.produce(topic, numbered(0, 12))
    query = queries.start(subscribe=topic, minPartitions=3, maxOffsetsPerTrigger=6, trigger=AVAILABLE_NOW)
    assert query.ended().values == [str(each) for each in range(12)]


@pytest.mark.parametrize("strict", [True, False])
def test_records_deleted_while_no_query_ran(kafka, queries, strict: bool):
    topic, out = kafka.topic(retention_ms=-1), kafka.topic()

    def start():
        return queries.start(
            subscribe=topic, out=out, checkpoint="one", trigger=AVAILABLE_NOW, failOnDataLoss=strict
        )

    kafka.produce(topic, numbered(0, 3))
    start().ended()
    kafka.produce(topic, numbered(3, 8))
    delete_records(kafka, topic, 6)
    again = start()
    if strict:
        with pytest.raises(Exception, match="Some data may have been lost"):
            again.ended()
    else:
        again.ended()
    found = [each.text for each in kafka.read(out)]
    assert found == ["0", "1", "2"] + ([] if strict else ["6", "7"])


def recreate(kafka, topic: str) -> None:
    kafka.admin.delete_topics([topic])[topic].result(HANG_S)
    kafka.eventually(lambda: topic not in kafka.admin.list_topics(timeout=HANG_S).topics, "its end")
    kafka.topic(name=topic)


@pytest.mark.parametrize("strict", [True, False])
def test_a_topic_is_deleted_and_created_again(kafka, queries, load, strict: bool):
    topic, out = kafka.topic(), kafka.topic()

    def start():
        return queries.start(
            subscribe=topic, out=out, checkpoint="one", trigger=AVAILABLE_NOW, failOnDataLoss=strict
        )

    kafka.produce(topic, ["a", "b", "c"])
    start().ended()
    recreate(kafka, topic)
    kafka.produce(topic, ["d"])
    again = start()
    if strict:
        with pytest.raises(Exception, match="Some data may have been lost"):
            again.ended()
    else:
        again.ended()
    assert [each["value"] for each in load(subscribe=topic).collect()] == [b"d"]
    found = [each.text for each in kafka.read(out)]
    assert found == ["a", "b", "c"]


def test_a_batch_read_finds_a_recreated_topic(kafka, load):
    """A batch read finds a topic that was recreated.

    Spark pools consumers by their parameters: a consumer that has the old topic id has to learn the new id.
    """
    topic = kafka.topic()
    for value in ("a", "b"):
        kafka.produce(topic, [value])
        assert [each["value"] for each in load(subscribe=topic).collect()] == [value.encode()]
        recreate(kafka, topic)


def test_a_running_stream_loses_its_topic(kafka, queries):
    topic = kafka.topic()
    query = queries.start(subscribe=topic, **SOON)
    kafka.produce(topic, ["a"])
    query.process_all()
    kafka.admin.delete_topics([topic])[topic].result(HANG_S)
    with pytest.raises(Exception, match=LOST):
        query.ended()


@pytest.mark.more
def test_a_topic_is_deleted_between_listing_its_partitions_and_offsets(kafka_broker, spark, tmp_path):
    kafka = Kafka(kafka_broker.bootstrap_servers, kafka_broker, prefix="between")
    topic = kafka.topic()
    with closing(kafka), ExitStack() as leaving:
        query = Queries(spark, kafka, tmp_path, leaving).start(subscribe=topic, **SOON)
        kafka.produce(topic, ["a"])
        query.process_all()
        with kafka_broker.faults.add(f"ListOffsets topic={topic} -> hold").wait():
            kafka.admin.delete_topics([topic])[topic].result(HANG_S)
        with pytest.raises(Exception, match=LOST):
            query.ended()


def test_continuous_mode(kafka, queries):
    topic, out = kafka.topic(), kafka.topic()
    kafka.produce(topic, ["a"])
    query = queries.start(subscribe=topic, out=out, trigger={"continuous": "1 second"})
    kafka.wait_for(out, 1)
    kafka.produce(topic, ["b", "c"])
    assert [each.text for each in kafka.wait_for(out, 3)] == ["a", "b", "c"]
    query.running.stop()


def test_real_time_mode(spark, kafka, queries):
    """In real-time mode, tasks follow the end of the log themselves for the duration of a batch."""
    spark.conf.set("spark.sql.streaming.realTimeMode.minBatchDuration", "1000")
    topic, out = kafka.topic(), kafka.topic()
    kafka.produce(topic, ["a"])
    query = queries.start(subscribe=topic, out=out, mode="update", trigger={"realTime": "2 seconds"})
    kafka.wait_for(out, 1)
    kafka.produce(topic, ["b"], transaction="abort")
    kafka.produce(topic, ["c"], transaction="commit")
    assert [each.text for each in kafka.wait_for(out, 2)] == ["a", "c"]
    query.running.stop()


def test_deprecated_offset_fetching_with_a_consumer(spark, kafka, queries, load):
    """In the deprecated mode a consumer fetches offsets, so it has to join its own consumer group."""
    topic = kafka.topic(partitions=2)
    kafka.produce(topic, [("k", "a"), ("l", "b")])
    name = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    spark.conf.set(name, "true")
    try:
        query = queries.start(subscribe=topic, trigger=AVAILABLE_NOW).ended()
        assert sorted(query.values) == ["a", "b"]
        assert len(load(subscribe=topic, minPartitions=2).collect()) == 2
    finally:
        spark.conf.unset(name)


def test_a_stream_begins_in_an_aborted_transaction(kafka, queries):
    topic = kafka.topic()
    kafka.produce(topic, ["a"] * 5, transaction="abort")
    kafka.produce(topic, ["b"])
    query = queries.start(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 2}})).process_all()
    assert query.values == ["b"]
