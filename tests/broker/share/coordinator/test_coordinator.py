"""The five requests to a share coordinator with a real log: responses, records, restarts, timers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.injection.crash import on_passage
from broker.metadata.topics import SHARE_GROUP_STATE
from broker.share.state import SharePartitionKey
from broker.share.state_apis import DELETE, INITIALIZE, READ, SUMMARY, WRITE, ShareStateApi
from protocol.codec import client_codec, request_codec
from protocol.errors import ErrorCode
from protocol.records.share_state_log import ShareSnapshotKey, ShareUpdateKey, decode_record
from tests.support.coroutines import handled
from tests.support.points import Gate
from tests.support.world import OTHER_NODE_ID, World

COLD_MS = 300_000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A node that leads the topic "t" and the three partitions of ``__share_group_state``."""
    settings = {
        "share.coordinator.snapshot.update.records.per.snapshot": "2",
        "share.coordinator.state.topic.num.partitions": "3",
    }
    world = World(tmp_path, settings=settings)
    world.create("t", 3)
    world.create(SHARE_GROUP_STATE, 3)
    yield world
    world.abandon()


def topic_id(world: World, name: str = "t") -> Any:
    return world.cluster.topics[name].topic_id


def key(world: World, partition: int = 0) -> SharePartitionKey:
    return SharePartitionKey("g", topic_id(world), partition)


def send(world: World, api: ShareStateApi, request: Any) -> Any:
    """Send a request through its handler. Returns the response as a client decodes it, or a future of our response."""
    module = f"{api.messages.__name__.rpartition('.')[2]}"
    handler = getattr(import_module(f"broker.apis.{module}"), module)
    data = b"".join(client_codec(api.key, api.version).encode(request))
    answer = handled(handler, request_codec(api.key, api.version).decode(data), world.context(api.version))
    if isinstance(answer, asyncio.Future):
        return answer
    return client_codec(api.key, api.version).decode(
        b"".join(request_codec(api.key, api.version).encode(answer))
    )


def ask(world: World, api: ShareStateApi, *partitions: int, topic: str = "t", **fields: Any) -> Any:
    """Send a request for partitions of a topic. Returns the results, one if there is one."""
    wanted = [
        (topic_id(world, topic), api.messages.PartitionData(partition=index, **fields))
        for index in partitions or (0,)
    ]
    answer = send(world, api, api.request("g", wanted))
    if isinstance(answer, asyncio.Future):
        return answer
    results = [each for result in answer.results for each in result.partitions]
    return results[0] if len(results) == 1 else results


def initialize(world: World, *partitions: int, state_epoch: int = 2, start_offset: int = -1) -> Any:
    return ask(world, INITIALIZE, *partitions, state_epoch=state_epoch, start_offset=start_offset)


def write(world: World, start: int, *batches: tuple[int, int, int, int], **fields: Any) -> Any:
    names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
    found = [WRITE.messages.StateBatch(**dict(zip(names, each, strict=True))) for each in batches]
    return ask(world, WRITE, start_offset=start, state_batches=found, **{"state_epoch": 2, **fields})


def partition_of(world: World, index: int = 0) -> Any:
    coordinator = world.node.share_coordinator
    return world.partition(SHARE_GROUP_STATE, coordinator.partition_for(key(world, index).coordinator_key))


def kinds(partition: Any) -> list[str]:
    """The records of a partition of ``__share_group_state``: snapshot, update, tombstone."""
    found = []
    for batch in partition.log.batches(partition.log_start_offset):
        for raw_key, value in batch.keys_and_values():
            record = decode_record(raw_key, value)
            assert record is not None
            name = {ShareSnapshotKey: "snapshot", ShareUpdateKey: "update"}[type(record[0])]
            found.append("tombstone" if value is None else name)
    return found


@contextmanager
def hold_commits(partition: Any) -> Iterator[None]:
    """Make appends succeed but stay uncommitted, as if no other replica fetched them."""
    advance = partition.advance_high_watermark
    partition.advance_high_watermark = lambda: None
    try:
        yield
    finally:
        partition.advance_high_watermark = advance


def test_the_state_of_a_share_partition_from_its_initialization_to_its_deletion(world: World) -> None:
    assert initialize(world).error_code == 0
    assert write(world, 0, (1, 1, 2, 1), delivery_complete_count=1).error_code == 0
    read = ask(world, READ, leader_epoch=4)
    assert (read.error_code, read.error_message, read.state_epoch, read.start_offset) == (0, None, 2, 0)
    assert [
        (b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in read.state_batches
    ] == [(1, 1, 2, 1)]
    summary = ask(world, SUMMARY)
    assert (summary.state_epoch, summary.leader_epoch, summary.start_offset) == (2, 4, 0)
    assert summary.delivery_complete_count == 1
    assert write(world, 0, leader_epoch=3).error_code == ErrorCode.fenced_leader_epoch
    assert ask(world, DELETE).error_code == 0
    assert ask(world, SUMMARY).start_offset == -1
    partition = partition_of(world)
    assert kinds(partition) == ["snapshot", "update", "update", "tombstone"]
    assert {batch.base_sequence for batch in partition.log.batches(0)} == {0}


def test_a_request_with_many_partitions_has_a_result_for_each(world: World) -> None:
    results = initialize(world, 0, 1, 2, 7, -1)
    assert [(each.partition, each.error_code) for each in results] == [
        (0, 0), (1, 0), (2, 0), (7, ErrorCode.unknown_topic_or_partition), (-1, ErrorCode.invalid_request)
    ]  # fmt: skip


@pytest.mark.parametrize("api", [INITIALIZE, READ, WRITE, DELETE, SUMMARY])
def test_an_empty_group_or_topic_list_has_an_empty_response(world: World, api: ShareStateApi) -> None:
    wanted = [(topic_id(world), api.messages.PartitionData(partition=0))]
    assert send(world, api, api.request("", wanted)).results == ()
    assert send(world, api, api.request("g", [])).results == ()


def test_a_topic_without_partitions_ends_a_request_except_an_initialization(world: World) -> None:
    for api in (INITIALIZE, SUMMARY):
        request = api.request("g", [(topic_id(world), api.messages.PartitionData(partition=0))])
        topic_data = type(request.topics[0])
        request.topics = [*request.topics, topic_data(topic_id=topic_id(world, SHARE_GROUP_STATE))]
        assert len(send(world, api, request).results) == (1 if api is INITIALIZE else 0)


def test_a_client_without_cluster_action_gets_an_error_for_each_partition(world: World) -> None:
    def authorize(principal: str, host: str, operation: str, *resource: str) -> bool:
        return operation != "CLUSTER_ACTION"

    world.node.authorizer = SimpleNamespace(authorize=authorize)
    for api in (INITIALIZE, READ, WRITE, DELETE, SUMMARY):
        results = ask(world, api, 0, 1)
        assert [(each.error_code, each.error_message) for each in results] == [
            (ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")
        ] * 2


def test_another_node_or_no_topic_is_not_the_coordinator(world: World) -> None:
    initialize(world)
    for index in range(3):
        world.cluster.move(SHARE_GROUP_STATE, index, OTHER_NODE_ID)
    result = write(world, 0)
    message = "Unable to write share group state: This is not the correct coordinator."
    assert (result.error_code, result.error_message) == (ErrorCode.not_coordinator, message)
    world.cluster.delete(SHARE_GROUP_STATE)
    assert ask(world, SUMMARY).error_code == ErrorCode.not_coordinator


def test_the_state_is_the_same_after_a_crash(world: World) -> None:
    initialize(world, 0, 1, 2)
    for n in range(4):
        write(world, 0, (n + 1, n + 1, 2, 1))
    before = world.node.share_coordinator.memory()
    assert len(world.node.share_coordinator.known()) == 3
    world.crash()
    world.node.share_coordinator.start()
    assert world.node.share_coordinator.memory() == before


async def test_a_response_waits_for_the_commit(world: World) -> None:
    initialize(world)
    partition = partition_of(world)
    with hold_commits(partition):
        first, second = write(world, 0, (1, 1, 2, 1)), ask(world, READ)
        await asyncio.sleep(0)
        assert not first.done()
        assert not second.done(), "the read has seen what is not committed yet"
    partition.advance_high_watermark()
    assert (await first).results[0].partitions[0].error_code == 0
    assert (await second).results[0].partitions[0].state_batches


async def test_a_killed_node_does_not_respond(world: World) -> None:
    initialize(world)
    partition = partition_of(world)
    with hold_commits(partition):
        answer = write(world, 0, (1, 1, 2, 1))
    world.node.life.end()
    partition.advance_high_watermark()
    world.clock.advance(60_000)
    await asyncio.sleep(0)
    assert not answer.done()


async def test_a_new_leader_commits_what_is_in_its_log(world: World) -> None:
    """The response of the old coordinator is an error, although the record is not lost."""
    initialize(world)
    partition = partition_of(world)
    with hold_commits(partition):
        answer = write(world, 0, (1, 1, 2, 1))
        world.cluster.move(SHARE_GROUP_STATE, partition.index, OTHER_NODE_ID)
        [result] = (await answer).results[0].partitions
        assert result.error_code == ErrorCode.not_coordinator
    world.cluster.move(SHARE_GROUP_STATE, partition.index, 1)
    partition.advance_high_watermark()
    assert len(ask(world, READ).state_batches) == 1


async def test_a_commit_that_takes_too_long(world: World) -> None:
    initialize(world)
    with hold_commits(partition_of(world)):
        answer = write(world, 0)
        world.clock.advance(5_000)
        [result] = (await answer).results[0].partitions
    assert result.error_code == ErrorCode.coordinator_not_available
    assert result.error_message == "Unable to write share group state: The coordinator is not available."


def test_the_states_of_a_deleted_topic_are_deleted(world: World) -> None:
    initialize(world, 0, 1, 2)
    world.cluster.delete("t")
    assert world.node.share_coordinator.known() == []
    logs = [
        kinds(partition) for partition in world.node.replicas.opened() if partition.topic == SHARE_GROUP_STATE
    ]
    assert sorted(kind for log in logs for kind in log) == ["snapshot"] * 3 + ["tombstone"] * 3


def test_cold_snapshots_and_pruning(world: World) -> None:
    world.cluster.features["share.version"] = 1
    world.node.share_coordinator.start()
    initialize(world)
    for n in range(3):
        write(world, 0, (n + 1, n + 1, 2, 1))
    partition = partition_of(world)
    assert kinds(partition) == ["snapshot", "update", "update", "snapshot"]
    world.clock.advance(COLD_MS)
    assert partition.log_start_offset == 3, "the records before the last snapshot are deleted"
    assert kinds(partition) == ["snapshot", "snapshot"], (
        "the share partition is cold and has got a new snapshot"
    )
    world.clock.advance(10 * COLD_MS)
    assert kinds(partition) == ["snapshot"], "one cold snapshot is enough"
    write(world, 0, (9, 9, 2, 1))
    before = world.node.share_coordinator.known()
    world.crash()
    world.node.share_coordinator.start()
    assert world.node.share_coordinator.known() == before


def test_nothing_is_pruned_while_share_groups_are_not_enabled(world: World) -> None:
    world.node.share_coordinator.start()
    initialize(world)
    initialize(world)
    world.clock.advance(3 * COLD_MS)
    assert kinds(partition_of(world)) == ["snapshot", "snapshot"]


# -- fault rules ----------------------------------------------------------------------------------------------------


async def test_a_held_append_is_decided_again_when_it_is_released(world: World) -> None:
    """Meanwhile another leader has raised the leader epoch, so that the held write is fenced."""
    initialize(world, start_offset=0)
    world.injection.points = gate = Gate("share.append")
    writing = write(world, 0, (0, 4, 2, 1), leader_epoch=1)
    [held] = gate.held
    at = held.at
    assert (at.node_id, at.topic, at.partition, at.group_id) == (1, "t", 0, "g")
    assert at.offsets == ((0, 4),)
    world.injection.points = None
    assert ask(world, READ, leader_epoch=2).error_code == 0
    gate.release()
    answer = await writing
    assert answer.results[0].partitions[0].error_code == ErrorCode.fenced_leader_epoch
    assert kinds(partition_of(world)) == ["snapshot", "update"], "of the read"


async def test_an_append_that_is_refused(world: World) -> None:
    world.injection.points = gate = Gate("share.append")
    initializing = initialize(world, start_offset=0)
    gate.refuse(ErrorCode.not_enough_replicas)
    result = (await initializing).results[0].partitions[0]
    assert (result.error_code, kinds(partition_of(world))) == (ErrorCode.coordinator_not_available, [])


async def test_a_request_that_writes_nothing_is_no_step(world: World) -> None:
    initialize(world, start_offset=0)
    world.injection.points = gate = Gate("share.append")
    assert ask(world, SUMMARY).error_code == 0
    assert write(world, 0, state_epoch=1).error_code == ErrorCode.fenced_state_epoch
    assert (gate.held, gate.passed) == ([], [])


async def test_a_held_append_ends_with_the_leadership(world: World) -> None:
    initialize(world, start_offset=0)
    world.injection.points = gate = Gate("share.append")
    writing = write(world, 0, (0, 4, 2, 1))
    world.injection.points = None
    partition = partition_of(world)
    world.node.share_coordinator._runtime.unload(partition.index)
    answer = await writing
    assert answer.results[0].partitions[0].error_code == ErrorCode.not_coordinator
    gate.release()
    assert kinds(partition) == ["snapshot"]


def test_the_crash_points_lie_around_the_append(world: World) -> None:
    partition = partition_of(world)
    passed: list[tuple[str, int]] = []
    with on_passage(lambda name: passed.append((name, partition.log_end_offset))):
        initialize(world, start_offset=0)
    assert [each for each in passed if each[0].startswith("share")] == [
        ("share.append.before", 0),
        ("share.append.after", 1),
    ]
