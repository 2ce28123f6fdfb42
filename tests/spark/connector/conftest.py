"""The conformance tests of Spark's connector run against this broker (`make more`) and, unchanged, against Apache Kafka
(`make soak`), which shows that a test expects what Kafka does."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from odradek.spark.testing.kafka import Kafka
from tests.spark.connector.queries import Queries
from tests.support import kafka_oracle

APACHE = pytest.param("apache", marks=[pytest.mark.java, pytest.mark.slow])


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[str]:
    with kafka_oracle.kafka() as oracle:
        yield f"{oracle.host}:{oracle.port}"


@pytest.fixture(params=["odradek", APACHE])
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """The Kafka of a test: first this broker, then Apache Kafka."""
    if request.param == "apache":
        mine = Kafka(request.getfixturevalue("apache_kafka"), prefix=request.node.name)
    else:
        broker = request.getfixturevalue("kafka_broker")
        mine = Kafka(broker.bootstrap_servers, broker, prefix=request.node.name)
    yield mine
    mine.close()


@pytest.fixture
def load(spark, kafka: Kafka) -> Callable[..., Any]:
    """Function that returns a batch DataFrame from Kafka: ``load(subscribe=topic, startingOffsets="earliest")``."""

    def load(isolation: str = "read_committed", **options: Any) -> Any:
        said = {
            **kafka.options,
            "kafka.isolation.level": isolation,
            **{k: str(v) for k, v in options.items()},
        }
        return spark.read.format("kafka").options(**said).load()

    return load


@pytest.fixture
def queries(spark, kafka: Kafka, tmp_path: Path) -> Iterator[Queries]:
    """A factory of streaming queries of Spark's connector, which stops them all at the end of the test."""
    with ExitStack() as leaving:
        yield Queries(spark, kafka, tmp_path / "checkpoints", leaving)
