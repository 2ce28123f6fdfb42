"""The first batch of a new topic is refused and the second one arrives: Java's producer with KAFKA-15591."""

from __future__ import annotations

import pytest

import odradek
from tests.support.clients import JavaProducer, values

pytestmark = [pytest.mark.java, pytest.mark.foreign, pytest.mark.client("Java")]


@pytest.mark.feature("idempotence")
def test_kafka_4_5_makes_the_producer_send_both_batches_in_order() -> None:
    with odradek.Broker(topics=["orders:1"], preview=["KAFKA-15591"]) as broker:
        broker.faults.add("Produce topic=orders nth=1 -> error NOT_LEADER_OR_FOLLOWER")
        producer = JavaProducer(broker.bootstrap_servers, more={"batch.size": 1})
        assert producer.send("orders", ["first", "second"]) == [(0, 0), (0, 1)]
        producer.close()
        assert values(broker.bootstrap_servers, "orders") == ["first", "second"]
