"""Scenario D6. How an operator handles a hanging transaction, with the unmodified kafka-transactions.sh."""

from __future__ import annotations

import pytest

from tests.scenarios.levels import NONE, at_level, by_hand, kafka_transactions, leave_a_batch_behind
from tests.support.broker import StartBroker
from tests.support.by_hand import now_ms
from tests.support.clients import ConfluentProducer, values
from tests.support.readers import reader

pytestmark = pytest.mark.java

LONG_AGO_MS = 20 * 60_000
"""Age of a hanging transaction's records, above the default maximum transaction timeout of 15 minutes."""


def test_an_operator_finds_a_hanging_transaction_and_aborts_it(start_broker: StartBroker):
    """Scenario D6: kafka-transactions.sh finds and aborts a hanging transaction, and the consumer continues."""
    broker = at_level(start_broker, "1", transaction__partition__verification__enable="false")
    long_ago_ms = now_ms() - LONG_AGO_MS
    producer, error = leave_a_batch_behind(broker, "1", at_ms=long_ago_ms)
    assert error == NONE
    healthy = by_hand(broker, "healthy", "1")
    assert healthy.send("orders", ["as old"], partition=1, at_ms=long_ago_ms) == NONE
    ConfluentProducer(broker.bootstrap).send("orders", ["behind it"])

    with reader("confluent", broker.bootstrap, "orders") as reading:
        assert reading.sees() == []

        # Another transaction has been idle as long; its coordinator has it, so it is not in the list.
        (hanging,) = kafka_transactions(broker.bootstrap, "find-hanging", "--broker-id", 1)
        assert int(hanging.pop("Duration(min)")) >= 20
        assert hanging == {
            "Topic": "orders",
            "Partition": "0",
            "ProducerId": str(producer.producer_id),
            "ProducerEpoch": str(producer.epoch),
            "CoordinatorEpoch": "0",
            "StartOffset": "2",
            "LastTimestamp": str(long_ago_ms),
        }
        where = ("--topic", "orders", "--partition", 0)
        shown = {
            row.pop("ProducerId"): row
            for row in kafka_transactions(broker.bootstrap, "describe-producers", *where)
        }
        assert shown[str(producer.producer_id)] == {
            "ProducerEpoch": str(producer.epoch),
            "LatestCoordinatorEpoch": "0",
            "LastSequence": "1",
            "LastTimestamp": str(long_ago_ms),
            "CurrentTransactionStartOffset": "2",
        }

        kafka_transactions(broker.bootstrap, "abort", *where, "--start-offset", 2)
        assert reading.read(1) == ["behind it"]
    assert kafka_transactions(broker.bootstrap, "find-hanging", "--topic", "orders") == []
    assert healthy.end(committed=True) == NONE
    assert values(broker.bootstrap, "orders") == ["behind it", "as old"]


def test_an_operator_sees_where_each_transaction_stands(start_broker: StartBroker):
    broker = at_level(start_broker, "2")
    open_one, done = by_hand(broker, "open", "2"), by_hand(broker, "done", "2")
    before_ms = now_ms()
    for producer in (open_one, done):
        assert producer.send("orders", ["one"]) == NONE
    assert done.end(committed=True) == NONE
    listed = {row.pop("TransactionalId"): row for row in kafka_transactions(broker.bootstrap, "list")}
    assert listed == {
        name: {"Coordinator": "1", "ProducerId": str(producer.producer_id), "TransactionState": state}
        for name, producer, state in (("open", open_one, "Ongoing"), ("done", done, "CompleteCommit"))
    }

    (shown,) = kafka_transactions(broker.bootstrap, "describe", "--transactional-id", "open")
    assert before_ms <= int(shown.pop("CurrentTransactionStartTimeMs")) <= now_ms()
    assert int(shown.pop("TransactionDurationMs")) < 60_000
    assert shown == {
        "CoordinatorId": "1",
        "TransactionalId": "open",
        "ProducerId": str(open_one.producer_id),
        "ProducerEpoch": "0",
        "TransactionState": "Ongoing",
        "TransactionTimeoutMs": "60000",
        "TopicPartitions": "orders-0",
    }


def test_an_operator_filters_by_duration_and_pattern(start_broker: StartBroker):
    """Scenario D6: kafka-transactions.sh list filters by duration (KIP-994) and by id pattern (KIP-1152)."""
    broker = at_level(start_broker, "2")
    for name in ("orders-1", "orders-2", "payments"):
        assert by_hand(broker, name, "2").send("orders", ["open"]) == NONE

    def listed(*filters: object) -> set[str]:
        return {row["TransactionalId"] for row in kafka_transactions(broker.bootstrap, "list", *filters)}

    assert listed() == {"orders-1", "orders-2", "payments"}
    assert listed("--transactional-id-pattern", "orders-[0-9]") == {"orders-1", "orders-2"}
    assert listed("--duration-filter", 3_600_000) == set()
    assert listed("--duration-filter", 0) == {"orders-1", "orders-2", "payments"}
