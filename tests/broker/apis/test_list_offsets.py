"""ListOffsets: each special timestamp and the first version that has it, isolation levels, and errors by partition."""

from __future__ import annotations

import asyncio

import pytest

from broker.apis.list_offsets import list_offsets as list_offsets_handler
from broker.replicas.partition import TimestampOffset
from protocol.batch import build_batch
from protocol.codec import client_codec, request_codec
from protocol.compression import GZIP, NONE
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from storage.config import LogConfig
from storage.steps import run
from tests.broker.apis.reading_world import World
from tests.support.clock import NOW_MS
from tests.support.coroutines import served

list_offsets = served(list_offsets_handler)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
NOTHING = (-1, -1, -1)


@pytest.fixture
def world(tmp_path):
    """A world with a partition in leader epoch 5. The timestamps of its offsets 1 to 4 are 10, 30, 20 and 40 ms after
    ``NOW_MS``. An open transaction begins at offset 3, and offset 0 is deleted."""
    world = World(tmp_path)
    world.add_topic("t", epoch=5)
    world.partitions["t", 0].log.assign_epoch(5)
    world.produce()
    for late_ms in (10, 30):
        world.produce(timestamp_ms=NOW_MS + late_ms)
    world.produce_in_transaction(7, timestamp_ms=NOW_MS + 20)
    world.produce(timestamp_ms=NOW_MS + 40)
    world.partitions["t", 0].delete_records(1)
    return world


def ask(*partitions: tuple[int, int], topic: str = "t", epoch: int = -1, **more) -> ListOffsetsRequest:
    more.setdefault("replica_id", -1)
    asked = [
        ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
        for index, timestamp in partitions
    ]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=asked)], **more)


def answer_of(world: World, request: ListOffsetsRequest, version: int = 11) -> ListOffsetsPartitionResponse:
    (topic,) = list_offsets(request, world.context(version, 2)).topics
    (partition,) = topic.partitions
    return partition


def found(world: World, timestamp: int, isolation: int = 0, version: int = 11) -> tuple[int, int, int]:
    answer = answer_of(world, ask((0, timestamp), isolation_level=isolation), version)
    assert answer.error_code == ErrorCode.none
    return answer.offset, answer.timestamp, answer.leader_epoch


@pytest.mark.parametrize(
    ("timestamp", "uncommitted", "committed"),
    [
        pytest.param(LATEST, (5, -1, 5), (3, -1, 5), id="latest: high watermark, or last stable offset"),
        pytest.param(EARLIEST, (1, -1, 5), (1, -1, 5), id="earliest: the log start"),
        pytest.param(MAX_TIMESTAMP, (4, NOW_MS + 40, 5), NOTHING, id="largest time, none if not stable"),
        pytest.param(EARLIEST_LOCAL, (1, -1, 5), (1, -1, 5), id="earliest local, without tiers the same"),
        pytest.param(LATEST_TIERED, NOTHING, NOTHING, id="no tiers"),
        pytest.param(EARLIEST_PENDING_UPLOAD, NOTHING, NOTHING, id="no uploads"),
        pytest.param(0, (1, NOW_MS + 10, 5), (1, NOW_MS + 10, 5), id="the first record not before a time"),
        pytest.param(NOW_MS + 10, (1, NOW_MS + 10, 5), (1, NOW_MS + 10, 5), id="at that time itself"),
        pytest.param(NOW_MS + 11, (2, NOW_MS + 30, 5), (2, NOW_MS + 30, 5), id="by offset, not by time"),
        pytest.param(NOW_MS + 31, (4, NOW_MS + 40, 5), NOTHING, id="found beyond the last stable offset"),
        pytest.param(NOW_MS + 41, NOTHING, NOTHING, id="after all records"),
    ],
)
def test_offsets_found_by_timestamp(world, timestamp, uncommitted, committed):
    assert found(world, timestamp) == uncommitted
    assert found(world, timestamp, isolation=1) == committed


def test_markers_count_in_the_latest_offset_and_as_the_largest_time(world):
    world.clock.now += 60
    world.end(7, committed=True)
    assert found(world, LATEST) == (6, -1, 5)
    assert found(world, MAX_TIMESTAMP, isolation=1) == (5, NOW_MS + 60, 5)


def test_an_empty_partition(tmp_path):
    world = World(tmp_path)
    world.add_topic("t")
    assert found(world, LATEST) == (0, -1, 0)
    assert found(world, EARLIEST) == (0, -1, -1)
    assert found(world, MAX_TIMESTAMP) == NOTHING
    assert found(world, NOW_MS) == NOTHING


@pytest.mark.parametrize("replica_id", [-2, 3])
def test_replicas_see_the_whole_log(world, replica_id):
    world.partitions["t", 0].high_watermark = 4
    assert answer_of(world, ask((0, LATEST), replica_id=replica_id, isolation_level=1)).offset == 5


@pytest.mark.parametrize(
    ("timestamp", "first_version"),
    [
        (LATEST, 1),
        (EARLIEST, 1),
        (MAX_TIMESTAMP, 7),
        (EARLIEST_LOCAL, 8),
        (LATEST_TIERED, 9),
        (EARLIEST_PENDING_UPLOAD, 11),
        (-7, None),
        (-(2**63), None),
    ],
)
def test_each_special_timestamp_is_supported_since_its_version(world, timestamp, first_version):
    for version in range(1, 12):
        answer = answer_of(world, ask((0, timestamp)), version)
        known = first_version is not None and version >= first_version
        assert answer.error_code == (ErrorCode.none if known else ErrorCode.unsupported_version), version
        if not known:
            assert (answer.offset, answer.timestamp) == (-1, -1)


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (-1, ErrorCode.none),
        (4, ErrorCode.fenced_leader_epoch),
        (5, ErrorCode.none),
        (6, ErrorCode.unknown_leader_epoch),
    ],
)
def test_the_client_s_leader_epoch_must_be_the_current_one(world, epoch, error):
    answer = answer_of(world, ask((0, LATEST), epoch=epoch))
    assert answer.error_code == error
    if error is not ErrorCode.none:
        assert (answer.offset, answer.timestamp, answer.leader_epoch) == NOTHING


@pytest.mark.parametrize("error", [ErrorCode.not_leader_or_follower, ErrorCode.kafka_storage_error])
def test_the_leaders_error_is_the_partitions(world, error):
    world.errors["t", 0] = error
    assert answer_of(world, ask((0, LATEST))).error_code == error


@pytest.mark.parametrize(("topic", "index"), [("none", 0), ("t", 9)])
def test_an_unknown_partition(world, topic, index):
    answer = answer_of(world, ask((index, LATEST), topic=topic))
    assert answer.error_code == ErrorCode.unknown_topic_or_partition


def test_a_client_without_describe_permission(world):
    world.unauthorized.add("t")
    assert answer_of(world, ask((0, LATEST))).error_code == ErrorCode.topic_authorization_failed


@pytest.mark.parametrize(
    ("version", "error"), [(4, ErrorCode.leader_not_available), (5, ErrorCode.offset_not_available)]
)
def test_a_new_leader_without_a_valid_high_watermark(world, version, error):
    """A new leader whose high watermark is below the start of its epoch returns OFFSET_NOT_AVAILABLE, or
    LEADER_NOT_AVAILABLE in old versions (KIP-207)."""
    partition = world.partitions["t", 0]
    partition.latest = lambda read_committed: TimestampOffset(ErrorCode.offset_not_available)
    assert answer_of(world, ask((0, LATEST)), version).error_code == error


def test_a_partition_asked_for_twice_is_answered_once_with_an_error(world):
    world.add_topic("u")
    request = ask((0, LATEST), (0, EARLIEST))
    request.topics = [*request.topics, *ask((0, LATEST), topic="u").topics]
    twice, once = list_offsets(request, world.context(11, 2)).topics
    assert [each.error_code for each in twice.partitions] == [ErrorCode.invalid_request]
    assert [each.error_code for each in once.partitions] == [ErrorCode.none]


@pytest.mark.parametrize("codec", [NONE, GZIP])
async def test_many_records_are_searched_in_slices(world, codec):
    """The search of a large batch runs in slices (ADR 10), as a kilobyte can hold a million compressed records."""
    first = world.partitions["t", 0].log_end_offset
    records = [(NOW_MS + 100 + number, b"", b"x" * 200) for number in range(3000)]
    world.append("t", 0, build_batch(records, compression=codec))
    answer = list_offsets(ask((0, NOW_MS + 100 + 2999), (1, LATEST)), world.context(11, 2))
    assert asyncio.isfuture(answer)
    (topic,) = (await answer).topics
    assert [each.offset for each in topic.partitions] == [first + 2999, -1]


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_a_record_above_max_decompressed_message_bytes_is_an_error(world, codec):
    """The limit was lowered after the batch was appended. The search ends at the first record of a compressed batch that is
    too large, as in Apache Kafka 4.4.0."""
    log = world.partitions["t", 0].log
    records = [(NOW_MS + 100, b"", b"x"), (NOW_MS + 101, b"", b"x" * 200)]
    first = log.log_end_offset
    world.append("t", 0, build_batch(records, compression=codec))
    log.config = LogConfig(max_decompressed_message_bytes=100)
    assert found(world, NOW_MS + 100)[0] == first
    for timestamp in (NOW_MS + 101, MAX_TIMESTAMP):
        answer = answer_of(world, ask((0, timestamp)))
        if codec is NONE:
            assert (answer.error_code, answer.offset) == (0, first + 1)
        else:
            assert (answer.error_code, answer.offset) == (ErrorCode.invalid_record, -1)
    assert found(world, NOW_MS + 10)[0] == 1
    assert found(world, LATEST)[0] == log.log_end_offset


async def test_a_leader_that_changes_during_the_search_is_an_error(world):
    world.append("t", 0, build_batch([(NOW_MS + 100 + number, b"", b"") for number in range(3000)]))
    answer = list_offsets(ask((0, NOW_MS + 100 + 2999)), world.context(11, 2))
    world.errors["t", 0] = ErrorCode.not_leader_or_follower
    (topic,) = (await answer).topics
    assert topic.partitions[0].error_code == ErrorCode.not_leader_or_follower


def test_a_closed_log_is_not_searched_further(world):
    """A search ends without a result if the log is closed after the first of two batches was searched, although the second
    batch has the record."""
    partition = world.partitions["t", 0]
    first = partition.log_end_offset
    world.append("t", 0, build_batch([(NOW_MS + 100 * (number == 0), b"", b"") for number in range(1000)]))
    partition.delete_records(first + 1)
    world.append("t", 0, build_batch([(NOW_MS + 100, b"", b"")]))
    for closes in (False, True):
        search = partition.log.timestamp_search(NOW_MS + 100)
        assert next(search) is None, "a slice of the first batch"
        if closes:
            partition.log.close(clean=False)
        found = run(search)
        assert (found and found.offset) == (None if closes else first + 1000)


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_goes_over_the_wire(world, version):
    wire, ours = client_codec(2, version), request_codec(2, version)
    sent = b"".join(wire.encode(ask((0, LATEST), isolation_level=1)))
    response = list_offsets(ours.decode(sent), world.context(version, 2))
    (answer,) = wire.decode(b"".join(ours.encode(response))).topics[0].partitions
    # Version 1 has no isolation level, and versions before 4 have no leader epoch.
    assert (answer.offset, answer.leader_epoch) == (5 if version == 1 else 3, 5 if version >= 4 else -1)
