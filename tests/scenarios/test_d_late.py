"""Scenarios D4 and D5: a marker or a batch arrives late.

The old transaction protocol accepts it, the new one refuses it.
"""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from tests.scenarios.levels import LEVELS, NONE, at_level, by_hand, leave_a_batch_behind
from tests.support.broker import StartBroker
from tests.support.by_hand import last_stable_offset
from tests.support.clients import ConfluentProducer, values
from tests.support.readers import reader


@pytest.mark.parametrize("level", LEVELS)
def test_a_marker_that_comes_late(level: str, start_broker: StartBroker):
    """Scenario D4: the coordinator sent the marker twice, and the second copy arrives in the next transaction.

    Up to level 1 the copy commits that transaction: consumers see its first record, although the producer aborts it later.
    At level 2 each transaction has an epoch of its own, so the copy is refused.
    """
    broker = at_level(start_broker, level)
    producer = by_hand(broker, "orders", level)
    assert producer.send("orders", ["first"]) == NONE
    late = producer.marker("orders", committed=True)
    assert producer.end(committed=True) == NONE

    with reader("confluent", broker.bootstrap, "orders") as reading:
        assert reading.read(1) == ["first"]
        assert producer.send("orders", ["half of the second"]) == NONE
        error = late.arrive()
        if level == "2":
            assert error == ErrorCode.invalid_producer_epoch
        else:
            assert error == NONE
            assert reading.read(1) == ["half of the second"]

        assert producer.send("orders", ["the other half"]) == NONE
        assert producer.end(committed=False) == NONE
        ConfluentProducer(broker.bootstrap).send("orders", ["behind it"])
        assert reading.read(1) == ["behind it"]
    seen = ["first", "behind it"] if level == "2" else ["first", "half of the second", "behind it"]
    assert values(broker.bootstrap, "orders") == seen


@pytest.mark.parametrize("level", LEVELS)
def test_a_batch_that_comes_late(level: str, start_broker: StartBroker):
    """Scenario D5 without verification: up to level 1 a batch after the abort begins a hanging transaction.

    read_committed consumers then get no later record. At level 2 the batch is refused, because the abort bumped
    the epoch.
    """
    broker = at_level(start_broker, level, transaction__partition__verification__enable="false")
    _, error = leave_a_batch_behind(broker, level)
    ConfluentProducer(broker.bootstrap).send("orders", ["behind it"])
    where = (broker.host, broker.port, "orders")
    if level == "2":
        assert error == ErrorCode.invalid_producer_epoch
        assert values(broker.bootstrap, "orders") == ["behind it"]
        return
    # Two records of the producer, with the marker between them.
    assert error == NONE
    assert last_stable_offset(*where) == 2
    with reader("confluent", broker.bootstrap, "orders") as reading:
        assert reading.sees() == []
    assert values(broker.bootstrap, "orders", "read_uncommitted") == ["in time", "too late", "behind it"]


@pytest.mark.parametrize(
    ("level", "refusal"),
    [
        ("0", ErrorCode.transaction_abortable),
        ("1", ErrorCode.transaction_abortable),
        ("2", ErrorCode.invalid_producer_epoch),
    ],
)
def test_a_batch_that_comes_late_is_refused_where_the_coordinator_is_asked(
    level: str, refusal: ErrorCode, start_broker: StartBroker
):
    """Scenario D5: by default the leader verifies a transaction before its first batch (KIP-890).

    So the leader refuses a batch that arrives after the abort.
    """
    broker = at_level(start_broker, level)
    _, error = leave_a_batch_behind(broker, level)
    assert error == refusal
    ConfluentProducer(broker.bootstrap).send("orders", ["behind it"])
    assert values(broker.bootstrap, "orders") == ["behind it"]
