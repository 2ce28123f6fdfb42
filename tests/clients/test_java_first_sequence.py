"""The first batch of a new topic is refused and the second one arrives: Java's producer before and with KAFKA-15591."""

from __future__ import annotations

import pytest

import odradek
from tests.support.clients import JavaProducer, Refused, values

pytestmark = [pytest.mark.java, pytest.mark.foreign, pytest.mark.client("Java")]

ONE_RECORD_A_BATCH = {"batch.size": 1, "request.timeout.ms": 2_000, "delivery.timeout.ms": 3_000}


def test_up_to_kafka_4_4_the_first_record_is_lost() -> None:
    """The retry of the first batch is out of order until its delivery times out; librdkafka reports it as delivered."""
    with odradek.Broker(topics=["orders:1"]) as broker:
        producer = first_batch_refused(broker)
        with pytest.raises(Refused, match="TimeoutException"):
            producer.send("orders", ["first", "second"])
        producer.close()
        assert values(broker.bootstrap_servers, "orders") == ["second"]


@pytest.mark.feature("idempotence")
def test_kafka_4_5_makes_the_producer_send_both_batches_in_order() -> None:
    with odradek.Broker(topics=["orders:1"], preview=["KAFKA-15591"]) as broker:
        producer = first_batch_refused(broker)
        assert producer.send("orders", ["first", "second"]) == [(0, 0), (0, 1)]
        producer.close()
        assert values(broker.bootstrap_servers, "orders") == ["first", "second"]


def first_batch_refused(broker: odradek.Broker) -> JavaProducer:
    """An idempotent producer, whose first batch the broker refuses as if it did not know the new topic yet."""
    broker.faults.add("Produce topic=orders nth=1 -> error NOT_LEADER_OR_FOLLOWER")
    return JavaProducer(broker.bootstrap_servers, more=ONE_RECORD_A_BATCH)
