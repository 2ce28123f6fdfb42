"""Spark's connector on three nodes, while one of them is killed and restarted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.spark.testing.kafka import Kafka, Record
from tests.spark.connector.queries import AVAILABLE_NOW, SOON
from tests.support.three_nodes import ThreeNodes

pytestmark = [pytest.mark.spark, pytest.mark.more]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ThreeNodes]:
    with ThreeNodes(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def kafka(cluster: ThreeNodes, request: pytest.FixtureRequest) -> Iterator[Kafka]:
    mine = Kafka(cluster.bootstrap_servers, cluster, prefix=request.node.name)
    yield mine
    mine.close()


def fill(kafka: Kafka, topic: str, first: int, last: int) -> None:
    """Write one committed and one aborted transaction to all three partitions."""
    rows = [Record(f"{each}".encode(), partition=each % 3) for each in range(first, last)]
    kafka.produce(topic, rows, transaction="commit")
    kafka.produce(topic, ["aborted"] * 3, transaction="abort")


def numbers(records: list[Record]) -> list[int]:
    return sorted(int(each.text or -1) for each in records)


def test_a_stream_continues_when_the_leader_of_its_partitions_dies(kafka, cluster, queries):
    topic, out = kafka.topic(partitions=3, replicas=3), kafka.topic(partitions=3, replicas=3)
    query = queries.start(subscribe=topic, out=out, **SOON)
    fill(kafka, topic, 0, 30)
    query.process_all()
    dead = cluster.leader(topic)
    cluster.nodes[dead].kill()
    cluster.await_leader(topic, other_than=dead)
    fill(kafka, topic, 30, 60)
    query.process_all()
    cluster.start_all()
    cluster.await_in_sync(topic)
    fill(kafka, topic, 60, 90)
    query.process_all()
    # The producer is idempotent, as Spark's is, and no task failed: nothing was written twice.
    assert numbers(kafka.read(out)) == [*range(90)]


def test_a_batch_is_read_and_written_while_a_node_is_down(spark, kafka, cluster, load):
    topic, out = kafka.topic(partitions=3, replicas=3), kafka.topic(partitions=3, replicas=3)
    fill(kafka, topic, 0, 30)
    cluster.nodes[cluster.leader(topic, 1)].kill()
    frame = load(subscribe=topic).select("value")
    frame.write.format("kafka").options(**kafka.options, topic=out).save()
    assert numbers(kafka.read(out)) == [*range(30)]


def test_available_now_does_not_read_unreplicated_records(kafka, cluster, queries):
    """A query with availableNow reads up to the high watermark, so none of its records is lost with the leader."""
    topic, out = kafka.topic(partitions=3, replicas=3), kafka.topic(partitions=3, replicas=3)
    fill(kafka, topic, 0, 30)
    for _ in range(3):
        queries.start(subscribe=topic, out=out, checkpoint="one", trigger=AVAILABLE_NOW, **SOON).ended()
        dead = cluster.leader(topic)
        cluster.nodes[dead].kill()
        cluster.await_leader(topic, other_than=dead)
        cluster.start_all()
        cluster.await_in_sync(topic)
    assert numbers(kafka.read(out)) == [*range(30)]
