"""OffsetFetch in every version."""

import uuid
from typing import Any

import pytest

from broker.groups.commits import OffsetToCommit
from broker.metadata.values import Topic
from protocol.errors import ErrorCode as E
from protocol.messages.offset_fetch import OffsetFetchRequestGroup as Group
from protocol.messages.offset_fetch import OffsetFetchRequestTopic as OldTopic
from protocol.messages.offset_fetch import OffsetFetchRequestTopics as AskedTopic
from tests.broker.groups.world import World

OLD = range(1, 8)
NEW = range(8, 11)
NOTHING = (-1, -1, "", E.none)


@pytest.fixture
async def world() -> World:
    return World()


def fetch(world: World, version: int, *partitions: int, group: str = "g", everything: bool = False, **more):
    """Send OffsetFetch and return (error of the group, {(topic, partition): (offset, leader epoch, metadata, error)})."""
    if version in OLD:
        old_topics = None if everything else [OldTopic(name="t", partition_indexes=partitions)]
        answer = world.ask("offset_fetch", version, group_id=group, topics=old_topics, **more)
    else:
        named: dict[str, Any] = {"topic_id": world.topic.topic_id} if version >= 10 else {"name": "t"}
        topics = None if everything else [AskedTopic(**named, partition_indexes=partitions)]
        groups = [Group(group_id=group, topics=topics)]
        (answer,) = world.ask("offset_fetch", version, groups=groups, **more).groups
        assert answer.group_id == group
    return answer.error_code, {
        (topic.topic_id if version >= 10 else topic.name, row.partition_index): (
            row.committed_offset,
            row.committed_leader_epoch,
            row.metadata,
            row.error_code,
        )
        for topic in answer.topics
        for row in topic.partitions
    }


def name(world: World, version: int) -> object:
    return world.topic.topic_id if version >= 10 else "t"


@pytest.mark.parametrize("version", [*OLD, *NEW])
async def test_committed_and_missing_offsets(world: World, version: int):
    world.commit(5, metadata="m")
    topic = name(world, version)
    assert fetch(world, version, 0, 1) == (E.none, {(topic, 0): (5, -1, "m", E.none), (topic, 1): NOTHING})
    assert fetch(world, version, 0, group="unknown") == (E.none, {(topic, 0): NOTHING})


@pytest.mark.parametrize("version", [*range(2, 8), *NEW])
async def test_all_offsets_of_a_group(world: World, version: int):
    assert fetch(world, version, everything=True) == (E.none, {})
    world.commit(5)
    world.commit(6, partition=2)
    topic = name(world, version)
    expected = {(topic, 0): (5, -1, "", E.none), (topic, 2): (6, -1, "", E.none)}
    assert fetch(world, version, everything=True) == (E.none, expected)


@pytest.mark.parametrize("version", [7, *NEW])
async def test_an_offset_is_unstable_while_a_transaction_is_open(world: World, version: int):
    world.commit(5)
    offsets = [OffsetToCommit("t", index, 7) for index in (0, 1)]
    await world.groups.commit_transactional("g", "", -1, None, 1, 0, offsets, 3, verified=True)
    topic = name(world, version)
    unstable = (-1, -1, "", E.unstable_offset_commit)
    assert fetch(world, version, 0, 1, require_stable=True)[1] == {(topic, 0): unstable, (topic, 1): unstable}
    # A request for all partitions omits a partition that has only a pending transactional offset.
    assert fetch(world, version, everything=True, require_stable=True)[1] == {(topic, 0): unstable}
    assert fetch(world, version, 0, 1)[1] == {(topic, 0): (5, -1, "", E.none), (topic, 1): NOTHING}


@pytest.mark.parametrize("version", [*OLD, *NEW])
async def test_the_error_of_a_group(world: World, version: int):
    world.commit(5)
    world.partition.leader_id = 2
    error, partitions = fetch(world, version, 0)
    if version == 1:
        assert partitions == {("t", 0): (-1, -1, "", E.not_coordinator)}
    else:
        assert (error, partitions) == (E.not_coordinator, {})


@pytest.mark.parametrize("version", [*OLD, *NEW])
async def test_a_client_without_describe_permission_for_the_group(world: World, version: int):
    world.denied.add(("DESCRIBE", "GROUP", "g"))
    error, partitions = fetch(world, version, 0)
    codes = {error, *(row[3] for row in partitions.values())}
    assert E.group_authorization_failed in codes


@pytest.mark.parametrize("version", [*OLD, *NEW])
async def test_a_client_without_describe_permission_for_the_topic(world: World, version: int):
    world.commit(5)
    world.denied.add(("DESCRIBE", "TOPIC", "t"))
    topic = name(world, version)
    assert fetch(world, version, 0)[1] == {(topic, 0): (-1, -1, "", E.topic_authorization_failed)}
    if version > 1:
        assert fetch(world, version, everything=True) == (E.none, {})


async def test_many_groups_each_with_its_own_answer():
    world = World(offsets_partitions=3)
    for number, group in enumerate("abc"):
        world.commit(number, group=group)
    groups = [Group(group_id=group, topics=[AskedTopic(name="t", partition_indexes=[0])]) for group in "abcd"]
    answer = world.ask("offset_fetch", 8, groups=groups)
    assert [group.topics[0].partitions[0].committed_offset for group in answer.groups] == [0, 1, 2, -1]


async def test_one_of_many_groups_has_to_wait():
    world = World(offsets_partitions=3)
    for number, group in enumerate("abc"):
        world.commit(number, group=group)
    for partition in world.partitions.values():
        partition.hold = True
    world.commit(9, group="b")
    groups = [Group(group_id=group, topics=[AskedTopic(name="t", partition_indexes=[0])]) for group in "abc"]
    assert [
        group.topics[0].partitions[0].committed_offset
        for group in world.ask("offset_fetch", 8, groups=groups).groups
    ] == [0, 1, 2]
    answer = world.ask("offset_fetch", 8, groups=groups, require_stable=True)
    for partition in world.partitions.values():
        partition.release()
    offsets = [group.topics[0].partitions[0].committed_offset for group in (await answer).groups]
    assert offsets == [0, 9, 2]


@pytest.mark.parametrize("version", [9, 10])
async def test_classic_groups_do_not_check_the_member(world: World, version: int):
    world.commit(5)
    named = {"topic_id": world.topic.topic_id} if version >= 10 else {"name": "t"}
    topics = [AskedTopic(**named, partition_indexes=[0])]
    groups = [Group(group_id="g", member_id="unknown", member_epoch=99, topics=topics)]
    (answer,) = world.ask("offset_fetch", version, groups=groups).groups
    assert (answer.error_code, answer.topics[0].partitions[0].committed_offset) == (E.none, 5)


async def test_an_unknown_topic_id(world: World):
    stranger = uuid.UUID(int=9)
    groups = [Group(group_id="g", topics=[AskedTopic(topic_id=stranger, partition_indexes=[0])])]
    (answer,) = world.ask("offset_fetch", 10, groups=groups).groups
    (topic,) = answer.topics
    assert topic.topic_id == stranger
    assert [(row.committed_offset, row.error_code) for row in topic.partitions] == [(-1, E.unknown_topic_id)]


async def test_a_recreated_topic_has_its_old_offsets_by_name_but_none_by_id(world: World):
    world.commit(5)
    world.topic = world.metadata.topics["t"] = Topic("t", uuid.UUID(int=9), world.topic.partitions)
    assert fetch(world, 10, 0) == (E.none, {(world.topic.topic_id, 0): NOTHING})
    assert fetch(world, 9, 0) == (E.none, {("t", 0): (5, -1, "", E.none)})


async def test_offsets_may_outlive_their_topic(world: World):
    world.commit(5)
    del world.metadata.topics["t"]
    assert fetch(world, 9, 0)[1] == {("t", 0): (5, -1, "", E.none)}
    assert fetch(world, 9, everything=True)[1] == {("t", 0): (5, -1, "", E.none)}
    # Versions with topic ids cannot return a topic that has been deleted.
    assert fetch(world, 10, everything=True) == (E.none, {})
