"""Records of `__transaction_state`: the fields of each state in each value version, encoded and decoded."""

from __future__ import annotations

import pytest

from broker.transactions.records import from_value, state_batch, to_value, tombstone_batch
from broker.transactions.transaction import Transaction, TransactionState
from protocol.batch import RecordBatch
from protocol.records.transaction_log import TransactionLogKey, TransactionLogValue

TXN = Transaction(
    "v2",
    7,
    previous_producer_id=5,
    next_producer_id=9,
    epoch=1,
    last_epoch=0,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset({("t", 1), ("t", 0), ("s", 3)}),
    start_ms=100,
    last_update_ms=200,
    client_version=2,
)
STORED = [TransactionState(number) for number in range(6)]


def partitions_of(value: TransactionLogValue) -> dict[str, list[int]] | None:
    topics = value.transaction_partitions
    return None if topics is None else {topic.topic: list(topic.partition_ids) for topic in topics}


@pytest.mark.parametrize("state", STORED)
@pytest.mark.parametrize("version", [0, 1])
def test_a_state_comes_back_from_its_record(state, version):
    txn = TXN._replace(state=state)
    if state in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        txn = txn._replace(partitions=frozenset())
    back = from_value("v2", TransactionLogValue.decode(to_value(txn).encode(version)))
    expected = txn._replace(last_epoch=-1)
    if version == 0:
        expected = expected._replace(previous_producer_id=-1, next_producer_id=-1, client_version=0)
    assert back == expected


@pytest.mark.parametrize("state", STORED)
def test_partitions_are_null_in_empty_and_a_list_elsewhere(state):
    value = to_value(TXN._replace(state=state, partitions=frozenset()))
    assert partitions_of(value) == (None if state is TransactionState.EMPTY else {})


def test_partitions_are_grouped_by_topic():
    assert partitions_of(to_value(TXN)) == {"s": [3], "t": [0, 1]}


def test_every_field_stands_in_its_place():
    value = to_value(TXN)
    assert value.producer_id == 7
    assert value.previous_producer_id == 5
    assert value.next_producer_id == 9
    assert value.producer_epoch == 1
    assert value.next_producer_epoch == -1, "Kafka never sets it"
    assert value.transaction_timeout_ms == 60_000
    assert value.transaction_status == 1
    assert value.transaction_last_update_timestamp_ms == 200
    assert value.transaction_start_timestamp_ms == 100
    assert value.client_transaction_version == 2


def test_the_bytes_of_a_value_of_version_0():
    txn = TXN._replace(partitions=frozenset({("t", 0)}))
    assert to_value(txn).encode(0).hex(" ", 1) == (
        "00 00 00 00 00 00 00 00 00 07 00 01 00 00 ea 60 01"
        " 00 00 00 01 00 01 74 00 00 00 01 00 00 00 00"
        " 00 00 00 00 00 00 00 c8 00 00 00 00 00 00 00 64"
    )


def test_the_bytes_of_a_value_of_version_1_leave_out_default_tags():
    txn = TXN._replace(
        partitions=frozenset({("t", 0)}), previous_producer_id=-1, next_producer_id=-1, client_version=0
    )
    untagged = (
        "00 01 00 00 00 00 00 00 00 07 00 01 00 00 ea 60 01"
        " 02 02 74 02 00 00 00 00 00"
        " 00 00 00 00 00 00 00 c8 00 00 00 00 00 00 00 64"
    )
    assert to_value(txn).encode(1).hex(" ", 1) == f"{untagged} 00"
    tagged = txn._replace(previous_producer_id=7, client_version=2)
    assert (
        to_value(tagged).encode(1).hex(" ", 1) == f"{untagged} 02 00 08 00 00 00 00 00 00 00 07 02 02 00 02"
    )


@pytest.mark.parametrize("version", [0, 1])
def test_a_batch_holds_one_record_of_no_producer(version):
    batch = RecordBatch.parse(state_batch(TXN, version, 12_345))
    assert (batch.record_count, batch.attributes, batch.max_timestamp) == (1, 0, 12_345)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    [record] = batch.records()
    assert record.key == b"\0\0\0\x02v2"
    assert record.value is not None
    assert record.value[:2] == bytes((0, version))


def test_a_tombstone_is_a_key_without_a_value():
    [record] = RecordBatch.parse(tombstone_batch("v2", 12_345)).records()
    assert record.key is not None
    assert TransactionLogKey.decode(record.key).transactional_id == "v2"
    assert record.value is None
