"""The watermark drops no flight although one partition is far ahead of the other in event time."""

from __future__ import annotations

import functools
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek.spark.pipeline import job
from odradek.spark.pipeline.departures import closing_value
from odradek.spark.testing.kafka import Kafka, Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PAGE = Path(__file__).resolve().parents[3] / "docs" / "spark" / "pipeline.md"
BEGIN = datetime(2013, 1, 1, tzinfo=UTC)
AHEAD, BEHIND = 6, 24
"""Number of flights in the partition that advances by months, and in the one that advances by hours.

Flights at the same offset are months apart.
"""


def flight(scheduled: datetime, row: int) -> str:
    said = {"row": row, "scheduled": f"{scheduled:%Y-%m-%dT%H:%M:%SZ}", "origin": "JFK", "delay_minutes": 1}
    return json.dumps(said)


@pytest.fixture
def skewed(kafka: Kafka) -> str:
    topic = kafka.topic(partitions=2)
    ahead = [flight(BEGIN + timedelta(days=30 * row), row) for row in range(AHEAD)]
    behind = [flight(BEGIN + timedelta(hours=row), row) for row in range(BEHIND)]
    for partition, told in enumerate((ahead, behind)):
        rows = [Record(value.encode(), partition=partition) for value in (*told, closing_value())]
        kafka.produce(topic, rows, transaction="commit")
    return topic


def run(told: DataFrame, checkpoint: Path) -> tuple[int, int]:
    """Run a query over all records, and return (flights counted, flights dropped as late)."""
    counted: list[int] = []
    query = (
        told.groupBy(job.hour_of(), "origin")
        .count()
        .writeStream.foreachBatch(lambda rows, _: counted.extend(row["count"] for row in rows.collect()))
        .trigger(availableNow=True)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    assert query.awaitTermination(120)
    late = sum(each["stateOperators"][0]["numRowsDroppedByWatermark"] for each in query.recentProgress)
    assert job.is_over(checkpoint)
    return sum(counted), late


def test_a_partition_that_is_behind_loses_nothing(
    spark: SparkSession, kafka: Kafka, skewed: str, tmp_path: Path
):
    told = job.flights(spark, kafka.bootstrap_servers, skewed, partitions=2, per_batch=8)
    assert run(told, tmp_path) == (AHEAD + BEHIND, 0)


@pytest.mark.more
def test_the_setting_on_the_page_loses_no_flight(
    spark: SparkSession, kafka: Kafka, skewed: str, tmp_path: Path
):
    from pyspark.sql import functions

    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {
        "json": json,
        "functools": functools,
        "f": functions,
        "spark": spark,
        "schema": job.FLIGHT,
    }
    names |= {"bootstrap": kafka.bootstrap_servers, "topic": skewed, "partitions": 2}
    exec(compile(code, str(PAGE), "exec"), names)
    assert run(names["flights"], tmp_path) == (AHEAD + BEHIND, 0)


def test_one_watermark_for_a_whole_topic_would_lose_flights(
    spark: SparkSession, kafka: Kafka, skewed: str, tmp_path: Path
):
    told = job.stream(spark, kafka.bootstrap_servers, {"subscribe": skewed}, per_batch=8)
    counted, late = run(told, tmp_path)
    # Spark aggregates rows before it drops late ones, so it counts late groups and not flights.
    assert counted < AHEAD + BEHIND
    assert late > 0
