"""Losses with acks=1, acks=all and unclean elections, and errors of clients while too few replicas are in sync."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.remote import Rule
from tests.scenarios.conftest import NewProducer, StartThree
from tests.support.clients import ConfluentProducer, Refused, eventually, values
from tests.support.deadlines import HANG_S
from tests.support.three_nodes import NODES, ThreeNodes

JAVA = pytest.param("java", marks=pytest.mark.java)
PATIENT_FOLLOWERS = {"replica.lag.time.max.ms": 60_000}
"""Broker settings with which a follower that does not fetch stays in sync for the duration of a test."""
ONE_TRY = {
    "confluent": {"enable.idempotence": False, "acks": "all", "retries": 0},
    "java": {"enable.idempotence": "false", "acks": "all", "retries": 0},
}
SHORT = {
    "confluent": {"request.timeout.ms": 1_000},
    "java": {"request.timeout.ms": 1_000, "delivery.timeout.ms": 2_000},
}
LEADER_ONLY: dict[str, dict[str, Any]] = {
    "confluent": {"enable.idempotence": False, "acks": "1"},
    "aiokafka": {"enable_idempotence": False, "acks": 1},
    "java": {"enable.idempotence": "false", "acks": "1"},
}


@contextlib.contextmanager
def paused(cluster: ThreeNodes, *nodes: int) -> Iterator[list[Rule]]:
    """Context manager: the followers on ``nodes`` do not fetch. Yields the fault rule of each node."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(cluster.faults.add(f"pause node={node}")) for node in nodes]


def followers(cluster: ThreeNodes) -> list[int]:
    return [node for node in NODES if node != cluster.leader("orders")]


def same_bytes_everywhere(cluster: ThreeNodes) -> None:
    contents = {
        b"".join(
            path.read_bytes()
            for path in sorted((cluster.data_dir / f"node-{node}" / "orders-0").glob("*.log"))
        )
        for node in NODES
    }
    assert len(contents) == 1


# ---- losses


@pytest.mark.parametrize("client", ["confluent", "aiokafka", JAVA])
def test_with_acks_1_what_only_the_leader_has_is_lost_with_it(
    client: str, new_producer: NewProducer, start_three: StartThree
) -> None:
    """A record that was acknowledged with acks=1 is lost with its leader, which truncates it after the restart."""
    cluster = start_three("orders:1", settings=PATIENT_FOLLOWERS)
    producer = new_producer(cluster.bootstrap_servers, more=LEADER_ONLY[client])
    assert producer.send("orders", ["everywhere"]) == [(0, 0)]
    eventually(lambda: all(cluster.batches(node, "orders") for node in NODES))
    leader = cluster.leader("orders")
    with paused(cluster, *followers(cluster)):
        assert producer.send("orders", ["on the leader only"]) == [(0, 1)]
        cluster.nodes[leader].kill()
    cluster.await_leader("orders", other_than=leader)
    assert producer.send("orders", ["after it"]) == [(0, 1)]

    cluster.nodes[leader].start()
    cluster.await_in_sync("orders")
    assert values(cluster.bootstrap_servers, "orders") == ["everywhere", "after it"]
    same_bytes_everywhere(cluster)


@pytest.mark.parametrize("client", ["confluent", "aiokafka", JAVA])
def test_with_acks_all_nothing_is_acknowledged_that_could_be_lost(
    client: str, new_producer: NewProducer, start_three: StartThree
) -> None:
    """If the leader dies before the followers have a record, the client gets no acknowledgement and retries."""
    cluster = start_three("orders:1", settings=PATIENT_FOLLOWERS)
    producer = new_producer(cluster.bootstrap_servers)
    producer.send("orders", ["everywhere"])
    leader = cluster.leader("orders")
    places: list[tuple[int, int]] = []
    sending = threading.Thread(target=lambda: places.extend(producer.send("orders", ["on the leader only"])))
    with paused(cluster, *followers(cluster)):
        sending.start()
        eventually(lambda: len(cluster.batches(leader, "orders")) == 2)
        assert values(cluster.bootstrap_servers, "orders", expected=1) == ["everywhere"]
        cluster.nodes[leader].kill()
    sending.join(HANG_S)
    assert places == [(0, 1)]

    cluster.nodes[leader].start()
    cluster.await_in_sync("orders")
    assert values(cluster.bootstrap_servers, "orders") == ["everywhere", "on the leader only"]
    same_bytes_everywhere(cluster)


@pytest.mark.parametrize("unclean", [False, True])
def test_an_unclean_election_loses_what_was_acknowledged_by_all_in_sync(
    unclean: bool, start_three: StartThree
) -> None:
    """If the only in-sync replica dies, an unclean election loses acknowledged records.

    Without unclean elections the partition has no leader until that node is restarted.
    """
    quick = {"replica.lag.time.max.ms": 300, "replica.fetch.wait.max.ms": 300}
    settings = {"min.insync.replicas": 1, **quick}
    cluster = start_three(
        "orders:1", settings={**settings, "unclean.leader.election.enable": str(unclean).lower()}
    )
    producer = ConfluentProducer(cluster.bootstrap_servers)
    producer.send("orders", ["everywhere"])
    leader = cluster.leader("orders")
    with paused(cluster, *followers(cluster)):
        assert producer.send("orders", ["on all in sync"]) == [(0, 1)]
        assert cluster.in_sync("orders") == {leader}
        cluster.nodes[leader].kill()
        if unclean:
            cluster.await_leader("orders", other_than=leader)
        else:
            assert cluster.leader("orders") == -1
    if unclean:
        assert values(cluster.bootstrap_servers, "orders") == ["everywhere"]
    cluster.nodes[leader].start()
    cluster.await_in_sync("orders")
    assert values(cluster.bootstrap_servers, "orders") == ["everywhere"] + ["on all in sync"] * (not unclean)
    same_bytes_everywhere(cluster)


# ---- errors


@pytest.mark.parametrize("client", ["confluent", JAVA])
def test_with_too_few_in_sync_a_client_is_refused_and_nothing_is_written(
    client: str, new_producer: NewProducer, start_three: StartThree
) -> None:
    cluster = start_three("orders:1")
    once = new_producer(cluster.bootstrap_servers, more=ONE_TRY[client])
    once.send("orders", ["first"])
    leader = cluster.leader("orders")
    for node in followers(cluster):
        cluster.nodes[node].kill()
    cluster.await_in_sync("orders", nodes={leader})
    with pytest.raises(Refused) as refused:
        once.send("orders", ["refused"])
    assert is_named(refused.value, "NOT_ENOUGH_REPLICAS")
    assert len(cluster.batches(leader, "orders")) == 1

    # A producer with its client's default settings retries until a second replica is in sync.
    patient = new_producer(cluster.bootstrap_servers)
    sending = threading.Thread(target=lambda: patient.send("orders", ["in the end"]))
    sending.start()
    eventually(lambda: cluster.heard("NOT_ENOUGH_REPLICAS", api="Produce") >= 2)
    cluster.start_all()
    sending.join(HANG_S)
    assert values(cluster.bootstrap_servers, "orders") == ["first", "in the end"]


@pytest.mark.parametrize("client", ["confluent", JAVA])
def test_a_client_with_a_timeout_does_not_learn_that_the_record_is_written(
    client: str, new_producer: NewProducer, start_three: StartThree
) -> None:
    """A follower in the ISR delays the response beyond the timeout. The record is written, and a retry duplicates it."""
    cluster = start_three("orders:1", settings=PATIENT_FOLLOWERS)
    once = new_producer(cluster.bootstrap_servers, more=ONE_TRY[client] | SHORT[client])
    once.send("orders", ["first"])
    with paused(cluster, *followers(cluster)):
        with pytest.raises(Refused) as refused:
            once.send("orders", ["unsure"])
        assert is_named(refused.value, "REQUEST_TIMED_OUT", "TIMEOUT")
        assert values(cluster.bootstrap_servers, "orders", expected=1) == ["first"]
    assert values(cluster.bootstrap_servers, "orders", expected=2) == ["first", "unsure"]
    once.send("orders", ["unsure"])
    assert values(cluster.bootstrap_servers, "orders") == ["first", "unsure", "unsure"]


@pytest.mark.parametrize("client", ["confluent", "aiokafka", JAVA])
def test_an_idempotent_client_that_is_told_of_too_few_replicas_after_the_append_has_it_once(
    client: str, new_producer: NewProducer, start_three: StartThree
) -> None:
    """After NOT_ENOUGH_REPLICAS_AFTER_APPEND the client sends the batch again, and the broker has it once in the log.

    tests/broker/replicas/replication shows how the error occurs.
    """
    cluster = start_three("orders:1")
    producer = new_producer(cluster.bootstrap_servers)
    producer.send("orders", ["first"])
    with cluster.faults.add("Produce times=2 -> error NOT_ENOUGH_REPLICAS_AFTER_APPEND") as told:
        producer.send("orders", ["second"])
        assert told.hits == 2
    producer.send("orders", ["third"])
    assert values(cluster.bootstrap_servers, "orders") == ["first", "second", "third"]


def is_named(refused: Refused, *errors: str) -> bool:
    """Whether the error has one of these names. librdkafka uses Kafka's names, Java those of exceptions."""
    classes = {error.title().replace("_", "") + "Exception" for error in errors}
    return refused.names[0] in classes | set(errors)
