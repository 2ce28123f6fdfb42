"""Brokers at a level of `transaction.version`, and clients that speak as it has them speak."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from tests.support.broker import Broker, StartBroker
from tests.support.by_hand import ProducerByHand

NONE = ErrorCode.none
LEVELS = ("0", "1", "2")


def at_level(start_broker: StartBroker, level: str, **settings: object) -> Broker:
    """With a topic `orders` of two partitions; dots in the names of settings are written as double underscores."""
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return start_broker("--feature", f"transaction.version={level}", topics=["orders:2"], settings=named)


def by_hand(broker: Broker, transactional_id: str, level: str, **options: Any) -> ProducerByHand:
    """As a client speaks that has seen the level in ApiVersions."""
    return ProducerByHand(broker.host, broker.port, transactional_id, new=level == "2", **options).init()


def leave_a_batch_behind(
    broker: Broker, level: str, *, at_ms: int | None = None
) -> tuple[ProducerByHand, int]:
    """A transaction of two batches, of which one arrives when the transaction has been aborted; its error code."""
    producer = by_hand(broker, "orders", level)
    assert producer.send("orders", ["in time"], at_ms=at_ms) == NONE
    late = producer.sending("orders", ["too late"], at_ms=at_ms)
    assert producer.end(committed=False) == NONE
    return producer, late.arrive()
