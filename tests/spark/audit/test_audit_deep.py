"""The comparisons of ``--deep``, on rows that the tests define."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import functions as F

from odradek.spark.audit import deep
from odradek.spark.audit.batch_headers import replica_of
from odradek.spark.audit.two_looks import Looks
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
        # Two batches with the same offsets.
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
    assert [(each.name, each.position) for each in wrong] == [("wrong_max_timestamp", 200)]
    damaged = deep.payload_findings(decoded, rows).collect()
    assert [(each.name, each.position) for each in damaged] == [("damage", 500)]


def look(*rows: tuple[Any, ...], log_dir: str = "/data") -> list[tuple[Any, ...]]:
    """Rows of ``index_entries``, made from tuples (number of the segment, kind, position, first, second)."""
    suffixes = {"offset": "index", "transaction": "txnindex", "flaw": "timeindex", "segment": "log"}
    return [
        (log_dir, "orders", 0, f"{name}.{suffixes[kind]}", f"{name}.log", kind, *numbers, 7, None)
        for name, kind, *numbers in rows
    ]


def test_only_what_a_broker_at_work_has_done_with_is_judged(spark: Any) -> None:
    """Only files that the running broker no longer writes are compared.

    Between the two reads, segment "0" did not change, "1" was compacted, "2" truncated, "3" rolled, and "4" created.
    """
    before = look(
        *(("0", "segment", 900, 10, 0), ("0", "offset", 0, 5, 100), ("0", "offset", 8, 6, 200)),
        *(("1", "segment", 900, 11, 0), ("1", "offset", 0, 15, 100), ("1", "transaction", 0, 11, 12)),
        *(("2", "segment", 900, 12, 0), ("2", "offset", 0, 25, 100)),
        *(("3", "segment", 500, 13, 1), ("3", "offset", 0, 35, 100), ("3", "flaw", 12, 0, 0)),
        ("3", "transaction", 0, 31, 32),
    )
    after = look(
        *(("0", "segment", 900, 10, 0), ("0", "offset", 0, 5, 100), ("0", "offset", 8, 6, 300)),
        *(("1", "segment", 900, 21, 0), ("1", "offset", 0, 15, 100)),
        *(("2", "segment", 800, 12, 0), ("2", "offset", 0, 25, 100)),
        *(("3", "segment", 900, 13, 0), ("3", "offset", 0, 35, 100), ("3", "flaw", 12, 0, 0)),
        *(("3", "transaction", 0, 31, 32), ("3", "transaction", 34, 33, 34)),
        *(("4", "segment", 100, 14, 1), ("4", "offset", 0, 45, 100)),
    )
    stopped = look(("9", "segment", 100, 99, 1), ("9", "offset", 0, 95, 100), log_dir="/stopped")
    replica = replica_of(F.col("log_dir"), F.col("topic"), F.col("partition"))
    first, second = [
        spark.createDataFrame(rows, deep.ENTRIES).withColumn("replica", replica)
        for rows in (before, after + stopped)
    ]
    looks = Looks(first, second, ["/data"])
    judged = {
        (row.log_file, row.kind, row.first) for row in looks.entries().where("kind != 'segment'").collect()
    }
    assert judged == {("0.log", "offset", 5), ("3.log", "transaction", 31), ("9.log", "offset", 95)}
    assert {row.second for row in looks.listed().collect()} == {12, 32, 34}

    # Markers whose entry both reads must have: the log had them at the first read, and later batches behind them.
    places = [("0", 0), ("1", 0), ("2", 0), ("3", 400), ("3", 500), ("4", 0)]
    columns = "log_dir string, file string, position long, error string"
    batches = spark.createDataFrame([("/data", f"{name}.log", at, None) for name, at in places], columns)
    batches = batches.withColumn("replica", F.lit(first.first().replica))

    def indexed(newest: str) -> list[tuple[str, int]]:
        seen = batches.where(F.concat("file", F.lpad("position", 3, "0")) <= newest)
        return sorted((row.file, row.position) for row in looks.indexed(batches, seen).collect())

    assert indexed("3.log500") == [("0.log", 0), ("3.log", 400)]
    assert indexed("3.log400") == [("0.log", 0)]
    same = {row.file for row in looks.same(batches).collect()}
    assert same == {"0.log", "3.log"}
