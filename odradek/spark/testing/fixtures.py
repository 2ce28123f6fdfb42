"""Fixtures for tests of Spark jobs. Load them as a plugin in a conftest.py:

    pytest_plugins = ["odradek.spark.testing.fixtures"]

    def test_the_job(spark, kafka):
        orders = kafka.topic(partitions=4)
        kafka.produce(orders, ["a", "b"], transaction="abort")
        ...

Spark and the broker are imported and started when a test first requests them.
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

# Two concurrent tasks and four attempts of each, on every machine, so that no test depends on the machine's cores.
MASTER = "local[2, 4]"
# Spark runs for seconds in a test, and the optimizing compiler would take half of its CPU time.
SHORT_LIVED = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@pytest.fixture(scope="session")
def spark_conf() -> dict[str, str]:
    """Additional settings of the session in ``spark``, by name; override this fixture in a conftest.py."""
    return {}


def require_spark() -> None:
    """Skip the test, with the reason, if Java or the connector's jars are missing; in CI, fail the test."""
    try:
        connector_jars()
    except (JavaMissing, JarsMissing) as missing:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def spark(spark_conf: dict[str, str]) -> Iterator[SparkSession]:
    """One Spark session for all tests. Without Java, the tests are skipped; in CI, they fail."""
    require_spark()
    from odradek.spark.environment import session

    started = session("tests", master=MASTER, conf={**SHORT_LIVED, **spark_conf})
    yield started
    started.stop()


@pytest.fixture(scope="session")
def kafka_options() -> dict[str, Any]:
    """Keyword arguments for ``odradek.Broker``, from which the fixture ``kafka_broker`` creates its broker.

    Override this fixture in a conftest.py, a module or a class.
    """
    return {}


@pytest.fixture(scope="session")
def kafka_broker(kafka_options: dict[str, Any]) -> Iterator[Broker]:
    """One Odradek broker for all tests of the session."""
    from odradek.broker import Broker

    with Broker(**kafka_options) as broker:
        yield broker


@pytest.fixture
def kafka(kafka_broker: Broker, request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """Kafka for this test. All tests share the broker; the names that ``kafka.topic()`` returns are unique to the test."""
    from odradek.spark.testing.kafka import Kafka

    mine = Kafka(kafka_broker.bootstrap_servers, kafka_broker, prefix=request.node.name)
    yield mine
    mine.close()
