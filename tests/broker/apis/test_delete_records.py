"""DeleteRecords: which offsets may be deleted, the response, and the wait for other replicas."""

from __future__ import annotations

import asyncio

import pytest

from broker.apis.delete_records import delete_records as delete_records_handler
from broker.metadata.topics import CONSUMER_OFFSETS
from protocol.codec import client_codec, request_codec
from protocol.errors import ErrorCode
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.broker.apis.reading_world import World
from tests.support.coroutines import served

delete_records = served(delete_records_handler)

TIMEOUT_MS = 1000


@pytest.fixture
def world(tmp_path):
    """A world whose partition has five batches of one record, the first of them deleted, and one batch of five records."""
    world = World(tmp_path)
    world.add_topic("t")
    for _ in range(5):
        world.produce()
    world.produce(records=5)
    world.partitions["t", 0].delete_records(1)
    return world


def ask(*partitions: tuple[int, int], topic: str = "t") -> DeleteRecordsRequest:
    asked = [DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in partitions]
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=asked)], timeout_ms=TIMEOUT_MS
    )


def result(index: int, error: int, low_watermark: int = -1) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=index, error_code=error, low_watermark=low_watermark)


def results_of(response) -> list[DeleteRecordsPartitionResult]:
    return [partition for topic in response.topics for partition in topic.partitions]


@pytest.mark.parametrize(
    ("offset", "error", "low_watermark", "log_start_offset"),
    [
        pytest.param(-1, 0, 10, 10, id="all there is"),
        pytest.param(10, 0, 10, 10, id="up to the high watermark"),
        pytest.param(11, 1, -1, 1, id="beyond it"),
        pytest.param(-2, 1, -1, 1, id="below everything"),
        pytest.param(0, 0, 1, 1, id="deleted already"),
        pytest.param(1, 0, 1, 1, id="where the log starts"),
        pytest.param(3, 0, 3, 3, id="some"),
        pytest.param(7, 0, 7, 7, id="inside a batch"),
    ],
)
def test_the_new_log_start_offset(world, offset, error, low_watermark, log_start_offset):
    response = delete_records(ask((0, offset)), world.context(2, 21))
    assert results_of(response) == [result(0, error, low_watermark)]
    assert world.partitions["t", 0].log_start_offset == log_start_offset


@pytest.mark.parametrize(
    ("topic", "index", "error"),
    [
        pytest.param("none", 0, ErrorCode.unknown_topic_or_partition, id="no such topic"),
        pytest.param("t", 9, ErrorCode.unknown_topic_or_partition, id="no such partition"),
        pytest.param(CONSUMER_OFFSETS, 0, ErrorCode.invalid_topic_exception, id="internal"),
        pytest.param("compacted", 0, ErrorCode.policy_violation, id="compacted only"),
        pytest.param("lost", 0, ErrorCode.not_leader_or_follower, id="led elsewhere"),
        pytest.param("secret", 0, ErrorCode.topic_authorization_failed, id="not allowed"),
        pytest.param("both", 0, ErrorCode.none, id="compacted and deleted"),
    ],
)
def test_which_topics_allow_deletion(world, topic, index, error):
    world.add_topic(CONSUMER_OFFSETS)
    world.add_topic("compacted", cleanup_policy=("compact",))
    world.add_topic("both", cleanup_policy=("compact", "delete"))
    for name in ("lost", "secret"):
        world.add_topic(name)
    world.errors["lost", 0] = ErrorCode.not_leader_or_follower
    world.unauthorized.add("secret")
    for each in world.topics:
        world.produce(topic=each)
    response = delete_records(ask((index, 1), topic=topic), world.context(2, 21))
    assert results_of(response) == [result(index, error, 1 if error is ErrorCode.none else -1)]


def test_each_partition_has_its_own_result(world):
    world.add_topic("u", 2)
    world.produce(topic="u", index=1)
    response = delete_records(ask((0, 5), (1, 1), topic="u"), world.context(2, 21))
    assert results_of(response) == [result(0, 1), result(1, 0, 1)]


@pytest.fixture
def slow(world, monkeypatch):
    """A list with one element: the low watermark that the partition reports, as if a replica lagged. The test replaces
    the element."""
    partition = world.partitions["t", 0]
    lagging = [2]

    def delete(before_offset: int) -> tuple[ErrorCode, int]:
        return ErrorCode.none, lagging[0]

    monkeypatch.setattr(partition, "delete_records", delete)
    return lagging


async def test_the_response_waits_for_lagging_replicas(world, slow):
    waiting = delete_records(ask((0, 5)), world.context(2, 21))
    assert isinstance(waiting, asyncio.Future)
    slow[0] = 4
    world.partitions["t", 0].delayed.notify()
    await asyncio.sleep(0)
    assert not waiting.done()
    slow[0] = 5
    world.partitions["t", 0].delayed.notify()
    await asyncio.sleep(0)
    assert results_of(waiting.result()) == [result(0, 0, 5)]
    assert (world.watchers, world.clock.timers) == (0, [])


async def test_replicas_that_lag_too_long_cause_a_timeout(world, slow):
    waiting = delete_records(ask((0, 5)), world.context(2, 21))
    world.clock.advance(TIMEOUT_MS)
    assert results_of(waiting.result()) == [result(0, ErrorCode.request_timed_out, 2)]
    assert (world.watchers, world.clock.timers) == (0, [])


@pytest.mark.parametrize("looks", [0, 1])
async def test_a_node_that_dies_leaves_no_watch_and_no_timer(world, slow, looks):
    waiting = delete_records(ask((0, 5)), world.context(2, 21))
    for _ in range(looks):
        world.partitions["t", 0].delayed.notify()
        await asyncio.sleep(0)
    world.node.life.end()
    assert (world.watchers, world.clock.timers) == (0, [])
    world.partitions["t", 0].delayed.notify()
    await asyncio.sleep(0)
    assert not waiting.done()


async def test_a_leader_lost_while_waiting(world, slow):
    waiting = delete_records(ask((0, 5)), world.context(2, 21))
    world.errors["t", 0] = ErrorCode.not_leader_or_follower
    world.partitions["t", 0].stop_leading(ErrorCode.not_leader_or_follower)
    await asyncio.sleep(0)
    assert results_of(waiting.result()) == [result(0, ErrorCode.not_leader_or_follower)]


@pytest.mark.parametrize("version", range(3))
def test_every_version_goes_over_the_wire(world, version):
    wire, ours = client_codec(21, version), request_codec(21, version)
    sent = b"".join(wire.encode(ask((0, 3))))
    response = delete_records(ours.decode(sent), world.context(version, 21))
    heard = wire.decode(b"".join(ours.encode(response)))
    assert (heard.topics[0].name, results_of(heard)) == ("t", [result(0, 0, 3)])
