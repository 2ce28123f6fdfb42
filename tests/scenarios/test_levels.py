"""The levels of `transaction.version`: the features and records of a broker at each level.

Clients of both protocols are also used together.
"""

from __future__ import annotations

import struct

import pytest

from protocol.errors import ErrorCode
from tests.scenarios.levels import LEVELS, NONE, at_level
from tests.support.broker import Broker, StartBroker
from tests.support.by_hand import ProducerByHand, ask
from tests.support.clients import STATE_TOPIC, batches_of, committed_offset, read_messages, values

SPEAKS = {"old": False, "new": True}


def speaking(broker: Broker, transactional_id: str, *, new: bool) -> ProducerByHand:
    return ProducerByHand(broker.host, broker.port, transactional_id, new=new).init()


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_is_announced_and_decides_how_states_are_written(level: str, start_broker: StartBroker):
    """Level 0 is not among the finalized features; from level 1 on the records have tagged fields (value version 1)."""
    broker = at_level(start_broker, level)
    software = {"client_software_name": "by-hand", "client_software_version": "1"}
    said = ask(broker.host, broker.port, "api_versions", 4, software)
    finalized = {
        row["name"]: (row["min_version_level"], row["max_version_level"])
        for row in said["finalized_features"]
    }
    assert finalized.get("transaction.version") == (None if level == "0" else (int(level), int(level)))
    supported = {row["name"]: (row["min_version"], row["max_version"]) for row in said["supported_features"]}
    assert supported["transaction.version"] == (0, 2)

    for name, new in SPEAKS.items():
        producer = speaking(broker, name, new=new)
        if new and level == "0":
            # As in Kafka: a client must check the feature level first, and use the old protocol at level 0.
            assert producer.send("orders", [name]) == ErrorCode.unsupported_version
            continue
        assert producer.send("orders", [name]) == NONE
        assert producer.end(committed=True) == NONE
    # The value version of the records depends on the level, not on the client's protocol.
    found = {
        struct.unpack_from(">h", message.value())[0]
        for message in read_messages(broker.bootstrap, STATE_TOPIC, "read_uncommitted")
    }
    assert found == {0 if level == "0" else 1}


@pytest.mark.parametrize("level", LEVELS[1:])
def test_clients_of_both_protocols_side_by_side(level: str, start_broker: StartBroker):
    """The request's version decides on the protocol: Produce v11 and v12, TxnOffsetCommit v4 and v5, EndTxn v4 and v5."""
    broker = at_level(start_broker, level)
    both = {name: speaking(broker, name, new=new) for name, new in SPEAKS.items()}
    for round_, committed in enumerate((True, False, True)):
        for name, producer in both.items():
            assert producer.send("orders", [f"{name} {round_}"]) == NONE
            assert producer.send_offsets(f"group of {name}", {("orders", 0): 10 + round_}) == NONE
        for producer in both.values():
            assert producer.end(committed=committed) == NONE
    assert values(broker.bootstrap, "orders") == ["old 0", "new 0", "old 2", "new 2"]
    for name in both:
        assert committed_offset(broker.bootstrap, f"group of {name}", "orders") == 12

    # Each transaction of the new protocol has its own epoch, one below that of its marker. All transactions of the old
    # protocol, and their markers, have the same epoch.
    assert (both["old"].epoch, both["new"].epoch) == (0, 3)
    epochs = {
        name: [
            (batch.producer_epoch, batch.is_control)
            for batch in batches_of(broker.data_dir, "orders")
            if batch.producer_id == producer.producer_id
        ]
        for name, producer in both.items()
    }
    assert epochs["old"] == [(0, False), (0, True)] * 3
    assert epochs["new"] == [(0, False), (1, True), (1, False), (2, True), (2, False), (3, True)]


def test_one_transactional_id_alternates_between_the_protocols(start_broker: StartBroker):
    """A transactional id can alternate between the protocols, as when an application changes its client and changes back."""
    broker = at_level(start_broker, "2")
    for turn, new in enumerate((False, True, False, True)):
        producer = speaking(broker, "orders", new=new)
        for committed in (True, False):
            assert producer.send("orders", [f"{turn} {committed}"]) == NONE
            assert producer.end(committed=committed) == NONE
    assert values(broker.bootstrap, "orders") == [f"{turn} True" for turn in range(4)]


def test_a_transaction_that_began_in_the_new_protocol_is_ended_in_the_old_one(start_broker: StartBroker):
    """A transaction of the new protocol can be ended by an EndTxn of the old one, which does not bump the epoch.

    The next transaction can use the new protocol again.
    """
    broker = at_level(start_broker, "2")
    producer = speaking(broker, "orders", new=True)
    assert producer.send("orders", ["one"]) == NONE
    old = speaking_for(producer)
    assert old.end(committed=True) == NONE
    assert producer.send("orders", ["two"]) == NONE
    assert producer.end(committed=True) == NONE
    assert values(broker.bootstrap, "orders") == ["one", "two"]
    epochs = [batch.producer_epoch for batch in batches_of(broker.data_dir, "orders")]
    assert epochs == [0, 0, 0, 1]


def speaking_for(producer: ProducerByHand) -> ProducerByHand:
    """A producer with the same ids and epoch that uses the old protocol."""
    other = ProducerByHand(producer.host, producer.port, producer.transactional_id, new=False)
    other.producer_id, other.epoch = producer.producer_id, producer.epoch
    return other
