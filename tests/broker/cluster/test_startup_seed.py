"""--seed writes its records to the logs of the started broker."""

from __future__ import annotations

from pathlib import Path

import pytest

import odradek
from broker.cluster.startup_seed import write_seed
from lab.cluster.reset import reset
from tests.support.in_process import InProcess
from tools.client.cluster import Cluster
from tools.client.fetching import Reader
from tools.client.offsets import READ_UNCOMMITTED

LINES = """
{"topic": "orders", "value": "a", "key": "1", "partition": 1}
{"topic": "payments", "value": "b"}
{"topic": "orders", "value": "c", "partition": 1, "aborted": true}
{"topic": "orders", "value": "d", "partition": 1}
"""
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture
def seed(tmp_path: Path) -> str:
    file = tmp_path / "seed.jsonl"
    file.write_text(LINES)
    return str(file)


def outcomes(broker: InProcess, topic: str, partition: int) -> list[tuple[str, str]]:
    with Cluster(broker.bootstrap) as cluster:
        reader = Reader(cluster, topic, partition, READ_UNCOMMITTED)
        found: list[tuple[str, str]] = []
        while not reader.at_end:
            found += [
                ((each.record.value or b"").decode(), each.outcome)
                for each in reader.read()
                if not each.batch.is_control
            ]
        return found


WRITTEN = [("a", "committed"), ("c", "aborted"), ("d", "committed")]


@pytest.mark.parametrize("nodes", [1, 3])
def test_it_is_written_once_into_a_new_directory_and_again_by_a_reset(
    tmp_path: Path, seed: str, nodes: int
) -> None:
    for _ in range(2):
        with InProcess(tmp_path, "--seed", seed, "--nodes", str(nodes), settings=AUTHORIZER) as broker:
            broker.run(write_seed(broker.cluster, is_new=broker.cluster.is_new))
            assert outcomes(broker, "orders", 1) == WRITTEN
            assert outcomes(broker, "payments", 0) == [("b", "committed")]
            if nodes == 1:
                broker.run(reset(broker.cluster))
                assert outcomes(broker, "orders", 1) == WRITTEN


def test_it_is_there_when_the_broker_has_started(seed: str) -> None:
    with odradek.Broker(arguments=["--seed", seed]) as broker:
        assert [each.value for each in broker.records("orders")] == ["a", "d"]


def test_a_topic_of_an_earlier_start_keeps_its_records_as_they_are(tmp_path: Path, seed: str) -> None:
    with InProcess(tmp_path, "--topic", "orders:2"):
        pass
    with InProcess(tmp_path, "--seed", seed) as broker:
        broker.run(write_seed(broker.cluster, is_new=broker.cluster.is_new))
        assert outcomes(broker, "orders", 1) == []
