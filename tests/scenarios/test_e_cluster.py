"""Scenarios E4, E5 and D3 on several nodes.

Listeners inside and outside a network, markers between nodes, coordinators that die.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.metadata.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from protocol.hashing import partition_for
from tests.scenarios.conftest import NewProducer
from tests.support.by_hand import ask
from tests.support.clients import (
    COMPLETE_COMMIT,
    PREPARE_COMMIT,
    committed_offset,
    eventually,
    statuses,
    transaction_log,
    values,
)
from tests.support.in_process import InProcess
from tests.support.javaprog import java_clients
from tests.support.relay import Relay

NODES = (1, 2, 3)
PARTITIONS = 6
REPLICATED = {"default.replication.factor": 3, "min.insync.replicas": 2}
TOPIC = f"orders:{PARTITIONS}"
INPUT = "input:1"
QUICK = {
    "confluent": {"retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100},
    "java": {"retry.backoff.ms": 20},
    "kafka-python": {"retry_backoff_ms": 20},
    "aiokafka": {"retry_backoff_ms": 20},
}
"""Settings of clients that retry soon, to make the test faster."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcess]:
    """A broker with three nodes, each partition with a replica on all of them."""
    arguments = ("--nodes", "3", "--topic", TOPIC, "--topic", INPUT)
    with InProcess(tmp_path, *arguments, settings=REPLICATED) as broker:
        yield broker


def bootstrap(broker: InProcess) -> str:
    return ",".join(f"127.0.0.1:{node.listeners[0].port}" for node in broker.cluster.nodes.values())


def leader(broker: InProcess, topic: str, index: int) -> int:
    return int(broker.call(lambda: broker.cluster.metadata.topics[topic].partitions[index].leader))


def coordinator(broker: InProcess, transactional_id: str) -> int:
    count = broker.call(lambda: len(broker.cluster.metadata.topics[TRANSACTION_STATE].partitions))
    return leader(broker, TRANSACTION_STATE, partition_for(transactional_id, count))


def send_to_all(producer: Any, value: str) -> None:
    for partition in range(PARTITIONS):
        producer.send("orders", [value], partition=partition)


def is_complete(broker: InProcess) -> bool:
    return statuses(bootstrap(broker), "payments")[-1] == COMPLETE_COMMIT


# -- E5: requests between nodes -----------------------------------------------------------------------------


@contextlib.contextmanager
def relayed(path: Path) -> Iterator[tuple[InProcess, dict[int, Relay], dict[int, Relay]]]:
    """Three nodes with a relay in front of each listener: (broker, relays between nodes, relays of clients)."""
    with contextlib.ExitStack() as stack:
        inside = {node_id: stack.enter_context(Relay()) for node_id in NODES}
        outside = {node_id: stack.enter_context(Relay()) for node_id in NODES}
        settings: dict[str, Any] = {
            "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
        }
        for node_id in NODES:
            addresses = f"INSIDE://{inside[node_id].bootstrap},OUTSIDE://{outside[node_id].bootstrap}"
            settings[f"odradek.node.{node_id}.advertised.listeners"] = addresses
        arguments = ("--nodes", "3", "--topic", TOPIC, "--topic", INPUT)
        broker = stack.enter_context(InProcess(path, *arguments, settings=settings))
        for node_id, node in broker.cluster.nodes.items():
            for listener, relay in zip(node.listeners, (inside[node_id], outside[node_id]), strict=True):
                relay.forward_to("127.0.0.1", listener.port)
        yield broker, inside, outside


def test_markers_go_from_the_coordinator_s_node_to_the_others(
    client: str, new_producer: NewProducer, tmp_path: Path
):
    """Scenario E5: EndTxn goes to the coordinator's node, WriteTxnMarkers from that node to the partition leaders."""
    with relayed(tmp_path) as (broker, inside, outside):
        everybody = ",".join(relay.bootstrap for relay in outside.values())
        producer = new_producer(everybody, "payments")
        producer.init()
        producer.begin()
        send_to_all(producer, "a")
        producer.send_offsets("readers", {("input", 0): 7})
        producer.commit()
        eventually(lambda: statuses(everybody, "payments")[-1] == COMPLETE_COMMIT, "completed")
        assert values(everybody, "orders") == ["a"] * PARTITIONS
        assert committed_offset(everybody, "readers", "input") == 7

        home = coordinator(broker, "payments")
        assert [node_id for node_id in NODES if outside[node_id].seen("end_txn")] == [home]
        groups = broker.call(lambda: len(broker.cluster.metadata.topics[CONSUMER_OFFSETS].partitions))
        keys = [("orders", index) for index in range(PARTITIONS)]
        keys.append((CONSUMER_OFFSETS, partition_for("readers", groups)))
        for node_id in NODES:
            exchanges = inside[node_id].answered("write_txn_markers")
            told = {key for exchange in exchanges for key in marked(exchange.answer)}
            led = {key for key in keys if leader(broker, *key) == node_id}
            assert told == (set() if node_id == home else led)
            assert {exchange.client_id for exchange in exchanges} <= {f"broker-{home}-txn-marker-sender"}
            assert {exchange.version for exchange in exchanges} <= {2}
            assert inside[node_id].errors("write_txn_markers") == set()


def marked(answer: dict[str, Any]) -> list[tuple[str, int]]:
    return [
        (topic["name"], partition["partition_index"])
        for marker in answer["markers"]
        for topic in marker["topics"]
        for partition in topic["partitions"]
    ]


def test_one_commit_is_one_request_for_each_node(new_producer: NewProducer, client: str, tmp_path: Path):
    with relayed(tmp_path) as (broker, inside, outside):
        producer = new_producer(outside[1].bootstrap, "payments")
        producer.init()
        producer.begin()
        send_to_all(producer, "a")
        producer.commit()
        eventually(lambda: statuses(outside[1].bootstrap, "payments")[-1] == COMPLETE_COMMIT, "completed")
        home = coordinator(broker, "payments")
        requests = {node_id: len(relay.seen("write_txn_markers")) for node_id, relay in inside.items()}
        assert requests == {node_id: int(node_id != home) for node_id in NODES}


# -- D3: the coordinator dies -------------------------------------------------------------------------------


DEATHS = {
    "before any marker": "txn.marker transactional_id=payments nth=1 -> kill",
    "after three markers": "txn.marker transactional_id=payments nth=4 -> kill",
    "before Complete": "txn.complete.append transactional_id=payments nth=1 -> kill",
}


# kafka-python is not among these clients: it forgets its EndTxn if the coordinator's node refuses the connection, and
# waits forever. FindCoordinator returns the dead node until the metadata says that it is dead: in Kafka for seconds.
WHO_ASK_AGAIN = ["confluent", pytest.param("java", marks=pytest.mark.java), "aiokafka"]


@pytest.mark.parametrize("client", WHO_ASK_AGAIN)
@pytest.mark.parametrize("rule", DEATHS.values(), ids=DEATHS)
def test_a_coordinator_that_dies_leaves_a_transaction_that_is_finished(
    rule: str, client: str, new_producer: NewProducer, cluster: InProcess
):
    """Scenario D3: a coordinator dies after PrepareCommit. The next coordinator completes the transaction once,
    and the producer continues."""
    commit_while_the_coordinator_dies(rule, client, new_producer, cluster)


@pytest.mark.parametrize("client", WHO_ASK_AGAIN)
def test_a_coordinator_that_dies_before_it_has_decided_is_asked_again(
    client: str, new_producer: NewProducer, cluster: InProcess
):
    rule = "txn.prepare.append transactional_id=payments nth=1 -> kill"
    commit_while_the_coordinator_dies(rule, client, new_producer, cluster)


def commit_while_the_coordinator_dies(
    rule: str, client: str, new_producer: NewProducer, cluster: InProcess
) -> None:
    producer = new_producer(bootstrap(cluster), "payments", more=QUICK[client])
    producer.init()
    home = coordinator(cluster, "payments")
    producer.begin()
    send_to_all(producer, "a")
    producer.send_offsets("readers", {("input", 0): 7})
    death = cluster.stage(rule)
    producer.commit()
    cluster.reached(death)
    eventually(lambda: coordinator(cluster, "payments") not in (home, -1), "another coordinator")
    eventually(lambda: is_complete(cluster), "completed")
    history = [each for each in transaction_log(bootstrap(cluster), "payments") if each is not None]
    decisions = [each for each in history if each.status == PREPARE_COMMIT]
    assert len(decisions) == 1, [(each.offset, each.leader_epoch, each.status) for each in history]
    assert values(bootstrap(cluster), "orders") == ["a"] * PARTITIONS
    assert committed_offset(bootstrap(cluster), "readers", "input") == 7

    cluster.run(cluster.cluster.start_node(home))
    producer.begin()
    send_to_all(producer, "b")
    producer.commit()
    eventually(
        lambda: values(bootstrap(cluster), "orders") == ["a", "b"] * PARTITIONS,
        "the next transaction is committed",
    )


def test_the_markers_of_an_old_coordinator_are_refused(
    new_producer: NewProducer, client: str, cluster: InProcess
):
    """Markers of an old coordinator are refused by every partition that has seen a newer coordinator epoch."""
    producer = new_producer(bootstrap(cluster), "payments", more=QUICK[client])
    producer.init()
    producer.begin()
    send_to_all(producer, "a")
    home = coordinator(cluster, "payments")
    late = cluster.stage("WriteTxnMarkers times=2 -> detach")
    producer.commit()
    cluster.reached(late, 2)
    cluster.call(lambda: cluster.cluster.kill_node(home))
    eventually(lambda: is_complete(cluster), "another coordinator completes it")
    before = ends(cluster)
    assert cluster.release(late) == 2
    cluster.run(_turns())
    assert ends(cluster) == before
    assert values(bootstrap(cluster), "orders") == ["a"] * PARTITIONS


def ends(broker: InProcess) -> dict[int, int]:
    """Log end offset of each partition, at its leader."""

    def look() -> dict[int, int]:
        found = {}
        for node in broker.cluster.running_nodes():
            for index in range(PARTITIONS):
                partition = node.replicas.get("orders", index)
                if partition is not None and partition.leader_id == node.node_id:
                    found[index] = partition.log_end_offset
        return found

    return broker.call(look)


async def _turns() -> None:
    import asyncio

    for _ in range(20):
        await asyncio.sleep(0)


# -- between the markers ------------------------------------------------------------------------------------


def test_some_markers_are_written_and_the_others_held(
    new_producer: NewProducer, client: str, cluster: InProcess
):
    """EndTxn succeeds before all markers are written. Consumers see the records of partitions that have a marker."""
    producer = new_producer(bootstrap(cluster), "payments", more=QUICK[client])
    producer.init()
    producer.begin()
    send_to_all(producer, "a")
    held = cluster.stage("txn.marker topic=orders after=2 -> hold")
    producer.commit()
    cluster.reached(held, PARTITIONS - 2)
    eventually(lambda: len(values(bootstrap(cluster), "orders")) == 2, "two partitions")
    assert statuses(bootstrap(cluster), "payments")[-1] == PREPARE_COMMIT
    assert cluster.release(held) == PARTITIONS - 2
    cluster.call(lambda: cluster.faults.clear())
    eventually(lambda: is_complete(cluster), "completed")
    assert values(bootstrap(cluster), "orders") == ["a"] * PARTITIONS


def test_markers_that_get_lost_keep_the_next_transaction_waiting(
    new_producer: NewProducer, client: str, cluster: InProcess
):
    producer = new_producer(bootstrap(cluster), "payments", more=QUICK[client])
    producer.init()
    producer.begin()
    send_to_all(producer, "a")
    home = coordinator(cluster, "payments")
    other = next(node_id for node_id in NODES if node_id != home)
    partition = next(index for index in range(PARTITIONS) if leader(cluster, "orders", index) == other)
    lost = cluster.stage(f"WriteTxnMarkers node={other} -> lose-request")
    producer.commit()
    cluster.reached(lost, 2)
    assert statuses(bootstrap(cluster), "payments")[-1] == PREPARE_COMMIT
    port = cluster.cluster.nodes[home].listeners[0].port
    body = {"transactional_id": "payments", "transaction_timeout": 60_000}
    answer = ask("127.0.0.1", port, "init_producer_id", 5, body)
    assert answer["error_code"] == ErrorCode.concurrent_transactions
    cluster.call(lambda: cluster.faults.clear())
    eventually(lambda: is_complete(cluster), "completed")
    producer.begin()
    producer.send("orders", ["b"], partition=partition)
    producer.commit()
    eventually(lambda: "b" in values(bootstrap(cluster), "orders"), "the next transaction is committed")


# -- E4: addresses ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def inside_and_outside(path: Path) -> Iterator[InProcess]:
    settings: dict[str, Any] = {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "advertised.listeners": "INSIDE://127.0.0.1:0,OUTSIDE://localhost:0",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
    }
    with InProcess(path, "--nodes", "2", settings=settings) as broker:
        yield broker


@pytest.mark.parametrize(("number", "host"), [(0, "127.0.0.1"), (1, "localhost")], ids=["inside", "outside"])
def test_each_side_is_told_its_own_addresses(number: int, host: str, tmp_path: Path):
    with inside_and_outside(tmp_path) as broker:
        nodes = broker.cluster.nodes
        at = ("127.0.0.1", nodes[2].listeners[number].port)
        brokers = ask(*at, "metadata", 12, {"topics": []})["brokers"]
        found = eventually(lambda: coordinators(*at), "__transaction_state is created")
        assert {each["node_id"]: (each["host"], each["port"]) for each in brokers} == {
            node_id: (host, node.listeners[number].port) for node_id, node in nodes.items()
        }
        [each] = found
        assert (each["host"], each["port"]) == (host, nodes[each["node_id"]].listeners[number].port)


def coordinators(host: str, port: int) -> list[dict[str, Any]]:
    """The coordinator of `payments`, as a list of one; empty while __transaction_state is being created."""
    body = {"key_type": 1, "coordinator_keys": ["payments"]}
    found = ask(host, port, "find_coordinator", 4, body)["coordinators"]
    return [each for each in found if each["error_code"] == ErrorCode.none]


@pytest.mark.java
@pytest.mark.parametrize("number", [0, 1], ids=["inside", "outside"])
def test_topics_are_administered_as_on_kafka(number: int, tmp_path: Path):
    """Scenario E4: kafka-topics.sh creates, describes and deletes topics over an inner and an outer listener."""

    def topics(*arguments: str) -> str:
        ran = java_clients().tool(
            "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", where, *arguments
        )
        assert ran.status == 0, f"{arguments}\n{ran.out}\n{ran.err}"
        return ran.out

    with inside_and_outside(tmp_path) as broker:
        listener = broker.cluster.nodes[1].listeners[number]
        where = f"{listener.advertised_host}:{listener.port}"
        topics("--create", "--topic", "orders", "--replication-factor", "2", "--partitions", "2")
        said = topics("--describe", "--topic", "orders")
        assert "PartitionCount: 2" in said
        assert "ReplicationFactor: 2" in said
        assert sorted(line.split("Leader: ")[1][0] for line in said.splitlines() if "Leader: " in line) == [
            "1",
            "2",
        ]
        eventually(lambda: coordinators("127.0.0.1", listener.port), "__transaction_state is created")
        state = topics("--describe", "--topic", "__transaction_state")
        assert "PartitionCount: 50" in state
        assert "ReplicationFactor: 2" in state
        assert "cleanup.policy=compact" in state
        topics("--delete", "--topic", "orders")
        assert "orders" not in topics("--list").split()
