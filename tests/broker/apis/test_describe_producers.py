"""DescribeProducers: the producers in a partition's producer state, and the start offsets of open transactions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.apis.describe_producers import describe_producers
from protocol.errors import ErrorCode
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    PartitionResponse,
    ProducerState,
    TopicRequest,
)
from tests.support.world import OTHER_NODE_ID, World

OK = ErrorCode.none
T0 = ("t", 0)


@pytest.fixture
def world(tmp_path: Path):
    world = World(tmp_path)
    world.create("t", 2)
    yield world
    world.abandon()


def described(world: World, topic: str = "t", index: int = 0, context: Any = None) -> PartitionResponse:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])
    answer = describe_producers(request, context or world.context(0))
    (row,) = answer.topics
    assert row.name == topic
    (partition,) = row.partitions
    assert partition.partition_index == index
    return partition


def brief(producer: ProducerState) -> tuple[int, ...]:
    return (
        producer.producer_id,
        producer.producer_epoch,
        producer.last_sequence,
        producer.coordinator_epoch,
        producer.current_txn_start_offset,
    )


def begin(world: World, at_ms: int | None = None) -> tuple[int, int]:
    """Begin a transaction and write two batches to the first partition, behind a record of another producer. Returns the
    producer id and epoch of the transaction."""
    world.produce(*T0, b"before")
    producer_id, epoch = world.init()
    who: dict[str, Any] = {
        "transactional_id": "tx",
        "producer_id": producer_id,
        "epoch": epoch,
        "timestamp_ms": at_ms,
    }
    world.produce(*T0, b"a", b"b", sequence=0, **who)
    world.produce(*T0, b"c", sequence=2, **who)
    return producer_id, epoch


def test_an_open_transaction_is_shown_with_its_first_offset_and_the_time_of_its_last_record(world):
    producer_id, epoch = begin(world, at_ms=123_456)
    answer = described(world)
    assert (answer.error_code, answer.error_message) == (OK, None)
    (producer,) = answer.active_producers
    assert brief(producer) == (producer_id, epoch, 2, -1, 1)
    assert producer.last_timestamp == 123_456


def test_after_the_marker_nothing_is_open_and_the_new_epoch_has_no_sequence(world):
    producer_id, epoch = begin(world)
    world.end("tx", producer_id, epoch, committed=True)
    (producer,) = described(world).active_producers
    assert brief(producer) == (producer_id, epoch + 1, -1, 0, -1)


def test_a_partition_without_producers_has_none(world):
    answer = described(world, index=1)
    assert (answer.error_code, list(answer.active_producers)) == (OK, [])


def test_an_idempotent_producer_has_no_transaction(world):
    producer_id, epoch = world.init(None)
    world.produce(*T0, b"a", producer_id=producer_id, epoch=epoch, sequence=0)
    (producer,) = described(world).active_producers
    assert brief(producer) == (producer_id, epoch, 0, -1, -1)


@pytest.mark.parametrize(
    ("topic", "index", "error", "says"),
    [
        ("a b", 0, ErrorCode.invalid_topic_exception, True),
        ("", 0, ErrorCode.invalid_topic_exception, True),
        ("missing", 0, ErrorCode.unknown_topic_or_partition, True),
        # The error of a single partition comes without a message.
        ("t", 2, ErrorCode.unknown_topic_or_partition, False),
        ("t", -1, ErrorCode.unknown_topic_or_partition, False),
    ],
)
def test_topics_and_partitions_that_do_not_exist(world, topic, index, error, says):
    answer = described(world, topic, index)
    assert (answer.error_code, answer.error_message is not None) == (error, says)
    assert list(answer.active_producers) == []


def test_a_follower_responds_too(world):
    producer_id, _ = begin(world)
    world.cluster.move("t", 0, OTHER_NODE_ID)
    (producer,) = described(world).active_producers
    assert producer.producer_id == producer_id


def test_a_partition_without_a_replica_here(world):
    state = world.cluster.topics["t"].partitions[1]
    world.cluster.topics["t"].partitions[1] = type(state)(
        1, (OTHER_NODE_ID,), (OTHER_NODE_ID,), OTHER_NODE_ID, 0, 0
    )
    answer = described(world, index=1)
    assert (answer.error_code, answer.error_message) == (ErrorCode.not_leader_or_follower, None)


def test_files_that_cannot_be_used(world):
    world.partition("t").offline = "bad disk"
    assert described(world).error_code == ErrorCode.kafka_storage_error


def test_a_client_that_may_not_read_the_topic(world, monkeypatch):
    context = world.context(0)
    monkeypatch.setattr(type(context), "authorize", lambda self, *what: what != ("READ", "TOPIC", "t"))
    assert described(world, context=context).error_code == ErrorCode.topic_authorization_failed
