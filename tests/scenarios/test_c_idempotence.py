"""Scenarios C, idempotence: batches that arrive twice, late, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from kio.schema.errors import ErrorCode

from tests.scenarios.conftest import NewProducer
from tests.support.broker import Broker, StartBroker
from tests.support.clients import batches_of, values
from tests.support.deadlines import HANG_S
from tests.support.relay import Exchange, Relay

RETRIES = {
    "confluent": {"socket.timeout.ms": 10_000},
    "java": {"request.timeout.ms": 5_000, "delivery.timeout.ms": 20_000},
    "kafka-python": {"request_timeout_ms": 5_000},
    "aiokafka": {"request_timeout_ms": 5_000},
}
ONE_RECORD_A_BATCH = {
    "confluent": {"batch.num.messages": 1, "socket.timeout.ms": 1_000, "request.timeout.ms": 1_000},
    "java": {"batch.size": 1, "request.timeout.ms": 1_000, "delivery.timeout.ms": 20_000},
}


def place(answer: dict) -> tuple[int, int]:
    """Error code and base offset in the response of a Produce for one partition."""
    (topic,) = answer["responses"]
    (partition,) = topic["partition_responses"]
    return partition["error_code"], partition["base_offset"]


@pytest.mark.feature("idempotence")
def test_a_batch_whose_answer_is_lost_is_written_once(
    client: str, new_producer: NewProducer, start_relayed: Callable[..., Broker], relay: Relay
):
    """Scenario C1: the client sends the batch again, and gets the offset of the batch that was written first."""
    broker = start_relayed(topics=["orders:1"])
    producer = new_producer(relay.bootstrap, more=RETRIES[client])
    assert producer.send("orders", ["one"]) == [(0, 0)]
    loss = relay.lose("answer", "produce")
    assert producer.send("orders", ["two"]) == [(0, 1)]
    assert producer.send("orders", ["three"]) == [(0, 2)]

    assert loss.happened.is_set()
    assert loss.exchange is not None
    assert place(loss.exchange.answer) == (0, 1)
    assert len(relay.seen("produce")) == 4
    assert values(relay.bootstrap, "orders") == ["one", "two", "three"]
    assert [batch.base_sequence for batch in batches_of(broker.data_dir, "orders")] == [0, 1, 2]


def test_a_batch_whose_answer_is_lost_in_a_transaction_is_written_once(
    client: str, new_producer: NewProducer, start_relayed: Callable[..., Broker], relay: Relay
):
    """Scenario C1: the responses to a batch and to EndTxn are lost, and the transaction is committed once."""
    broker = start_relayed(topics=["orders:1"])
    producer = new_producer(relay.bootstrap, "orders", more=RETRIES[client])
    producer.init()
    producer.begin()
    lost = [relay.lose("answer", "produce"), relay.lose("answer", "end_txn")]
    producer.send("orders", ["one"])
    producer.commit()

    assert all(loss.happened.is_set() for loss in lost)
    assert values(relay.bootstrap, "orders") == ["one"]
    data, marker = batches_of(broker.data_dir, "orders")
    assert (data.is_control, marker.is_control) == (False, True)


def seven_batches(client: str, new_producer: NewProducer, relay: Relay) -> list[Exchange]:
    producer = new_producer(relay.bootstrap, more=RETRIES[client])
    for number in range(7):
        producer.send("orders", [str(number)])
    sent = relay.seen("produce")
    assert [place(each.answer) for each in sent] == [(0, number) for number in range(7)]
    return sent


def test_the_last_five_batches_are_recognised_and_no_older_one(
    client: str, new_producer: NewProducer, start_relayed: Callable[..., Broker], relay: Relay
):
    """Scenario C2: seven Produce requests of a producer are sent again, byte for byte.

    The last five get the offsets of the first time, the two older ones an error.
    """
    broker = start_relayed(topics=["orders:1"])
    sent = seven_batches(client, new_producer, relay)
    for number in (6, 2, 5, 3, 4):
        assert place(relay.repeat(sent[number])) == (0, number)
    for number in (0, 1):
        assert place(relay.repeat(sent[number])) == (ErrorCode.out_of_order_sequence_number, -1)
    assert len(batches_of(broker.data_dir, "orders")) == 7


@pytest.mark.parametrize("client", ["confluent", pytest.param("java", marks=pytest.mark.java)], indirect=True)
def test_a_skipped_sequence_is_refused_and_nothing_of_it_written(
    client: str, new_producer: NewProducer, start_relayed: Callable[..., Broker], relay: Relay
):
    """Scenario C3: one of several requests in flight is lost, and the broker refuses the next ones.

    Retries write each batch once, in order. The Python clients have only one request in flight and cannot skip a
    sequence.
    """
    broker = start_relayed(topics=["orders:1"])
    producer = new_producer(relay.bootstrap, more=ONE_RECORD_A_BATCH[client])
    producer.send("orders", ["a"])
    loss = relay.lose("request", "produce", nth=2, close=False)
    # The values are so long that no two share a batch: the client rounds up the smallest batch size.
    rest = [letter * 500 for letter in "bcde"]
    producer.send("orders", rest)

    assert loss.happened.is_set()
    assert ErrorCode.out_of_order_sequence_number in relay.errors("produce")
    assert values(relay.bootstrap, "orders") == ["a", *rest]
    sequences = [batch.base_sequence for batch in batches_of(broker.data_dir, "orders")]
    assert sequences == [0, 1, 2, 3, 4]


def test_after_kill_9_the_last_five_batches_are_recognised_and_after_a_clean_end_the_last_one(
    client: str, new_producer: NewProducer, start_relayed: Callable[..., Broker], relay: Relay
):
    """Scenario C6: after kill -9 the producer state is rebuilt from the log, with a producer's last five batches.

    After a clean shutdown it is loaded from the snapshot, with the last batch only.
    """
    broker = start_relayed(topics=["orders:1"])
    sent = seven_batches(client, new_producer, relay)
    for end, known in ((broker.kill, (6, 2, 5, 3, 4)), (broker.terminate, (6,))):
        end()
        broker.start()
        for number in known:
            assert place(relay.repeat(sent[number])) == (0, number)
        assert place(relay.repeat(sent[min(known) - 1])) == (ErrorCode.out_of_order_sequence_number, -1)
    assert len(batches_of(broker.data_dir, "orders")) == 7


def test_a_producer_goes_on_after_kill_9_without_a_duplicate(
    client: str, new_producer: NewProducer, start_relayed: Callable[..., Broker], relay: Relay
):
    """Scenario C6: the broker dies before its response; the client sends the batch again to the restarted broker."""
    broker = start_relayed(topics=["orders:1"])
    producer = new_producer(relay.bootstrap, more=RETRIES[client])
    producer.send("orders", ["one"])
    loss = relay.lose("answer", "produce")

    def die() -> None:
        loss.happened.wait(HANG_S)
        broker.kill()
        broker.start()

    death = threading.Thread(target=die)
    death.start()
    assert producer.send("orders", ["two"]) == [(0, 1)]
    death.join()
    assert producer.send("orders", ["three"]) == [(0, 2)]
    assert values(relay.bootstrap, "orders") == ["one", "two", "three"]


def test_a_new_producer_without_a_transactional_id_gets_a_new_producer_id(
    client: str, new_producer: NewProducer, start_broker: StartBroker
):
    """Scenario C7: each new producer without a transactional id gets a new producer id.

    So a record that an earlier producer has sent is written again.
    """
    broker = start_broker(topics=["orders:1"])
    for _ in range(2):
        new_producer(broker.bootstrap).send("orders", ["again"])
    broker.restart()
    new_producer(broker.bootstrap).send("orders", ["again"])

    batches = batches_of(broker.data_dir, "orders")
    ids = [batch.producer_id for batch in batches]
    assert ids == sorted(set(ids))
    assert [(batch.producer_epoch, batch.base_sequence) for batch in batches] == [(0, 0)] * 3
    assert values(broker.bootstrap, "orders") == ["again"] * 3
