"""Preferred leaders are elected again, and consumers fetch from the follower in their rack."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.scenarios.conftest import StartThree
from tests.support.clients import PATIENCE, ConfluentProducer, eventually, value_of, values
from tests.support.deadlines import HANG_S
from tests.support.javaprog import java_clients
from tests.support.three_nodes import NODES, ThreeNodes

PARTITIONS = range(6)


@contextmanager
def writing(cluster: ThreeNodes) -> Iterator[list[str]]:
    """Context manager: a producer sends to all partitions during the block. Yields the acknowledged values."""
    producer = ConfluentProducer(cluster.bootstrap_servers)
    over = threading.Event()
    sent: list[str] = []

    def write() -> None:
        while not over.is_set():
            value = str(len(sent))
            producer.send("orders", [value], partition=len(sent) % len(PARTITIONS))
            sent.append(value)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield sent
    finally:
        over.set()
        writer.join(HANG_S)


def elected(cluster: ThreeNodes) -> None:
    """Elect preferred leaders with an admin client, as kafka-leader-election.sh does."""
    admin = AdminClient({**PATIENCE, "bootstrap.servers": cluster.bootstrap_servers})
    places = [TopicPartition("orders", partition) for partition in PARTITIONS]
    # With a timeout the binding fails (confluent-kafka 2.16.1).
    admin.elect_leaders(ElectionType.PREFERRED, places).result(HANG_S)


def balanced(cluster: ThreeNodes) -> None:
    """Make the controller elect preferred leaders.

    It does so every five minutes by itself (leader.imbalance.check.interval.seconds).
    """
    cluster.clock.advance("5m", only="replication")


@pytest.mark.parametrize("by", [elected, balanced])
def test_leadership_goes_back_to_a_node_that_is_back(
    by: Callable[[ThreeNodes], None], start_three: StartThree
) -> None:
    """Under load, leadership returns to a restarted node when all replicas are in sync, and no record is lost."""
    cluster = start_three("orders:6", settings={"auto.leader.rebalance.enable": "true"})
    preferred = [cluster.preferred("orders", partition) for partition in PARTITIONS]
    assert sorted(preferred) == sorted([*NODES, *NODES])

    def leaders() -> list[int]:
        return [cluster.leader("orders", partition) for partition in PARTITIONS]

    with writing(cluster) as sent:
        eventually(lambda: len(sent) > 20)
        cluster.nodes[2].kill()
        eventually(lambda: {2, -1}.isdisjoint(leaders()))
        cluster.start_all()
        for partition in PARTITIONS:
            cluster.await_in_sync("orders", partition)
        assert 2 not in leaders()
        by(cluster)
        eventually(lambda: leaders() == preferred)
        count = len(sent)
        eventually(lambda: len(sent) > count + 20)
    assert sorted(values(cluster.bootstrap_servers, "orders"), key=lambda each: int(each or 0)) == sent


@contextmanager
def confluent_in_rack(cluster: ThreeNodes, rack: str) -> Iterator[Callable[[], list[str]]]:
    consumer = Consumer(
        {
            **PATIENCE,
            "bootstrap.servers": cluster.bootstrap_servers,
            "client.id": "neighbour",
            "client.rack": rack,
            "group.id": "readers",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])

    def poll() -> list[str]:
        return [value_of(each).decode() for each in consumer.consume(100, 0.1) if each.error() is None]

    try:
        yield poll
    finally:
        consumer.close()


@contextmanager
def java_in_rack(cluster: ThreeNodes, rack: str) -> Iterator[Callable[[], list[str]]]:
    java = java_clients()
    config = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "client.id": "neighbour",
        "client.rack": rack,
        "group.id": "readers",
        "enable.auto.commit": "false",
        "fetch.max.wait.ms": 50,
    }
    consumer = java.ask("consumer", config=config)
    java.ask("assign", on=consumer, partitions=[["orders", 0]])
    try:
        yield lambda: [record[4] for record in java.ask("poll", on=consumer, timeout_ms=100)]
    finally:
        java.ask("close", on=consumer)


# aiokafka does not support racks.
@pytest.mark.parametrize(
    "in_rack",
    [confluent_in_rack, pytest.param(java_in_rack, marks=pytest.mark.java)],
    ids=lambda f: f.__name__,
)
def test_a_consumer_reads_from_the_follower_in_its_rack(
    in_rack: Callable[[ThreeNodes, str], AbstractContextManager[Callable[[], list[str]]]],
    start_three: StartThree,
) -> None:
    """KIP-392: the leader directs the consumer to the follower in its rack, and serves it again if the follower dies."""
    racks = {f"odradek.node.{node}.broker.rack": f"rack-{node}" for node in NODES}
    selector = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    cluster = start_three("orders:1", settings=racks | selector)
    producer = ConfluentProducer(cluster.bootstrap_servers)
    leader = cluster.leader("orders")
    near = leader % 3 + 1
    found: list[str] = []

    def read(poll: Callable[[], list[str]], count: int) -> list[str]:
        eventually(lambda: found.extend(poll()) or len(found) >= count, f"{count} records")
        return found

    def fetches(node: int) -> int:
        return len(cluster.trace.entries(api="Fetch", node=node, client_id="neighbour", limit=10_000))

    producer.send("orders", ["0"])
    with in_rack(cluster, f"rack-{near}") as poll:
        read(poll, 1)
        eventually(lambda: (poll(), fetches(near))[1])
        asked_the_leader = fetches(leader)
        for number in range(1, 6):
            producer.send("orders", [str(number)])
            read(poll, number + 1)
        assert fetches(near) >= 5
        assert fetches(leader) == asked_the_leader

        cluster.nodes[near].kill()
        producer.send("orders", ["6"])
        read(poll, 7)
    assert found == [str(number) for number in range(7)]
