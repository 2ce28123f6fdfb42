"""Batch writes of Spark's own Kafka sink."""

from typing import Any

import pytest

from tests.spark.connector.queries import values

pytestmark = pytest.mark.spark

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def save(frame, kafka, **options: Any) -> None:
    said = {**kafka.options, **{each: str(value) for each, value in options.items()}}
    frame.write.format("kafka").options(**said).save()


def test_every_column_is_written(spark, kafka):
    topic = kafka.topic(partitions=3)
    rows = [
        (b"k", b"v", [("a", b"1"), ("a", None)], 2),
        (None, None, None, 1),
    ]
    schema = "key binary, value binary, headers array<struct<key:string,value:binary>>, partition int"
    save(spark.createDataFrame(rows, schema), kafka, topic=topic, includeHeaders=True)
    tombstone, whole = kafka.read(topic)
    assert (whole.key, whole.value, whole.headers, whole.partition) == (
        b"k",
        b"v",
        (("a", b"1"), ("a", None)),
        2,
    )
    assert (tombstone.key, tombstone.value, tombstone.headers, tombstone.partition) == (None, None, (), 1)


def test_each_row_names_its_topic(spark, kafka):
    one, two = kafka.topic(), kafka.topic()
    save(spark.createDataFrame([(one, "1"), (two, "2")], "topic string, value string"), kafka)
    assert [each.text for each in kafka.read(one) + kafka.read(two)] == ["1", "2"]


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_a_write_works_with_every_acks(spark, kafka, acks: str):
    topic = kafka.topic(partitions=2)
    settings = {"kafka.acks": acks, "kafka.enable.idempotence": acks == "all"}
    save(spark.range(100).selectExpr("cast(id as string) value"), kafka, topic=topic, **settings)
    assert sorted(int(each.text) for each in kafka.wait_for(topic, 100)) == [*range(100)]


def test_every_codec_is_written(spark, kafka, load):
    topic = kafka.topic()
    for codec in CODECS:
        frame = spark.range(50, numPartitions=1).selectExpr(f"concat('{codec} ', id, repeat('x', 500)) value")
        save(frame, kafka, topic=topic, **{"kafka.compression.type": codec})
    assert [each.split()[0] for each in values(load(subscribe=topic).collect())] == [
        codec for codec in CODECS for _ in range(50)
    ]
    assert len(kafka.read(topic)) == 250


def test_a_record_that_is_too_large_fails_the_write(spark, kafka):
    topic = kafka.topic(max_message_bytes=10_000)
    frame = spark.range(1).selectExpr("cast(repeat(uuid(), 1000) as binary) value")
    with pytest.raises(Exception, match="RecordTooLarge"):
        save(frame, kafka, topic=topic)
    assert kafka.read(topic) == []
