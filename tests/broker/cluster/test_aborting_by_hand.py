"""How an operator aborts a hanging transaction: by WriteTxnMarkers with the values from the leader's DescribeProducers
response.

Kafka's ``PlaintextAdminIntegrationTest.testAbortTransaction`` aborts the producer with the lowest id. In that test this is
the transactional producer, as it was initialized first. DescribeProducers returns the coordinator epoch of the producer's
last marker.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.differential.batches import batch
from tests.support.by_hand import now_ms
from tests.support.content import Asked
from tests.support.in_process import InProcess

TOPIC = "t"
NO_TRANSACTION = -1
CONCURRENT_TRANSACTIONS = 51
FIRST, LAST = 1, 3


class Cluster:
    """Three nodes, with a connection to each node by its id."""

    def __init__(self, broker: InProcess) -> None:
        self.broker = broker
        self._asked: dict[int, Asked] = {}

    def at(self, node: int) -> Asked:
        if node not in self._asked:
            port = self.broker.cluster.nodes[node].listeners[0].port
            self._asked[node] = Asked("127.0.0.1", port)
        return self._asked[node]

    def close(self) -> None:
        for each in self._asked.values():
            each.__exit__()

    def leader(self) -> int:
        topic = self.broker.cluster.metadata.topic(TOPIC)
        assert topic is not None
        return topic.partitions[0].leader

    def id_coordinated_by(self, node: int) -> str:
        names = [f"tx-{number}" for number in range(100)]
        answer = self.at(FIRST)("find_coordinator", 4, key_type=1, coordinator_keys=names)
        return next(str(each["key"]) for each in answer["coordinators"] if each["node_id"] == node)

    def init(self, node: int, transactional_id: str | None) -> tuple[int, int]:
        answer = self.at(node)(
            "init_producer_id", 4, transactional_id=transactional_id, transaction_timeout=60_000
        )
        assert answer["error_code"] == 0
        return answer["producer_id"], answer["producer_epoch"]

    def send(self, who: tuple[int, int], transactional_id: str | None = None, *, once: bool = False) -> int:
        """Send the first batch of the producer ``who``, a pair of producer id and epoch, to the leader. Returns
        the error code. Retries on CONCURRENT_TRANSACTIONS, unless ``once`` is true."""
        data = batch([b"v"], ts=now_ms(), pid=who[0], epoch=who[1], seq=0, txn=transactional_id is not None)
        row = {"name": TOPIC, "partition_data": [{"index": 0, "records": data}]}
        leader = self.at(self.leader())
        ask = leader.once if once else leader.any
        answer = ask(
            "produce", 12, transactional_id=transactional_id, acks=-1, timeout=10_000, topic_data=[row]
        )
        return answer["responses"][0]["partition_responses"][0]["error_code"]

    def commit(self, node: int, transactional_id: str, who: tuple[int, int]) -> tuple[int, int]:
        answer = self.at(node)(
            "end_txn",
            5,
            transactional_id=transactional_id,
            producer_id=who[0],
            producer_epoch=who[1],
            committed=True,
        )
        assert answer["error_code"] == 0
        return answer["producer_id"], answer["producer_epoch"]

    def producers(self) -> list[dict[str, Any]]:
        rows = [{"name": TOPIC, "partition_indexes": [0]}]
        [topic] = self.at(self.leader())("describe_producers", 0, topics=rows)["topics"]
        return sorted(topic["partitions"][0]["active_producers"], key=lambda each: each["producer_id"])

    def abort(self, producer: dict[str, Any]) -> int:
        marker = {
            "producer_id": producer["producer_id"],
            "producer_epoch": producer["producer_epoch"],
            "coordinator_epoch": producer["coordinator_epoch"],
            "transaction_result": False,
            "topics": [{"name": TOPIC, "partition_indexes": [0]}],
        }
        answer = self.at(self.leader())("write_txn_markers", 1, markers=[marker])
        return answer["markers"][0]["topics"][0]["partitions"][0]["error_code"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with InProcess(tmp_path, "--nodes", "3", "--topic", f"{TOPIC}:1") as broker:
        cluster = Cluster(broker)
        yield cluster
        cluster.close()


@pytest.mark.parametrize("moves", [False, True])
def test_the_producer_that_came_first_is_aborted_by_what_is_described(cluster: Cluster, moves: bool) -> None:
    """An operator aborts a hanging transaction with the values that DescribeProducers returns for its producer,
    whichever nodes allocated the producer ids, and also if the leader has changed since the last marker."""
    name = cluster.id_coordinated_by(LAST)
    first = cluster.init(LAST, name)
    assert cluster.send(first, name) == 0
    second = cluster.commit(LAST, name, first)
    if moves:
        other = next(node for node in (1, 2, 3) if node != cluster.leader())
        cluster.broker.run(cluster.broker.cluster.metadata.replication_control.move_leader(TOPIC, 0, other))
        assert cluster.leader() == other
    assert cluster.send(second, name) == 0
    assert cluster.send(cluster.init(FIRST, None)) == 0
    hanging, idempotent = cluster.producers()
    assert (hanging["producer_id"], hanging["producer_epoch"]) == second
    assert hanging["current_txn_start_offset"] != NO_TRANSACTION
    assert hanging["coordinator_epoch"] >= 0
    assert idempotent["coordinator_epoch"] == -1
    assert cluster.abort(hanging) == 0
    assert [each["current_txn_start_offset"] for each in cluster.producers()] == [NO_TRANSACTION] * 2


def test_no_transaction_begins_at_a_replica_without_the_last_marker(cluster: Cluster) -> None:
    """A producer gets CONCURRENT_TRANSACTIONS for its next batch until the leader has the marker of its last
    transaction. Only then does DescribeProducers return a coordinator epoch, which an abort needs."""
    name = cluster.id_coordinated_by(LAST)
    first = cluster.init(LAST, name)
    assert cluster.send(first, name) == 0
    held = cluster.broker.stage("txn.marker -> hold")
    second = cluster.commit(LAST, name, first)
    [producer] = cluster.producers()
    assert (producer["producer_epoch"], producer["coordinator_epoch"]) == (first[1], -1)
    assert cluster.send(second, name, once=True) == CONCURRENT_TRANSACTIONS
    cluster.broker.release(held)
    assert cluster.send(second, name) == 0
    [producer] = cluster.producers()
    assert (producer["producer_epoch"], producer["coordinator_epoch"] >= 0) == (second[1], True)
