"""Fixtures for tests of Spark jobs. A conftest.py names them:

    pytest_plugins = ["odradek.spark.testing.fixtures"]

    def test_the_job(spark, kafka):
        orders = kafka.topic(partitions=4)
        kafka.produce(orders, ["a", "b"], transaction="abort")
        ...

Nothing is loaded, and neither Spark nor a broker is started, before a test asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from odradek.spark.environment import JavaMissing, connector_jars
from odradek.spark.jars import JarsMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odradek.broker import Broker
    from odradek.spark.testing.kafka import Kafka

# Two tasks at a time, whatever the machine has, and four attempts for each: what depends on either must not
# depend on the machine.
MASTER = "local[2, 4]"
# A test's Spark lives for seconds, in which the optimizing compiler costs more than it gains: half of all the work.
SHORT_LIVED = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@pytest.fixture(scope="session")
def spark_conf() -> dict[str, str]:
    """Settings of ``spark``; a conftest.py overrides it."""
    return {}


def require_spark() -> None:
    """Skips a test where Java or the connector's jars are missing, with the reason; in CI it fails."""
    try:
        connector_jars()
    except (JavaMissing, JarsMissing) as missing:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def spark(spark_conf: dict[str, str]) -> Iterator[SparkSession]:
    """One session for all tests; without Java they are skipped, and fail in CI."""
    require_spark()
    from odradek.spark.environment import session

    started = session("tests", master=MASTER, conf={**SHORT_LIVED, **spark_conf})
    yield started
    started.stop()


@pytest.fixture(scope="session")
def kafka_options() -> dict[str, Any]:
    """The arguments of ``kafka_broker``, an ``odradek.Broker``; a conftest.py, a module or a class overrides it."""
    return {}


@pytest.fixture(scope="session")
def kafka_broker(kafka_options: dict[str, Any]) -> Iterator[Broker]:
    """One broker for all tests."""
    from odradek.broker import Broker

    with Broker(**kafka_options) as broker:
        yield broker


@pytest.fixture
def kafka(kafka_broker: Broker, request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """Kafka for this test: all tests share the broker; the names that ``kafka.topic()`` returns belong to this test."""
    from odradek.spark.testing.kafka import Kafka

    mine = Kafka(kafka_broker.bootstrap_servers, kafka_broker, prefix=request.node.name)
    yield mine
    mine.close()
