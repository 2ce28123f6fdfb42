"""OffsetForLeaderEpoch: the end offset of each leader epoch."""

from __future__ import annotations

import pytest

from broker.apis.offset_for_leader_epoch import offset_for_leader_epoch
from protocol.codec import client_codec, request_codec
from protocol.errors import ErrorCode
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.apis.reading_world import World


@pytest.fixture
def world(tmp_path):
    """A world whose partition has offsets 0-1 of leader epoch 2, 2-3 of epoch 4 and 4-5 of epoch 6, the current epoch."""
    world = World(tmp_path)
    world.add_topic("t", epoch=2)
    partition = world.partitions["t", 0]
    for epoch in (2, 4, 6):
        partition.leader_epoch = epoch
        partition.log.assign_epoch(epoch)
        world.produce()
        world.produce()
    return world


def ask(epoch: int, *, current: int = -1, topic: str = "t", index: int = 0) -> OffsetForLeaderEpochRequest:
    partition = OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
    return OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=topic, partitions=[partition])], replica_id=-1
    )


def answer_of(world: World, request: OffsetForLeaderEpochRequest) -> EpochEndOffset:
    (topic,) = offset_for_leader_epoch(request, world.context(4, 23)).topics
    (partition,) = topic.partitions
    return partition


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        pytest.param(-1, (-1, -1), id="none"),
        pytest.param(7, (-1, -1), id="newer than the newest"),
        pytest.param(6, (6, 6), id="the newest: the log end"),
        pytest.param(5, (4, 4), id="between: the older one's end"),
        pytest.param(4, (4, 4), id="an older one"),
        pytest.param(3, (2, 2), id="between, again"),
        pytest.param(1, (1, 0), id="older than the oldest: as asked, where the oldest begins"),
    ],
)
def test_the_end_offset_of_an_epoch(world, epoch, answer):
    assert answer_of(world, ask(epoch)) == EpochEndOffset(
        partition=0, leader_epoch=answer[0], end_offset=answer[1]
    )


@pytest.mark.parametrize(
    ("current", "error"),
    [
        (-1, ErrorCode.none),
        (5, ErrorCode.fenced_leader_epoch),
        (6, ErrorCode.none),
        (7, ErrorCode.unknown_leader_epoch),
    ],
)
def test_the_client_s_leader_epoch_must_be_the_current_one(world, current, error):
    answer = answer_of(world, ask(4, current=current))
    assert answer.error_code == error
    assert (answer.leader_epoch, answer.end_offset) == ((4, 4) if error is ErrorCode.none else (-1, -1))


@pytest.mark.parametrize(
    ("topic", "index", "error"),
    [
        ("none", 0, ErrorCode.unknown_topic_or_partition),
        ("t", 9, ErrorCode.unknown_topic_or_partition),
        ("lost", 0, ErrorCode.not_leader_or_follower),
        ("broken", 0, ErrorCode.kafka_storage_error),
        ("secret", 0, ErrorCode.topic_authorization_failed),
    ],
)
def test_errors_come_without_an_offset(world, topic, index, error):
    world.errors["lost", 0] = ErrorCode.not_leader_or_follower
    world.errors["broken", 0] = ErrorCode.kafka_storage_error
    world.unauthorized.add("secret")
    answer = answer_of(world, ask(4, topic=topic, index=index))
    assert answer == EpochEndOffset(partition=index, error_code=error)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_every_version_goes_over_the_wire(world, version):
    wire, ours = client_codec(23, version), request_codec(23, version)
    sent = b"".join(wire.encode(ask(4, current=6)))
    response = offset_for_leader_epoch(ours.decode(sent), world.context(version, 23))
    heard = wire.decode(b"".join(ours.encode(response)))
    assert heard.topics[0].partitions[0] == EpochEndOffset(partition=0, leader_epoch=4, end_offset=4)
