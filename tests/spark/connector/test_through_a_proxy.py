"""Spark's connector and the exactly-once sink work unchanged through `odradek proxy` in front of Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.spark.testing.kafka import Kafka, Record
from tests.spark.connector.queries import SOON
from tests.spark.sink.test_sink_source import (
    sink,
    task,
    test_batches_are_written_once_however_often_they_are_replayed,
    test_nothing_is_visible_before_the_decision_and_all_after_it,
)
from tests.support import kafka_oracle
from tests.support.proxy import ProxyProcess

__all__ = [
    "sink",
    "task",
    "test_batches_are_written_once_however_often_they_are_replayed",
    "test_nothing_is_visible_before_the_decision_and_all_after_it",
]

pytestmark = [pytest.mark.spark, pytest.mark.more]


@pytest.fixture(scope="module")
def through(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with (
        kafka_oracle.kafka() as oracle,
        ProxyProcess(tmp_path_factory.mktemp("proxy"), f"{oracle.host}:{oracle.port}") as proxy,
    ):
        yield proxy.bootstrap_servers


@pytest.fixture
def kafka(through: str, request: pytest.FixtureRequest) -> Iterator[Kafka]:
    mine = Kafka(through, prefix=request.node.name)
    yield mine
    mine.close()


def test_a_stream_reads_what_is_committed_and_writes(kafka, queries):
    topic, out = kafka.topic(partitions=3), kafka.topic(partitions=3)
    query = queries.start(subscribe=topic, out=out, **SOON)
    for first in (0, 30):
        rows = [Record(f"{each}".encode(), partition=each % 3) for each in range(first, first + 30)]
        kafka.produce(topic, rows, transaction="commit")
        kafka.produce(topic, ["aborted"] * 3, transaction="abort")
        query.process_all()
    assert sorted(int(each.text or -1) for each in kafka.read(out)) == [*range(60)]
