"""Scenarios D4 and D5 with real clients: fault rules delay requests of clients, and requests between nodes."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.scenarios.levels import kafka_transactions
from tests.support.by_hand import ask
from tests.support.clients import CLIENTS, ConfluentProducer, Refused, batches_of, eventually, values
from tests.support.in_process import InProcess
from tests.support.readers import reader

SPEAKS_OLD, SPEAKS_NEW = "confluent", "java"
"""librdkafka has only the old transaction protocol. Java's client uses the new one if the broker's level is 2."""


def address(broker: InProcess) -> tuple[str, int]:
    host, port = broker.bootstrap.split(":")
    return host, int(port)


def leader_of(broker: InProcess, topic: str) -> int:
    answer = ask(*address(broker), "metadata", 9, {"topics": [{"name": topic}]})
    return int(answer["topics"][0]["partitions"][0]["leader_id"])


def coordinated_elsewhere(broker: InProcess, topic: str) -> str:
    """A transactional id whose coordinator is not the leader of this topic, so that markers are sent between nodes."""
    where, leader = address(broker), leader_of(broker, topic)

    def coordinator(name: str) -> int:
        answer = ask(*where, "find_coordinator", 3, {"key": name, "key_type": 1})
        return -1 if answer["error_code"] else int(answer["node_id"])

    eventually(lambda: coordinator("any") > 0, "the transaction log")
    return next(name for name in map("orders-{}".format, range(100)) if coordinator(name) != leader)


@pytest.mark.parametrize(
    ("level", "client", "anomaly"),
    [
        pytest.param("0", SPEAKS_OLD, True, marks=pytest.mark.more),
        ("1", SPEAKS_OLD, True),
        # A client with the old protocol is not protected by the broker's level.
        ("2", SPEAKS_OLD, True),
        pytest.param("2", SPEAKS_NEW, False, marks=pytest.mark.java),
    ],
)
def test_a_marker_that_lingers_between_two_nodes(level: str, client: str, anomaly: bool, tmp_path: Path):
    """Scenario D4: the coordinator gets no response and sends another marker.

    The first marker arrives in the next transaction.
    """
    level_of = ("--feature", f"transaction.version={level}")
    nodes = ("--nodes", "3", "--topic", "orders:1")
    with InProcess(tmp_path, *nodes, *level_of) as broker, ExitStack() as leaving:
        producer = CLIENTS[client](broker.bootstrap, transactional_id=coordinated_elsewhere(broker, "orders"))
        leaving.callback(producer.close)
        producer.init()
        lingering = broker.stage("WriteTxnMarkers topic=orders nth=1 -> detach")
        producer.begin()
        producer.send("orders", ["first"])
        producer.commit()
        broker.reached(lingering)
        with reader("confluent", broker.bootstrap, "orders") as reading:
            assert reading.read(1) == ["first"]

            producer.begin()
            producer.send("orders", ["half of the second"])
            assert broker.release(lingering) == 1
            seen = reading.read(1) if anomaly else reading.sees()
            assert seen == (["half of the second"] if anomaly else [])
            producer.abort()
            ConfluentProducer(broker.bootstrap).send("orders", ["behind it"])
            assert reading.read(1) == ["behind it"]
        data_dir = broker.cluster.nodes[leader_of(broker, "orders")].data_dir
        markers = [each.marker for each in batches_of(data_dir, "orders") if each.is_control]
        assert markers == (["COMMIT", "COMMIT", "ABORT"] if anomaly else ["COMMIT", "ABORT"])


GIVES_UP_SOON = {
    SPEAKS_OLD: {"delivery.timeout.ms": 1_000},
    SPEAKS_NEW: {"delivery.timeout.ms": 1_500, "request.timeout.ms": 1_000},
}


@pytest.mark.parametrize(
    ("level", "client", "verified", "hangs"),
    [
        pytest.param("0", SPEAKS_OLD, False, True, marks=pytest.mark.more),
        ("1", SPEAKS_OLD, False, True),
        ("2", SPEAKS_OLD, False, True),
        ("1", SPEAKS_OLD, True, False),
        pytest.param("1", SPEAKS_NEW, False, True, marks=[pytest.mark.java, pytest.mark.more]),
        pytest.param("2", SPEAKS_NEW, False, False, marks=pytest.mark.java),
    ],
)
def test_a_batch_that_lingers_until_its_producer_has_given_it_up(
    level: str, client: str, verified: bool, hangs: bool, tmp_path: Path
):
    """Scenario D5: the request times out, the producer aborts, then the batch arrives.

    Without verification the batch begins a hanging transaction.
    """
    arguments = ("--topic", "orders:1", "--feature", f"transaction.version={level}")
    settings = {"transaction.partition.verification.enable": str(verified).lower()}
    with InProcess(tmp_path, *arguments, settings=settings) as broker, ExitStack() as leaving:
        producer = CLIENTS[client](broker.bootstrap, transactional_id="orders", more=GIVES_UP_SOON[client])
        leaving.callback(producer.close)
        producer.init()
        producer.begin()
        producer.send("orders", ["in time"])
        lingering = broker.stage("Produce transactional_id=orders -> detach")
        with pytest.raises(Refused):
            producer.send("orders", ["too late"])
        producer.abort()
        assert broker.release(lingering, 1) == 1

        ConfluentProducer(broker.bootstrap).send("orders", ["behind it"])
        with reader("confluent", broker.bootstrap, "orders") as reading:
            seen = reading.sees() if hangs else reading.read(1)
        assert seen == ([] if hangs else ["behind it"])
        everything = ["in time", "too late", "behind it"] if hangs else ["in time", "behind it"]
        assert values(broker.bootstrap, "orders", "read_uncommitted") == everything


@pytest.mark.java
def test_what_hangs_on_three_nodes_is_found_and_repaired(tmp_path: Path):
    """Scenario D6: kafka-transactions.sh finds a hanging transaction whose coordinator is not the leader.

    Its abort is sent to the leader, after which consumers get the later records.
    """
    arguments = ("--nodes", "3", "--topic", "orders:1", "--feature", "transaction.version=1")
    settings = {"transaction.partition.verification.enable": "false"}
    with InProcess(tmp_path, *arguments, settings=settings) as broker, ExitStack() as leaving:
        name = coordinated_elsewhere(broker, "orders")
        producer = CLIENTS[SPEAKS_OLD](
            broker.bootstrap, transactional_id=name, more=GIVES_UP_SOON[SPEAKS_OLD]
        )
        leaving.callback(producer.close)
        producer.init()
        producer.begin()
        producer.send("orders", ["in time"])
        lingering = broker.stage(f"Produce transactional_id={name} -> detach")
        with pytest.raises(Refused):
            producer.send("orders", ["too late"])
        producer.abort()
        assert broker.release(lingering, 1) == 1
        ConfluentProducer(broker.bootstrap).send("orders", ["behind it"])

        # The records are new, so with a limit of 0 any open transaction that its coordinator does not have is found.
        find = ("find-hanging", "--topic", "orders", "--max-transaction-timeout", 0)
        (hanging,) = kafka_transactions(broker.bootstrap, *find)
        (listed,) = kafka_transactions(broker.bootstrap, "list")
        assert (listed["TransactionalId"], listed["ProducerId"]) == (name, hanging["ProducerId"])
        assert int(listed["Coordinator"]) != leader_of(broker, "orders")
        where = ("--topic", "orders", "--partition", 0, "--start-offset", hanging["StartOffset"])
        kafka_transactions(broker.bootstrap, "abort", *where)
        assert kafka_transactions(broker.bootstrap, *find) == []
        assert values(broker.bootstrap, "orders") == ["behind it"]
