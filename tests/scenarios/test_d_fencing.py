"""Scenarios D: zombie producers, consumers behind open transactions, coordinators that die before the markers."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from kio.schema.errors import ErrorCode

from tests.scenarios.conftest import NewProducer
from tests.support.broker import Broker, StartBroker
from tests.support.clients import (
    COMPLETE_COMMIT,
    PREPARE_COMMIT,
    ConfluentProducer,
    Refused,
    TransactionalProducer,
    batches_of,
    committed_offset,
    eventually,
    statuses,
    values,
)
from tests.support.deadlines import HANG_S
from tests.support.readers import reader
from tests.support.relay import Relay

APIS = ("produce", "add_partitions_to_txn", "add_offsets_to_txn", "txn_offset_commit", "end_txn")
FENCED = {ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch}
# Error name of each client for a fenced producer.
WORDS = {
    "confluent": {"_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"},
    "java": {"ProducerFencedException", "InvalidProducerEpochException"},
    "kafka-python": {"ProducerFencedError", "InvalidProducerEpochError"},
    "aiokafka": {"ProducerFenced", "InvalidProducerEpoch"},
}

ZOMBIE_ACTS: dict[str, Callable[[TransactionalProducer], object]] = {
    "sends": lambda zombie: zombie.send("orders", ["from the grave"]),
    "sends to one more partition": lambda zombie: zombie.send("orders", ["from the grave"], partition=1),
    "commits": lambda zombie: zombie.commit(),
    "aborts": lambda zombie: zombie.abort(),
    "commits offsets": lambda zombie: zombie.send_offsets("readers", {("input", 0): 9}),
}


@pytest.mark.feature("fencing")
@pytest.mark.parametrize("act", ZOMBIE_ACTS)
def test_a_zombie_is_refused_whatever_it_does(
    client: str, act: str, new_producer: NewProducer, start_relayed: Callable[..., Broker], relay: Relay
):
    """Scenario D1: a zombie gets the error that its client turns into the exception for fenced producers."""
    start_relayed(topics=["orders:2", "input:1"])
    zombie = new_producer(relay.bootstrap, "orders")
    zombie.init()
    zombie.begin()
    zombie.send("orders", ["left open"])
    heir = new_producer(relay.bootstrap, "orders")
    heir.init()
    heir.begin()
    heir.send("orders", ["from the heir"])

    asked_for_ids = len(relay.answered("init_producer_id"))
    with pytest.raises(Refused) as refused:
        ZOMBIE_ACTS[act](zombie)
    assert relay.errors(*APIS) & FENCED
    assert set(refused.value.names) & WORDS[client], refused.value

    if client == "kafka-python" and act == "sends":
        # After the error of the partition leader the zombie requests a newer epoch by itself (KIP-360). That aborts the open
        # transaction of its transactional id, in Kafka too, so the newer producer has to begin again. The request comes from
        # the client's own thread, after the call has failed.
        eventually(lambda: len(relay.answered("init_producer_id")) > asked_for_ids, "the zombie's next epoch")
        with pytest.raises(Refused):
            heir.commit()
        heir = new_producer(relay.bootstrap, "orders")
        heir.init()
        heir.begin()
        heir.send("orders", ["from the heir"])
    heir.commit()
    assert values(relay.bootstrap, "orders") == ["from the heir"]
    assert committed_offset(relay.bootstrap, "readers", "input") == -1


def test_an_open_transaction_holds_back_all_that_comes_behind_it(client: str, start_broker: StartBroker):
    """Scenario D2: read_committed consumers get nothing beyond the last stable offset until the transaction ends.

    Then they get all records, in order.
    """
    broker = start_broker(topics=["orders:1"])
    slow = ConfluentProducer(broker.bootstrap, transactional_id="slow")
    quick = ConfluentProducer(broker.bootstrap, transactional_id="quick")
    for producer in (slow, quick):
        producer.init()
        producer.begin()
    slow.send("orders", ["slow 1"])
    quick.send("orders", ["quick"])
    slow.send("orders", ["slow 2"])
    quick.commit()

    with reader(client, broker.bootstrap, "orders") as reading:
        assert reading.sees() == []
        slow.commit()
        assert reading.read(3) == ["slow 1", "quick", "slow 2"]


def test_the_timeout_sets_free_what_an_open_transaction_held_back(client: str, start_broker: StartBroker):
    """Scenario D2: consumers get the records beyond an open transaction once its timeout has aborted it."""
    broker = start_broker(
        topics=["orders:1"],
        settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 50},
    )
    lost = ConfluentProducer(broker.bootstrap, transactional_id="lost", transaction_timeout_ms=1000)
    lost.init()
    lost.begin()
    lost.send("orders", ["never to be seen"])
    ConfluentProducer(broker.bootstrap).send("orders", ["behind it"])
    with reader(client, broker.bootstrap, "orders") as reading:
        assert reading.read(1) == ["behind it"]


@pytest.mark.parametrize("order", ["markers-first", "kafka"])
def test_a_coordinator_that_dies_before_any_marker_completes_the_transaction_when_it_is_back(
    client: str, order: str, new_producer: NewProducer, start_broker: StartBroker
):
    """Scenario D3: a coordinator that dies between PrepareCommit and the first marker commits after its restart.

    With the setting odradek.commit.order=kafka the client has the response before the coordinator dies.
    """
    broker = start_broker(
        topics=["orders:2", "input:1"],
        settings={"odradek.commit.order": order, "odradek.commit.marker.delay.ms": 300},
        environment={"ODRADEK_CRASH_POINTS": "txn.marker.before"},
    )
    producer = new_producer(broker.bootstrap, "orders")
    producer.init()
    producer.begin()
    producer.send("orders", ["a", "b"], partition=0)
    producer.send("orders", ["c"], partition=1)
    producer.send_offsets("readers", {("input", 0): 7})
    if order == "kafka":
        producer.commit()
        assert broker.wait() == -signal.SIGKILL
        broker.restart(environment={})
    else:
        commit_while_the_broker_comes_back(producer, broker)

    eventually(lambda: statuses(broker.bootstrap, "orders")[-1] == COMPLETE_COMMIT, "completed")
    assert statuses(broker.bootstrap, "orders").count(PREPARE_COMMIT) == 1
    for partition in (0, 1):
        markers = [each for each in batches_of(broker.data_dir, "orders", partition) if each.is_control]
        assert [each.marker for each in markers] == ["COMMIT"]
    assert values(broker.bootstrap, "orders") == ["a", "b", "c"]
    assert committed_offset(broker.bootstrap, "readers", "input") == 7

    producer.begin()
    producer.send("orders", ["d"], partition=1)
    producer.commit()
    assert values(broker.bootstrap, "orders", expected=4) == ["a", "b", "c", "d"]


def commit_while_the_broker_comes_back(producer: TransactionalProducer, broker: Broker) -> None:
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(producer.commit)
        assert broker.wait() == -signal.SIGKILL
        broker.restart(environment={})
        commit.result(HANG_S)
