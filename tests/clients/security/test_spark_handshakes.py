"""Spark's connector and odradek's sink, with the same security options."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.security import Client, Login, client_config
from odradek.spark.sink.options import DECISION_TOPIC
from tests.clients.security.cells import COMMITTED
from tests.clients.security.world import World, password_of

pytestmark = pytest.mark.spark

USER = "scram-sha-512"


@pytest.fixture
def options(world: World) -> dict[str, str]:
    login = Login(USER, password_of(USER), "SCRAM-SHA-512")
    ca = world.certificates / "own" / "ca.pem"
    config = client_config("java", Client(world.bootstrap("SASL_SSL"), "SASL_SSL", ca, login))
    return {f"kafka.{name}": value for name, value in config.items()}


def test_a_job_reads_and_writes_with_tls_and_scram(
    spark: SparkSession, world: World, options: dict[str, str], tmp_path: Path
) -> None:
    source, copied, decided = topics = [f"{USER}.spark.{name}" for name in ("source", "copied", "decided")]
    world.add_topics(topics)
    world.let_read(USER, DECISION_TOPIC)

    def values(topic: str) -> list[str]:
        rows = spark.read.format("kafka").options(**options, subscribe=topic).load()
        return [row.text for row in rows.selectExpr("cast(value as string) text").collect()]

    rows = spark.createDataFrame([(value,) for value in COMMITTED], "value string").coalesce(1)
    rows.write.format("kafka").options(**options, topic=source).save()
    stream = (
        spark.readStream.format("kafka")
        .options(**options, subscribe=source, startingOffsets="earliest")
        .load()
    )
    for sink, topic in (("kafka", copied), ("odradek.exactly_once", decided)):
        writer = stream.select("value").writeStream.format(sink).options(**options, topic=topic)
        writer = writer.option("checkpointLocation", str(tmp_path / sink)).queryName(f"{USER}.{sink}")
        writer.trigger(availableNow=True).start().awaitTermination()
    assert [values(topic) for topic in topics] == [COMMITTED] * 3
