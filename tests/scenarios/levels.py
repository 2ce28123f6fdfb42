"""Brokers at a level of `transaction.version`, producers that use the matching protocol, and `kafka-transactions.sh`."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from tests.support.broker import Broker, StartBroker
from tests.support.by_hand import ProducerByHand
from tests.support.javaprog import java_clients

NONE = ErrorCode.none
TRANSACTIONS_TOOL = "org.apache.kafka.tools.TransactionsCommand"
LEVELS = ("0", "1", "2")


def at_level(start_broker: StartBroker, level: str, **settings: Any) -> Broker:
    """Start a broker with a topic `orders` of two partitions.

    In the names of settings a double underscore means a dot.
    """
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return start_broker("--feature", f"transaction.version={level}", topics=["orders:2"], settings=named)


def by_hand(broker: Broker, transactional_id: str, level: str, **options: Any) -> ProducerByHand:
    """A raw producer that uses the protocol of this level, like a client that has read the level from ApiVersions."""
    return ProducerByHand(broker.host, broker.port, transactional_id, new=level == "2", **options).init()


def leave_a_batch_behind(
    broker: Broker, level: str, *, at_ms: int | None = None
) -> tuple[ProducerByHand, int]:
    """Send two batches of a transaction, one of which arrives after the abort.

    Returns the producer, and the error code of the batch that arrives late.
    """
    producer = by_hand(broker, "orders", level)
    assert producer.send("orders", ["in time"], at_ms=at_ms) == NONE
    late = producer.sending("orders", ["too late"], at_ms=at_ms)
    assert producer.end(committed=False) == NONE
    return producer, late.arrive()


def kafka_transactions(bootstrap: str, *arguments: object) -> list[dict[str, str]]:
    """Run kafka-transactions.sh and return the rows of its table, by column name."""
    ran = java_clients().tool(TRANSACTIONS_TOOL, "--bootstrap-server", bootstrap, *arguments)
    assert ran.status == 0, f"{arguments}\n{ran.out}\n{ran.err}"
    header, *rows = [line.rstrip("\t ").split("\t") for line in ran.out.splitlines() if line.strip()] or [[]]
    names = [name.strip() for name in header]
    return [dict(zip(names, (cell.strip() for cell in row), strict=True)) for row in rows]
