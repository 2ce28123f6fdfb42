"""What ``--deep`` holds against each other, on rows that are written down by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import functions as F

from odradek.spark.audit import deep
from odradek.spark.audit.batch_headers import replica_of
from odradek.spark.segments.reading import ZERO_TAIL

pytestmark = pytest.mark.spark

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RECORDS = (
    "log_dir string, topic string, partition int, timestamp timestamp, timestamp_type string, file string, position long,"
    " error string"
)
ROWS = (
    "log_dir string, topic string, partition int, base_offset long, last_offset long, records int, max_timestamp_ms long,"
    " file string, position long, producer_id long, producer_epoch int, error string"
)
PLACE = ("/data", "orders", 0)


def record(
    position: int, ms: int | None, error: str | None = None, kind: str = "CreateTime"
) -> tuple[Any, ...]:
    time = None if ms is None else EPOCH + timedelta(milliseconds=ms)
    return (*PLACE, time, None if error else kind, "0.log", position, error)


def batch(
    position: int, base: int, records: int, max_ms: int | None, error: str | None = None
) -> tuple[Any, ...]:
    return (*PLACE, base, base + records - 1, records, max_ms, "0.log", position, 7, 0, error)


def test_each_batch_is_held_against_its_own_records(spark: Any) -> None:
    records = [
        # Two batches that claim the same offsets.
        record(0, 10),
        record(0, 5),
        record(100, 20),
        record(200, 30),
        record(300, 1, kind="LogAppendTime"),
        record(400, None),
        record(500, None, "the records of the batch are malformed"),
        record(600, None, "the checksum is wrong"),
        record(700, None, f"9 {ZERO_TAIL}"),
    ]
    batches = [
        batch(0, 0, 2, 10),
        batch(100, 0, 1, 20),
        batch(200, 2, 1, 31),
        batch(300, 3, 1, 99),
        batch(400, 4, 1, None),
        batch(500, 5, 1, 50),
        batch(600, 6, 1, None, "the checksum is wrong"),
    ]
    replica = replica_of(F.col("log_dir"), F.col("topic"), F.col("partition"))
    rows = spark.createDataFrame(batches, ROWS).withColumn("replica", replica).cache()
    decoded = deep.decoded(spark.createDataFrame(records, RECORDS)).cache()
    assert decoded.count() == len(records) - 1
    wrong = deep.timestamp_findings(decoded, rows).collect()
    assert [(each.kind, each.position) for each in wrong] == [("wrong_max_timestamp", 200)]
    damaged = deep.payload_findings(decoded, rows).collect()
    assert [(each.kind, each.position) for each in damaged] == [("damage", 500)]
