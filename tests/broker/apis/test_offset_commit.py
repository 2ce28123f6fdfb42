"""OffsetCommit in every version."""

import uuid
from typing import Any

import pytest

from protocol.errors import ErrorCode as E
from protocol.messages.offset_commit import OffsetCommitRequestPartition as Row
from protocol.messages.offset_commit import OffsetCommitRequestTopic as Rows
from tests.broker.groups.world import World

VERSIONS = range(2, 11)


@pytest.fixture
async def world() -> World:
    return World()


def generation(version: int, generation_id: int, member_id: str = "m") -> dict:
    return {"generation_id_or_member_epoch": generation_id, "member_id": member_id}


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_group_that_only_commits(world: World, version: int):
    assert world.commit(5, version=version) is E.none
    assert world.fetch() == (5, E.none)
    assert world.commit(6, version=version, member_id="any") is E.none
    assert world.commit(-7, version=version) is E.none
    assert world.fetch() == (-7, E.none)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("member_id", ["", "m"])
async def test_a_generation_of_an_unknown_group(world: World, version: int, member_id: str):
    error = world.commit(5, version=version, **generation(version, 0, member_id))
    assert error is (E.group_id_not_found if version >= 9 else E.illegal_generation)


@pytest.mark.parametrize("version", VERSIONS)
async def test_members(world: World, version: int):
    member = await world.member()
    assert world.commit(5, version=version, **generation(version, 1, member)) is E.none
    assert world.commit(6, version=version, **generation(version, 2, member)) is E.illegal_generation
    assert world.commit(6, version=version, **generation(version, 1, "unknown")) is E.unknown_member_id
    assert world.commit(6, version=version) is E.unknown_member_id
    assert world.fetch() == (5, E.none)


@pytest.mark.parametrize("version", range(7, 11))
async def test_a_fenced_instance_id(world: World, version: int):
    member = await world.member(group_instance_id="i")
    who = generation(version, 1, "unknown") | {"group_instance_id": "i"}
    assert world.commit(5, version=version, **who) is E.fenced_instance_id
    who = generation(version, 1, member) | {"group_instance_id": "i"}
    assert world.commit(5, version=version, **who) is E.none


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_empty_group_id_may_commit(world: World, version: int):
    assert world.commit(5, version=version, group="") is E.none
    assert world.fetch(group="") == (5, E.none)


async def test_metadata_has_a_bound(world: World):
    assert world.commit(5, metadata="x" * 4_096) is E.none
    assert world.commit(6, metadata="x" * 4_097) is E.offset_metadata_too_large
    assert world.commit(5, metadata=None) is E.none
    assert world.fetch() == (5, E.none)


def all_errors(response) -> dict[tuple[object, int], int]:
    return {
        (topic.name or topic.topic_id, row.partition_index): row.error_code
        for topic in response.topics
        for row in topic.partitions
    }


@pytest.mark.parametrize("version", range(2, 10))
async def test_unknown_topics_do_not_fail_the_others(world: World, version: int):
    rows = [Row(partition_index=index, committed_offset=5) for index in (0, 3, -1)]
    topics = [Rows(name="t", partitions=rows), Rows(name="nowhere", partitions=rows[:1])]
    response = world.ask("offset_commit", version, group_id="g", topics=topics)
    assert all_errors(response) == {
        ("t", 0): E.none,
        ("t", 3): E.unknown_topic_or_partition,
        ("t", -1): E.unknown_topic_or_partition,
        ("nowhere", 0): E.unknown_topic_or_partition,
    }
    assert world.fetch() == (5, E.none)


async def test_an_unknown_topic_id(world: World):
    stranger = uuid.UUID(int=9)
    rows = [Row(partition_index=0, committed_offset=5)]
    topics = [Rows(topic_id=stranger, partitions=rows), Rows(topic_id=world.topic.topic_id, partitions=rows)]
    response = world.ask("offset_commit", 10, group_id="g", topics=topics)
    assert all_errors(response) == {(stranger, 0): E.unknown_topic_id, (world.topic.topic_id, 0): E.none}


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_request_without_topics_has_no_results(world: World, version: int):
    assert tuple(world.ask("offset_commit", version, group_id="g", topics=[]).topics) == ()
    assert world.groups.all_groups() == []


async def test_a_group_s_error_is_every_partition_s(world: World):
    await world.member()
    rows = [Row(partition_index=index, committed_offset=5) for index in range(3)]
    response = world.ask("offset_commit", 8, group_id="g", topics=[Rows(name="t", partitions=rows)])
    assert set(all_errors(response).values()) == {E.unknown_member_id}
    assert len(all_errors(response)) == 3


@pytest.mark.parametrize("version", VERSIONS)
async def test_clients_without_permission(world: World, version: int):
    world.denied.add(("READ", "TOPIC", "t"))
    assert world.commit(5, version=version) is E.topic_authorization_failed
    world.denied.add(("READ", "GROUP", "g"))
    assert world.commit(5, version=version) is E.group_authorization_failed


@pytest.mark.parametrize("version", range(2, 5))
async def test_a_retention_of_its_own(world: World, version: int):
    world.commit(5, version=version, retention_time_ms=1_000)
    memory: Any = world.groups.memory()[0]
    (found,) = memory["committed"]["g"].values()
    assert found.expire_timestamp_ms == world.clock.now + 1_000


async def test_leader_epochs_since_v6(world: World):
    row = Row(partition_index=0, committed_offset=5, committed_leader_epoch=7)
    world.ask("offset_commit", 6, group_id="g", topics=[Rows(name="t", partitions=[row])])
    memory: Any = world.groups.memory()[0]
    (found,) = memory["committed"]["g"].values()
    assert found.leader_epoch == 7
