"""Batch reads of Spark's connector."""

import json
from typing import Any

import pytest

from odradek.spark.testing.kafka import Record
from tests.spark.connector.queries import values
from tests.support.deadlines import HANG_S

pytestmark = pytest.mark.spark

MINUTE_MS = 60_000
T0_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def numbered(first: int, last: int, partition: int = 0) -> list[Record]:
    """Records with the numbers from ``first`` to before ``last`` as values, and timestamps one minute apart."""
    return [
        Record(str(each).encode(), partition=partition, timestamp_ms=T0_MS + each * MINUTE_MS)
        for each in range(first, last)
    ]


def test_every_column_comes_as_it_was_written(kafka, load):
    topic = kafka.topic(retention_ms=-1)
    headers = (("a", b"1"), ("a", None), ("b", b""))
    kafka.produce(
        topic, [Record(b"v", b"k", headers, 0, timestamp_ms=T0_MS), Record(None, b"k", partition=0), "w"]
    )
    first, second, third = load(subscribe=topic, includeHeaders=True).orderBy("offset").collect()
    assert (first.key, first.value, first.topic, first.partition, first.offset) == (b"k", b"v", topic, 0, 0)
    assert (first.timestamp.timestamp() * 1000, first.timestampType) == (T0_MS, 0)
    assert [(each.key, each.value) for each in first.headers] == [("a", b"1"), ("a", None), ("b", b"")]
    assert (second.key, second.value, second.headers) == (b"k", None, None)
    assert (third.key, third.value) == (None, b"w")


def test_partitions_are_assigned(kafka, load):
    topic = kafka.topic(partitions=3)
    kafka.produce(topic, [Record(f"{p}".encode(), partition=p) for p in range(3)])
    assert values(load(assign=json.dumps({topic: [0, 2]})).collect()) == ["0", "2"]


def test_topics_are_found_by_a_pattern(kafka, load):
    name = kafka.name()
    for each in ("one", "two", "other"):
        kafka.produce(kafka.topic(name=f"{name}.{each}"), [each])
    assert sorted(values(load(subscribePattern=rf"{name}\.(one|two)").collect())) == ["one", "two"]
    assert sorted(values(load(subscribe=f"{name}.one,{name}.other").collect())) == ["one", "other"]


def test_a_batch_read_by_offsets_per_partition(kafka, load):
    topic = kafka.topic(partitions=2, retention_ms=-1)
    for partition in (0, 1):
        kafka.produce(topic, numbered(0, 6, partition))
    starting, ending = {topic: {"0": 2, "1": -2}}, {topic: {"0": -1, "1": 3}}
    rows = load(
        subscribe=topic, startingOffsets=json.dumps(starting), endingOffsets=json.dumps(ending)
    ).collect()
    assert values(rows) == ["2", "3", "4", "5", "0", "1", "2"]


def at(minute: float) -> int:
    return int(T0_MS + minute * MINUTE_MS)


def test_a_batch_read_by_timestamps(kafka, load):
    topic = kafka.topic(partitions=2, retention_ms=-1)
    for partition in (0, 1):
        kafka.produce(topic, numbered(0, 6, partition))
    both = load(subscribe=topic, startingTimestamp=at(1.5), endingTimestamp=at(4))
    assert values(both.collect()) == ["2", "3"] * 2
    each = {
        "startingOffsetsByTimestamp": json.dumps({topic: {"0": at(5), "1": at(0)}}),
        "endingOffsetsByTimestamp": json.dumps({topic: {"0": at(99), "1": at(1)}}),
    }
    assert values(load(subscribe=topic, **each).collect()) == ["5", "0"]


def test_a_timestamp_behind_the_last_is_an_error_or_the_end(kafka, load):
    topic = kafka.topic(retention_ms=-1)
    kafka.produce(topic, numbered(0, 3))
    with pytest.raises(Exception, match="No offset matched from request of topic-partition"):
        load(subscribe=topic, startingTimestamp=at(99)).collect()
    lenient = {"startingOffsetsByTimestampStrategy": "latest"}
    assert load(subscribe=topic, startingTimestamp=at(99), **lenient).collect() == []


def test_a_partition_is_split_into_several_tasks(kafka, load):
    topic = kafka.topic(retention_ms=-1)
    kafka.produce(topic, numbered(0, 10))
    split = load(subscribe=topic, minPartitions=4)
    assert split.rdd.getNumPartitions() == 4
    assert values(split.collect()) == [str(each) for each in range(10)]


def test_every_codec_is_read(kafka, load):
    topic = kafka.topic()
    for codec in CODECS:
        producer = kafka.producer({"compression.type": codec, "linger.ms": 50})
        for number in range(20):
            producer.produce(topic, f"{codec} {number} " + "x" * 500)
        assert producer.flush(HANG_S) == 0
    assert [each[:8].split()[0] for each in values(load(subscribe=topic).collect())] == [
        codec for codec in CODECS for _ in range(20)
    ]


def test_the_isolation_level_decides_which_records_are_read(kafka, load):
    topic = kafka.topic()
    kafka.produce(topic, ["a"], transaction="commit")
    kafka.produce(topic, ["b"], transaction="abort")
    kafka.produce(topic, ["c"])
    opened = kafka.begin(topic, ["d"])
    kafka.produce(topic, ["e"])

    def seen(isolation: str) -> list[str]:
        return values(load(isolation, subscribe=topic).collect())

    assert seen("read_committed") == ["a", "c"]
    assert seen("read_uncommitted") == ["a", "b", "c", "d", "e"]
    opened.commit()
    kafka.wait_for(topic, 4)
    assert seen("read_committed") == ["a", "c", "d", "e"]


def delete_records(kafka: Any, topic: str, before: int) -> None:
    from confluent_kafka import TopicPartition

    for done in kafka.admin.delete_records([TopicPartition(topic, 0, before)]).values():
        assert done.result(HANG_S).low_watermark == before


def test_deleted_records_fail_the_read_or_are_skipped(kafka, load):
    topic = kafka.topic(retention_ms=-1)
    kafka.produce(topic, numbered(0, 6))
    delete_records(kafka, topic, 4)
    assert values(load(subscribe=topic).collect()) == ["4", "5"]
    said = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 1}})}
    with pytest.raises(Exception, match="Some data may have been lost"):
        load(failOnDataLoss=True, **said).collect()
    assert values(load(failOnDataLoss=False, **said).collect()) == ["4", "5"]


def test_log_append_time_is_read_with_its_timestamp_type(kafka, load):
    topic = kafka.topic(message_timestamp_type="LogAppendTime")
    kafka.produce(topic, [Record(b"v", timestamp_ms=T0_MS)])
    [row] = load(subscribe=topic).collect()
    assert row.timestampType == 1
    assert row.timestamp.timestamp() * 1000 > T0_MS + MINUTE_MS


def test_gaps_of_markers_and_aborted_data_are_stepped_over(kafka, load):
    """A split may begin or end in a gap of markers and aborted data: the connector splits by offsets, not by records."""
    topic = kafka.topic()
    for number in range(4):
        kafka.produce(topic, [f"{number}"], transaction="abort" if number % 2 else "commit")
    for first in range(8):
        rows = load(
            subscribe=topic,
            startingOffsets=json.dumps({topic: {"0": first}}),
            endingOffsets=json.dumps({topic: {"0": first + 1}}),
        ).collect()
        assert values(rows) == ({0: ["0"], 4: ["2"]}.get(first, []))
