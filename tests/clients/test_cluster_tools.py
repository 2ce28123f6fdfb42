"""kafka-leader-election.sh, kafka-reassign-partitions.sh and kafka-log-dirs.sh of Apache Kafka 4.3.1 on three nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients import ConfluentProducer, eventually, values
from tests.support.in_process import InProcess
from tests.support.javaprog import Ran, java_clients

pytestmark = pytest.mark.foreign

ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGNMENT = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
CONFIGS = "kafka.admin.ConfigCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcess]:
    with InProcess(tmp_path, "--nodes", "3") as cluster:
        yield cluster


def attempt(cluster: InProcess, tool: str, *arguments: object) -> Ran:
    return java_clients().tool(tool, "--bootstrap-server", cluster.bootstrap, *arguments)


def run(cluster: InProcess, tool: str, *arguments: object) -> str:
    ran = attempt(cluster, tool, *arguments)
    assert ran.status == 0, f"{arguments}\n{ran.out}\n{ran.err}"
    return ran.out


def described(cluster: InProcess, kind: str, name: object) -> str:
    """What was set at run time."""
    return run(cluster, CONFIGS, "--describe", "--entity-type", kind, "--entity-name", name)


def create(cluster: InProcess, name: str, assignment: str) -> None:
    run(cluster, TOPICS, "--create", "--topic", name, "--replica-assignment", assignment)


def leader(cluster: InProcess, name: str = "orders") -> int:
    return cluster.call(lambda: cluster.cluster.metadata.topics[name].partitions[0].leader)


def replicas(cluster: InProcess, name: str = "orders") -> tuple[int, ...]:
    return cluster.call(lambda: cluster.cluster.metadata.topics[name].partitions[0].replicas)


def in_sync(cluster: InProcess, name: str = "orders") -> set[int]:
    return cluster.call(lambda: set(cluster.cluster.metadata.topics[name].partitions[0].isr))


def kill(cluster: InProcess, node_id: int) -> None:
    cluster.call(lambda: cluster.cluster.kill_node(node_id))


def start(cluster: InProcess, node_id: int) -> None:
    cluster.run(cluster.cluster.start_node(node_id))


def test_the_preferred_leader_leads_again(cluster: InProcess):
    create(cluster, "orders", "2:1:3")
    assert leader(cluster) == 2
    kill(cluster, 2)
    eventually(lambda: leader(cluster) == 1, "another leader")
    unavailable = ("--election-type", "PREFERRED", "--topic", "orders", "--partition", 0)
    refused = attempt(cluster, ELECTION, *unavailable)
    assert refused.status != 0
    assert "PreferredLeaderNotAvailableException" in refused.out + refused.err

    start(cluster, 2)
    eventually(lambda: in_sync(cluster) == {1, 2, 3}, "2 is in sync again")
    said = run(cluster, ELECTION, "--election-type", "PREFERRED", "--topic", "orders", "--partition", 0)
    assert "Successfully completed leader election (PREFERRED) for partitions orders-0" in said
    assert leader(cluster) == 2
    again = run(cluster, ELECTION, "--election-type", "PREFERRED", "--topic", "orders", "--partition", 0)
    assert "Valid replica already elected for partitions orders-0" in again
    run(cluster, ELECTION, "--election-type", "PREFERRED", "--all-topic-partitions")


def test_an_unclean_leader_is_elected_by_hand_and_what_only_the_other_had_is_lost(cluster: InProcess):
    create(cluster, "orders", "2:3")
    producer = ConfluentProducer(cluster.bootstrap)
    producer.send("orders", ["on both"])
    kill(cluster, 3)
    eventually(lambda: in_sync(cluster) == {2}, "2 is alone")
    producer.send("orders", ["on one"])
    kill(cluster, 2)
    start(cluster, 3)
    eventually(lambda: leader(cluster) == -1, "there is no leader")
    said = run(cluster, ELECTION, "--election-type", "UNCLEAN", "--topic", "orders", "--partition", 0)
    assert "Successfully completed leader election (UNCLEAN) for partitions orders-0" in said
    assert (leader(cluster), in_sync(cluster)) == (3, {3})
    assert values(cluster.bootstrap, "orders") == ["on both"]


def plan(path: Path, *replicas: int) -> tuple[object, ...]:
    """Arguments: move the partition there."""
    file = path / "moves.json"
    directories = ["any"] * len(replicas)
    move = {"topic": "orders", "partition": 0, "replicas": replicas, "log_dirs": directories}
    file.write_text(json.dumps({"version": 1, "partitions": [move]}))
    return ("--reassignment-json-file", file)


def test_a_partition_moves_with_all_that_it_holds(cluster: InProcess, tmp_path: Path):
    """The tool sets the throttles as settings of brokers and of the topic, and --verify takes them away again."""
    create(cluster, "orders", "1:2")
    ConfluentProducer(cluster.bootstrap).send("orders", ["before"])
    move = plan(tmp_path, 3, 2)
    said = run(cluster, REASSIGNMENT, *move, "--execute", "--throttle", 1_000_000)
    assert "The inter-broker throttle limit was set to 1000000 B/s" in said
    assert "Successfully started partition reassignment for orders-0" in said
    assert "leader.replication.throttled.replicas" in described(cluster, "topics", "orders")
    assert "leader.replication.throttled.rate=1000000" in described(cluster, "brokers", 1)
    eventually(lambda: replicas(cluster) == (3, 2), "the move is over")
    said = run(cluster, REASSIGNMENT, *move, "--verify")
    assert "Reassignment of partition orders-0 is completed." in said
    assert "throttled" not in described(cluster, "topics", "orders")
    assert "throttled" not in described(cluster, "brokers", 1)
    assert "No partition reassignments found." in run(cluster, REASSIGNMENT, "--list")

    # The new replica leads, and has everything.
    kill(cluster, 2)
    eventually(lambda: (leader(cluster), in_sync(cluster)) == (3, {3}), "3 leads alone")
    assert values(cluster.bootstrap, "orders") == ["before"]


def test_a_move_that_does_not_end_is_shown_and_given_up(cluster: InProcess, tmp_path: Path):
    """The new replica stands still, so it is never in sync."""
    create(cluster, "orders", "1:2")
    cluster.call(lambda: cluster.cluster.injection.links.pause(3, "orders", 0))
    ConfluentProducer(cluster.bootstrap).send("orders", ["before"])
    move = plan(tmp_path, 1, 3)
    run(cluster, REASSIGNMENT, *move, "--execute")
    listed = run(cluster, REASSIGNMENT, "--list")
    assert "orders-0: replicas: 1,3,2. adding: 3. removing: 2." in listed
    said = run(cluster, REASSIGNMENT, *move, "--verify")
    assert "Reassignment of partition orders-0 is still in progress." in said
    said = run(cluster, REASSIGNMENT, *move, "--cancel")
    assert "Successfully cancelled partition reassignment for: orders-0" in said
    assert sorted(replicas(cluster)) == [1, 2]
    assert "No partition reassignments found." in run(cluster, REASSIGNMENT, "--list")


def test_the_sizes_of_partitions_are_told(cluster: InProcess):
    create(cluster, "orders", "1:2")
    ConfluentProducer(cluster.bootstrap).send("orders", ["x" * 1000])
    said = run(cluster, LOG_DIRS, "--describe", "--topic-list", "orders", "--broker-list", "1,2,3")
    (found,) = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    partitions = {
        broker["broker"]: [
            (each["partition"], each["size"] > 1000) for each in broker["logDirs"][0]["partitions"]
        ]
        for broker in found["brokers"]
    }
    assert partitions == {1: [("orders-0", True)], 2: [("orders-0", True)], 3: []}
