"""Scenario C5. A follower takes over from a dead leader.

The follower has the producer state of the old leader, and so has the old leader when it leads again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.differential.batches import batch
from tests.scenarios.conftest import NewProducer, StartThree
from tests.support.by_hand import now_ms
from tests.support.clients import DEADLINE_S, values
from tests.support.three_nodes import NODES, ThreeNodes

NONE, OUT_OF_ORDER = ErrorCode.none, ErrorCode.out_of_order_sequence_number
PRODUCER_ID = 4_000

# Without kafka-python, which may hang when its leader dies.
CLIENTS_THAT_FAIL_OVER = ["confluent", "aiokafka", pytest.param("java", marks=pytest.mark.java)]


def send(cluster: ThreeNodes, node: int, sequence: int, acks: int = -1) -> tuple[int, int]:
    """Send a batch of one record from an idempotent producer to one node. Returns error code and base offset."""
    records = batch([b"%d" % sequence], ts=now_ms(), pid=PRODUCER_ID, epoch=0, seq=sequence)
    with cluster.ask(node) as ask:
        answer: dict[str, Any] = ask.once(
            "produce",
            9,
            transactional_id=None,
            acks=acks,
            timeout=10_000,
            topic_data=[{"name": "orders", "partition_data": [{"index": 0, "records": records}]}],
        )
    (said,) = answer["responses"][0]["partition_responses"]
    return said["error_code"], said["base_offset"]


def knows_the_last_five(cluster: ThreeNodes, node: int, ends: int) -> None:
    """Check that a leader recognises the last five of the batches with sequences 0 to ``ends`` - 1.

    It must refuse an older batch, and a batch after a gap.
    """
    for sequence in range(ends - 5, ends):
        assert send(cluster, node, sequence) == (NONE, sequence)
    error, _ = send(cluster, node, ends - 6)
    assert error == OUT_OF_ORDER
    error, _ = send(cluster, node, ends + 1)
    assert error == OUT_OF_ORDER


def test_a_follower_that_takes_over_recognises_the_last_five_batches(start_three: StartThree) -> None:
    """A follower that becomes leader recognises the last five batches of a producer.

    The old leader recognises them too when it leads again, with the producer state from the batches that it fetched.
    From its own producer snapshot it has, as in Kafka, only each producer's last batch.
    """
    cluster = start_three("orders:1")
    old = cluster.leader("orders")
    for sequence in range(7):
        assert send(cluster, old, sequence) == (NONE, sequence)

    cluster.nodes[old].kill()
    new = cluster.await_leader("orders", other_than=old)
    knows_the_last_five(cluster, new, 7)
    for sequence in range(7, 12):
        assert send(cluster, new, sequence) == (NONE, sequence)

    cluster.nodes[old].start()
    cluster.await_in_sync("orders")
    assert send(cluster, old, 12)[0] == ErrorCode.not_leader_or_follower
    cluster.lead(old, "orders")
    knows_the_last_five(cluster, old, 12)
    assert values(cluster.bootstrap_servers, "orders") == [str(number) for number in range(12)]


@contextlib.contextmanager
def leader_lost_at_a_produce(cluster: ThreeNodes) -> Iterator[None]:
    """Context manager: the leader dies after the next Produce is on all replicas, without a response.

    It is restarted later.
    """
    lost = cluster.faults.add("Produce nth=1 -> lose-answer silent")
    leader = cluster.leader("orders")

    def kill() -> None:
        lost.wait()
        cluster.nodes[leader].kill()

    killer = threading.Thread(target=kill)
    killer.start()
    yield
    killer.join(DEADLINE_S)
    assert cluster.leader("orders") not in (leader, -1)
    cluster.start_all()
    cluster.await_in_sync("orders")


@pytest.mark.parametrize("client", CLIENTS_THAT_FAIL_OVER)
def test_an_idempotent_producer_goes_on_without_a_duplicate(
    client: str, new_producer: NewProducer, start_three: StartThree
) -> None:
    """The leader dies after all replicas have the batch, before the response. The client sends it to the new leader."""
    cluster = start_three("orders:1")
    producer = new_producer(cluster.bootstrap_servers)
    for number in range(9):
        if number in (4, 6):
            with leader_lost_at_a_produce(cluster):
                producer.send("orders", [str(number)])
        else:
            producer.send("orders", [str(number)])

    assert values(cluster.bootstrap_servers, "orders") == [str(number) for number in range(9)]
    for node in NODES:
        assert [each.base_sequence for each in cluster.batches(node, "orders")] == list(range(9))
