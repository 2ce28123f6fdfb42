"""Scenarios A: the transactional flow, step by step, with each of four client libraries.

The Java client uses the protocol of transaction version 2 (KIP-890), the other three that of version 1.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.scenarios.conftest import NewProducer
from tests.support import raw
from tests.support.broker import Broker, StartBroker
from tests.support.clients import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    STATE_TOPIC,
    JavaProducer,
    Refused,
    batches_of,
    committed_offset,
    eventually,
    java_hash,
    read,
    statuses,
    topics,
    transaction_log,
    values,
)
from tests.support.relay import Relay

TRANSACTION_APIS = (
    "init_producer_id",
    "add_partitions_to_txn",
    "add_offsets_to_txn",
    "txn_offset_commit",
    "end_txn",
    "produce",
)
LAST_EPOCH = 32767


def offsets_partition(group: str) -> tuple[str, int]:
    return ("__consumer_offsets", java_hash(group) % 50)


def test_the_coordinator_leads_the_partition_that_the_id_hashes_to(
    client: str, new_producer: NewProducer, start_relayed: Callable[..., Broker], relay: Relay
):
    """Scenario A1: the first use of a transactional id creates __transaction_state.

    The id's records are in the partition of its Java hash.
    """
    start_relayed()
    assert topics(relay.bootstrap) == {}

    for transactional_id in ("orders", "polygenelubricants", "Грегор 𝔖amsa"):
        new_producer(relay.bootstrap, transactional_id).init()

        (record,) = transaction_log(relay.bootstrap, transactional_id)
        assert record is not None
        assert record.log_partition == java_hash(transactional_id) % 50
    assert topics(relay.bootstrap)[STATE_TOPIC] == 50
    for found in relay.answered("find_coordinator"):
        (place,) = found.answer.get("coordinators") or [found.answer]
        assert (place["error_code"], place["port"]) == (0, relay.port)


def test_init_gives_an_id_and_an_epoch_and_writes_an_empty_state(
    client: str, new_producer: NewProducer, broker: Broker
):
    """Scenario A2: the first InitProducerId returns an id and epoch 0, and writes a record with state Empty."""
    new_producer(broker.bootstrap, "orders", transaction_timeout_ms=12_345).init()

    (record,) = transaction_log(broker.bootstrap, "orders")
    assert record is not None
    assert record.producer_id >= 0
    assert (record.producer_epoch, record.status, record.timeout_ms) == (0, EMPTY, 12_345)
    assert (record.partitions, record.start_ms) == (None, -1)


def test_a_second_instance_aborts_what_the_first_left_open_and_shuts_it_out(
    client: str, new_producer: NewProducer, start_broker: StartBroker
):
    """Scenario A2: the second InitProducerId keeps the id, raises the epoch, and aborts the open transaction."""
    broker = start_broker(topics=["orders:1"])
    first = new_producer(broker.bootstrap, "orders")
    first.init()
    first.begin()
    first.send("orders", ["from the first"])

    second = new_producer(broker.bootstrap, "orders")
    second.init()
    second.begin()
    second.send("orders", ["from the second"])
    second.commit()

    with pytest.raises(Refused):
        first.commit()
    assert values(broker.bootstrap, "orders") == ["from the second"]
    history = transaction_log(broker.bootstrap, "orders")
    assert len({record.producer_id for record in history if record}) == 1
    epochs = [record.producer_epoch for record in history if record]
    assert epochs == sorted(epochs)
    assert statuses(broker.bootstrap, "orders")[:5] == [
        EMPTY,
        ONGOING,
        PREPARE_ABORT,
        COMPLETE_ABORT,
        EMPTY,
    ]


def test_begin_asks_nothing_of_the_broker(
    client: str, new_producer: NewProducer, start_relayed: Callable[..., Broker], relay: Relay
):
    """Scenario A3: begin_transaction sends no request.

    The relay records the requests of the next send, so it would also have recorded a request of begin_transaction.
    """
    start_relayed(topics=["orders:1"])
    producer = new_producer(relay.bootstrap, "orders")
    producer.init()
    before = len(relay.seen(*TRANSACTION_APIS))

    producer.begin()
    assert statuses(relay.bootstrap, "orders") == [EMPTY]
    assert len(relay.seen(*TRANSACTION_APIS)) == before

    producer.send("orders", ["one"])
    assert len(relay.seen(*TRANSACTION_APIS)) > before


def test_each_further_partition_is_one_record_with_all_so_far(
    client: str, new_producer: NewProducer, start_broker: StartBroker
):
    """Scenario A4: each added partition writes an Ongoing record.

    The record has all partitions so far, and the start time of the first one.
    """
    broker = start_broker(topics=["orders:3"])
    producer = new_producer(broker.bootstrap, "orders")
    producer.init()
    producer.begin()
    for partition in (2, 0, 2, 1):
        producer.send("orders", [f"for {partition}"], partition=partition)

    _, *ongoing = transaction_log(broker.bootstrap, "orders")
    assert [record and record.status for record in ongoing] == [ONGOING] * 3
    assert [record and record.partitions for record in ongoing] == [
        frozenset({("orders", 2)}),
        frozenset({("orders", 2), ("orders", 0)}),
        frozenset({("orders", 2), ("orders", 0), ("orders", 1)}),
    ]
    assert len({record.start_ms for record in ongoing if record}) == 1
    producer.abort()


def test_batches_lie_in_the_log_with_their_producer_and_no_marker_yet(
    client: str, new_producer: NewProducer, start_broker: StartBroker
):
    """Scenario A5: batches in an open transaction are in the log, and only read_uncommitted consumers see them.

    They have the producer id, the epoch, a sequence and the transactional bit.
    """
    broker = start_broker(topics=["orders:1"])
    producer = new_producer(broker.bootstrap, "orders")
    producer.init()
    producer.begin()
    for value in ("a", "b", "c"):
        producer.send("orders", [value])

    (begun, *_) = transaction_log(broker.bootstrap, "orders")
    assert begun is not None
    batches = batches_of(broker.data_dir, "orders")
    assert [batch.base_sequence for batch in batches] == [0, 1, 2]
    for batch in batches:
        assert (batch.producer_id, batch.producer_epoch) == (begun.producer_id, begun.producer_epoch)
        assert batch.is_transactional
        assert not batch.is_control
    assert values(broker.bootstrap, "orders") == []
    assert values(broker.bootstrap, "orders", "read_uncommitted") == ["a", "b", "c"]
    producer.abort()


@pytest.mark.smoke
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_offsets_in_a_transaction_are_seen_after_its_commit_and_never_else(
    client: str, end: str, new_producer: NewProducer, start_broker: StartBroker
):
    """Scenarios A6, A7: the group's partition of __consumer_offsets joins the transaction.

    Only a commit makes the offsets visible.
    """
    broker = start_broker(topics=["input:1", "orders:1"])
    producer = new_producer(broker.bootstrap, "orders")
    producer.init()
    producer.begin()
    producer.send("orders", ["one"])
    producer.send_offsets("readers", {("input", 0): 7})

    *_, ongoing = transaction_log(broker.bootstrap, "orders")
    assert ongoing is not None
    assert ongoing.status == ONGOING
    assert ongoing.partitions == frozenset({("orders", 0), offsets_partition("readers")})
    assert committed_offset(broker.bootstrap, "readers", "input") == -1

    getattr(producer, end)()
    found = eventually(
        lambda: [committed_offset(broker.bootstrap, "readers", "input")], "the offset was fetched"
    )
    assert found == [7 if end == "commit" else -1]
    name, partition = offsets_partition("readers")
    (marker,) = (each for each in batches_of(broker.data_dir, name, partition) if each.is_control)
    assert marker.marker == end.upper()


@pytest.mark.feature("transactions")
@pytest.mark.smoke
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_the_end_is_prepared_marked_in_every_partition_and_completed(
    client: str, end: str, new_producer: NewProducer, start_broker: StartBroker
):
    """Scenario A7: EndTxn writes a Prepare record, a marker in each partition, and a Complete record.

    Each marker occupies one offset. Aborted records stay in the log, and read_committed consumers do not get them.
    """
    broker = start_broker(topics=["orders:2"])
    producer = new_producer(broker.bootstrap, "orders")
    producer.init()
    producer.begin()
    producer.send("orders", ["a", "b"], partition=0)
    producer.send("orders", ["c"], partition=1)
    getattr(producer, end)()

    prepared, completed = (
        (PREPARE_COMMIT, COMPLETE_COMMIT) if end == "commit" else (PREPARE_ABORT, COMPLETE_ABORT)
    )
    eventually(lambda: statuses(broker.bootstrap, "orders")[-1] == completed, "the transaction is completed")
    assert statuses(broker.bootstrap, "orders") == [EMPTY, ONGOING, ONGOING, prepared, completed]
    *_, prepare, complete = transaction_log(broker.bootstrap, "orders")
    assert prepare is not None
    assert complete is not None
    assert prepare.partitions == frozenset({("orders", 0), ("orders", 1)})
    assert complete.partitions == frozenset()
    for partition, records in ((0, 2), (1, 1)):
        *data, marker = batches_of(broker.data_dir, "orders", partition)
        assert sum(batch.record_count for batch in data) == records
        assert (marker.base_offset, marker.record_count, marker.marker) == (records, 1, end.upper())
        assert marker.is_transactional

    producer.begin()
    ((_, offset),) = producer.send("orders", ["behind the marker"], partition=0)
    assert offset == 3
    producer.commit()
    seen = values(broker.bootstrap, "orders")
    assert seen == (["a", "b", "behind the marker", "c"] if end == "commit" else ["behind the marker"])
    assert len(read(broker.bootstrap, "orders", "read_uncommitted")) == 4


def test_the_end_of_a_transaction_names_the_next_epoch_from_version_5_on(
    client: str, new_producer: NewProducer, start_relayed: Callable[..., Broker], relay: Relay
):
    """Scenario A9: EndTxn v5 returns the producer id and the next epoch, which Java's producer uses.

    Up to v4 the epoch does not change.
    """
    broker = start_relayed(topics=["orders:1"])
    producer = new_producer(relay.bootstrap, "orders")
    producer.init()
    for value in ("a", "b", "c"):
        producer.begin()
        producer.send("orders", [value])
        producer.commit()

    (begun, *_) = transaction_log(relay.bootstrap, "orders")
    assert begun is not None
    ends = [each for each in relay.answered("end_txn") if each.answer["error_code"] == 0]
    epochs = [each.producer_epoch for each in batches_of(broker.data_dir, "orders") if not each.is_control]
    if client == "java":
        assert {each.version for each in ends} == {5}
        assert [each.answer["producer_epoch"] for each in ends] == [1, 2, 3]
        assert {each.answer["producer_id"] for each in ends} == {begun.producer_id}
        assert epochs == [0, 1, 2]
    else:
        assert all(each.version <= 4 for each in ends)
        assert all("producer_epoch" not in each.answer for each in ends)
        assert epochs == [0, 0, 0]


@pytest.mark.java
def test_after_the_last_epoch_comes_a_new_producer_id(start_relayed: Callable[..., Broker], relay: Relay):
    """Scenario A9: the commit at epoch 32766 returns a new producer id and epoch 0.

    The producer continues with them.
    """
    broker = start_relayed(topics=["orders:1"])
    raise_epoch(broker, "orders", LAST_EPOCH - 3)
    producer = JavaProducer(relay.bootstrap, transactional_id="orders")
    producer.init()
    for value in ("a", "b", "c"):
        producer.begin()
        producer.send("orders", [value])
        producer.commit()
    producer.close()

    answers = [each.answer for each in relay.answered("end_txn") if each.answer["error_code"] == 0]
    assert [answer["producer_epoch"] for answer in answers] == [LAST_EPOCH - 1, 0, 1]
    old, new, same = (answer["producer_id"] for answer in answers)
    assert old != new == same
    marks = [
        (each.producer_id, each.producer_epoch)
        for each in batches_of(broker.data_dir, "orders")
        if each.is_control
    ]
    assert marks == [(old, LAST_EPOCH - 1), (old, LAST_EPOCH), (new, 1)]
    assert values(relay.bootstrap, "orders") == ["a", "b", "c"]


def raise_epoch(broker: Broker, transactional_id: str, epoch: int) -> None:
    """Send pipelined InitProducerId requests until the transactional id has this epoch."""
    wire = raw.Wire(broker.host, broker.port)
    wire.send_frame(raw.encode_request("find_coordinator", 3, {"key": transactional_id, "key_type": 1}, 0))
    assert raw.decode_response("find_coordinator", 3, wire.receive_frame())[1]["error_code"] == 0
    body = {"transactional_id": transactional_id, "transaction_timeout": 60_000}
    left = epoch + 1
    while left:
        burst = min(left, 1000)
        for number in range(burst):
            wire.send_frame(raw.encode_request("init_producer_id", 4, body, number))
        for _ in range(burst):
            answer = raw.decode_response("init_producer_id", 4, wire.receive_frame())[1]
            assert answer["error_code"] == 0
        left -= burst
    assert answer["producer_epoch"] == epoch
    wire.close()
