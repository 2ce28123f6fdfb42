"""When leaders and coordinators move, clients get errors that report this, and find the new node.

No record is lost or duplicated.
"""

from __future__ import annotations

import pytest

from tests.scenarios.conftest import NewProducer, StartThree
from tests.support.clients import committed_offset, eventually, java_hash, values
from tests.support.readers import reader
from tests.support.three_nodes import NODES, ThreeNodes

JAVA = pytest.param("java", marks=pytest.mark.java)
CLIENTS = ["confluent", "aiokafka", JAVA]
LOG_OF_TRANSACTIONS, LOG_OF_GROUPS = "__transaction_state", "__consumer_offsets"


def next_node(node: int) -> int:
    return node % len(NODES) + 1


@pytest.mark.parametrize("client", CLIENTS)
def test_producers_and_consumers_follow_their_leader(
    client: str, new_producer: NewProducer, start_three: StartThree
) -> None:
    """Clients get NOT_LEADER_OR_FOLLOWER from the old leader, which is alive and a follower now, and find the new leader."""
    cluster = start_three("orders:1")
    producer = new_producer(cluster.bootstrap_servers)
    with reader(client, cluster.bootstrap_servers, "orders") as reading:
        sent = []
        for number in range(4):
            more = [f"{number}-{k}" for k in range(5)]
            producer.send("orders", more)
            assert reading.read(len(more)) == more
            sent += more
            cluster.lead(next_node(cluster.leader("orders")), "orders")
        producer.send("orders", ["last"])
        assert reading.read(1) == ["last"]
    assert cluster.heard("NOT_LEADER_OR_FOLLOWER", api="Produce") >= 3
    assert values(cluster.bootstrap_servers, "orders") == [*sent, "last"]


# aiokafka fetches without a leader epoch, so it cannot get FENCED_LEADER_EPOCH.
@pytest.mark.parametrize("client", ["confluent", JAVA])
def test_a_consumer_hears_that_its_leader_is_of_a_later_epoch(
    client: str, new_producer: NewProducer, start_three: StartThree
) -> None:
    """A consumer gets FENCED_LEADER_EPOCH if leadership moves away and back while its Fetch is delayed."""
    cluster = start_three("orders:1")
    producer = new_producer(cluster.bootstrap_servers)
    producer.send("orders", ["before"])
    leader = cluster.leader("orders")
    with reader(client, cluster.bootstrap_servers, "orders") as reading:
        assert reading.read(1) == ["before"]
        with cluster.faults.add(f"Fetch node={leader} nth=1 -> hold") as on_its_way:
            # The Java consumer sends Fetch requests only while it is polled.
            eventually(lambda: reading.sees() or on_its_way.hits)
            cluster.lead(next_node(leader), "orders")
            cluster.lead(leader, "orders")
            on_its_way.release()
        producer.send("orders", ["after"])
        assert reading.read(1) == ["after"]
    assert cluster.heard("FENCED_LEADER_EPOCH", api="Fetch") >= 1


def partition_of(key: str) -> int:
    """Partition of the key in an internal topic with three partitions."""
    return (java_hash(key) & 0x7FFFFFFF) % 3


def move_coordinator(cluster: ThreeNodes, log: str, key: str) -> None:
    partition = partition_of(key)
    cluster.lead(next_node(cluster.leader(log, partition)), log, partition)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_transaction_goes_on_when_its_coordinators_move(
    client: str, new_producer: NewProducer, start_three: StartThree
) -> None:
    """Clients get NOT_COORDINATOR for each kind of request to the old coordinator, and the transaction continues."""
    cluster = start_three("orders:3")
    producer = new_producer(cluster.bootstrap_servers, "mover")
    producer.init()
    for number in range(3):
        producer.begin()
        if number == 0:
            producer.send("orders", [f"{number}"], partition=0)
        move_coordinator(cluster, LOG_OF_TRANSACTIONS, "mover")
        producer.send("orders", [f"{number}"], partition=1)
        producer.send_offsets("readers", {("orders", 0): number + 1})
        move_coordinator(cluster, LOG_OF_GROUPS, "readers")
        producer.send_offsets("readers", {("orders", 1): number + 1})
        move_coordinator(cluster, LOG_OF_TRANSACTIONS, "mover")
        if number == 1:
            producer.abort()
        else:
            producer.commit()

    told = {
        api: cluster.heard("NOT_COORDINATOR", api=api)
        for api in ("EndTxn", "TxnOffsetCommit", "AddPartitionsToTxn")
    }
    assert told["EndTxn"] >= 1, told
    assert told["TxnOffsetCommit"] >= 1, told
    # With transaction version 2 (Java) the partition leaders add partitions.
    assert (told["AddPartitionsToTxn"] >= 1) == (client != "java"), told
    assert values(cluster.bootstrap_servers, "orders") == ["0", "0", "2"]
    assert committed_offset(cluster.bootstrap_servers, "readers", "orders", 0) == 3
    assert committed_offset(cluster.bootstrap_servers, "readers", "orders", 1) == 3
