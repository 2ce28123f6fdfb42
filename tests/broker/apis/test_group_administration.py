"""ListGroups, DescribeGroups, DeleteGroups and OffsetDelete in every version."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from broker.apis.delete_groups import delete_groups
from broker.groups.commits import OffsetToCommit
from protocol.errors import ErrorCode as E
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.offset_delete import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from tests.broker.groups.world import World, subscription

OMITTED = -(2**31)
ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


@pytest.fixture
async def world() -> World:
    """A world with three groups: the first has only offsets, the second has a member, and the member of the third has
    left."""
    world = World()
    world.commit(5, group="simple")
    await world.member(group="stable")
    await world.member(group="left", protocol_type="connect")
    world.clock.advance(9_000)
    world.heartbeat("client-u2", group="stable")
    for member in world.classic_group("stable").members:
        world.heartbeat(member.member_id, group="stable")
    world.clock.advance(1_000)
    return world


# -- ListGroups -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
async def test_list(world: World, version: int):
    answer = world.ask("list_groups", version)
    assert answer.error_code == E.none
    state, kind = version >= 4, version >= 5
    assert {
        (group.group_id, group.protocol_type, group.group_state, group.group_type) for group in answer.groups
    } == {
        ("simple", "", "Empty" * state, "classic" * kind),
        ("stable", "consumer", "Stable" * state, "classic" * kind),
        ("left", "connect", "Empty" * state, "classic" * kind),
    }


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"states_filter": ["Stable"]}, {"stable"}),
        ({"states_filter": [" sTABLE "]}, {"stable"}),
        ({"states_filter": ["Empty", "Stable"]}, {"simple", "stable", "left"}),
        ({"states_filter": ["Dead", "nonsense"]}, set()),
        ({"types_filter": ["Classic"]}, {"simple", "stable", "left"}),
        ({"types_filter": ["consumer", "share"]}, set()),
        ({"types_filter": ["nonsense"]}, set()),
        ({"types_filter": ["classic"], "states_filter": ["Empty"]}, {"simple", "left"}),
    ],
)
async def test_list_with_filters(world: World, filters: dict, found: set[str]):
    assert {group.group_id for group in world.ask("list_groups", 5, **filters).groups} == found


async def test_list_for_a_client_that_may_not_see_everything(world: World):
    world.denied |= {("DESCRIBE", "CLUSTER", "kafka-cluster"), ("DESCRIBE", "GROUP", "stable")}
    assert {group.group_id for group in world.ask("list_groups", 5).groups} == {"simple", "left"}


# -- DescribeGroups -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
async def test_describe(world: World, version: int):
    stable, simple, left = world.ask("describe_groups", version, groups=["stable", "simple", "left"]).groups
    assert (stable.group_state, stable.protocol_type, stable.protocol_data) == ("Stable", "consumer", "range")
    (member,) = stable.members
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (subscription("t"), b"all")
    assert (simple.group_state, simple.protocol_type, tuple(simple.members)) == ("Empty", "", ())
    assert (left.group_state, left.protocol_type, left.protocol_data) == ("Empty", "connect", "")


@pytest.mark.parametrize("version", range(7))
async def test_describe_groups_that_do_not_exist(world: World, version: int):
    (group,) = world.ask("describe_groups", version, groups=["unknown"]).groups
    assert (group.group_id, group.group_state) == ("unknown", "Dead")
    if version >= 6:
        assert (group.error_code, group.error_message) == (E.group_id_not_found, "Group unknown not found.")
    else:
        assert (group.error_code, group.error_message) == (E.none, None)


async def test_describe_in_a_rebalance(world: World):
    world.join(version=3, group="stable")
    (group,) = world.ask("describe_groups", 5, groups=["stable"]).groups
    assert (group.group_state, group.protocol_data, len(group.members)) == ("PreparingRebalance", "", 2)
    assert {member.member_metadata for member in group.members} == {b""}


@pytest.mark.parametrize("version", range(3, 7))
async def test_describe_what_is_allowed(world: World, version: int):
    asked = {"groups": ["simple", "unknown"], "include_authorized_operations": True}
    there, absent = world.ask("describe_groups", version, **asked).groups
    assert there.authorized_operations == ALL_OPERATIONS
    assert absent.authorized_operations == (OMITTED if version >= 6 else ALL_OPERATIONS)
    world.denied.add(("DELETE", "GROUP", "simple"))
    assert world.ask("describe_groups", version, **asked).groups[
        0
    ].authorized_operations == ALL_OPERATIONS & ~(1 << 6)
    not_asked = world.ask("describe_groups", version, groups=["simple"]).groups[0]
    assert not_asked.authorized_operations == OMITTED


async def test_describe_for_an_unauthorized_client(world: World):
    world.denied.add(("DESCRIBE", "GROUP", "stable"))
    groups = world.ask("describe_groups", 5, groups=["simple", "stable"]).groups
    assert {group.group_id: group.error_code for group in groups} == {
        "simple": E.none,
        "stable": E.group_authorization_failed,
    }


async def test_describe_static_members(world: World):
    await world.member(group="static", group_instance_id="i")
    for version in (3, 4, 6):
        (group,) = world.ask("describe_groups", version, groups=["static"]).groups
        assert group.members[0].group_instance_id == ("i" if version >= 4 else None)


# -- DeleteGroups ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
async def test_delete(world: World, version: int):
    world.denied.add(("DELETE", "GROUP", "left"))
    names = ["simple", "stable", "unknown", "simple", "left", ""]
    answer = world.ask("delete_groups", version, groups_names=names)
    assert [(result.group_id, result.error_code) for result in answer.results] == [
        ("simple", E.none),
        ("stable", E.non_empty_group),
        ("unknown", E.group_id_not_found),
        ("", E.group_id_not_found),
        ("left", E.group_authorization_failed),
    ]
    assert world.fetch(group="simple") == (-1, E.none)
    assert "simple" not in {group.group_id for group in world.ask("list_groups", 0).groups}
    world.restart()
    assert world.fetch(group="simple") == (-1, E.none)


class Compared(str):
    """A group name that counts how often it is compared with another name."""

    __slots__ = ()
    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


async def test_many_groups_cost_no_more_each_than_a_few(world: World):
    """The time of DeleteGroups is linear in the number of groups. An earlier version compared each of 50,000 names with
    all others, and so blocked all clients for a minute."""
    names = [Compared(f"unknown-{number}") for number in range(500)]
    context: Any = SimpleNamespace(node=world.node, authorize=lambda *asked: True)
    answer = await delete_groups(DeleteGroupsRequest(groups_names=names), context)
    assert {result.error_code for result in answer.results} == {E.group_id_not_found}
    assert Compared.times < 10 * len(names)


async def test_many_groups_are_described_in_slices(world: World):
    names = [f"unknown-{number}" for number in range(500)]
    answer = world.ask("describe_groups", 6, groups=["simple", *names])
    assert asyncio.isfuture(answer)
    assert [group.group_id for group in (await answer).groups] == ["simple", *names]


async def test_a_transaction_s_marker_does_not_restore_a_deleted_group(world: World):
    offsets = [OffsetToCommit("t", 0, 7), OffsetToCommit("t", 1, 7)]
    await world.groups.commit_transactional("simple", "", -1, None, 1, 0, offsets, 3, verified=True)
    world.ask("delete_groups", 2, groups_names=["simple"])
    world.marker(1, True)
    assert world.fetch(group="simple") == world.fetch(group="simple", partition=1) == (-1, E.none)


async def test_delete_is_answered_when_it_is_committed(world: World):
    world.partition.hold = True
    answer = world.ask("delete_groups", 2, groups_names=["simple", "stable"])
    assert not answer.done()
    world.partition.release()
    assert [result.error_code for result in (await answer).results] == [E.none, E.non_empty_group]


# -- OffsetDelete ---------------------------------------------------------------------------------------------------


def delete_offsets(world: World, group: str, *spots: tuple[str, int]):
    topics: dict[str, list] = {}
    for topic, partition in spots:
        topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=partition))
    answer = world.ask(
        "offset_delete",
        0,
        group_id=group,
        topics=[OffsetDeleteRequestTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )
    errors = {
        (topic.name, row.partition_index): row.error_code
        for topic in answer.topics
        for row in topic.partitions
    }
    return answer.error_code, errors


async def test_delete_offsets(world: World):
    world.commit(6, group="simple", partition=1)
    error, errors = delete_offsets(world, "simple", ("t", 0), ("t", 2), ("t", 9), ("nowhere", 0))
    assert error == E.none
    assert errors == {
        ("t", 0): E.none,
        ("t", 2): E.none,
        ("t", 9): E.unknown_topic_or_partition,
        ("nowhere", 0): E.unknown_topic_or_partition,
    }
    assert world.fetch(group="simple") == (-1, E.none)
    assert world.fetch(group="simple", partition=1) == (6, E.none)


async def test_delete_a_pending_offset(world: World):
    offsets = [OffsetToCommit("t", 1, 7)]
    await world.groups.commit_transactional("simple", "", -1, None, 1, 0, offsets, 3, verified=True)
    assert delete_offsets(world, "simple", ("t", 1))[1] == {("t", 1): E.none}
    world.marker(1, True)
    assert world.fetch(group="simple", partition=1) == (-1, E.none)


async def test_delete_offsets_of_subscribed_topics(world: World):
    world.metadata.add("u", 1)
    error, errors = delete_offsets(world, "stable", ("t", 0), ("u", 0))
    assert (error, errors) == (E.none, {("t", 0): E.group_subscribed_to_topic, ("u", 0): E.none})


@pytest.mark.parametrize(
    ("group", "error"),
    [("unknown", E.group_id_not_found), ("", E.invalid_group_id), ("connect", E.non_empty_group)],
)
async def test_delete_offsets_of_a_group_that_cannot(world: World, group: str, error: E):
    await world.member(group="connect", protocol_type="connect")
    assert delete_offsets(world, group, ("t", 0)) == (error, {})
    # The error is the same if no partition would be affected.
    assert delete_offsets(world, group, ("nowhere", 0)) == (error, {})


async def test_delete_offsets_for_an_unauthorized_client(world: World):
    world.denied.add(("READ", "TOPIC", "t"))
    assert delete_offsets(world, "simple", ("t", 0)) == (E.none, {("t", 0): E.topic_authorization_failed})
    world.denied.add(("DELETE", "GROUP", "simple"))
    assert delete_offsets(world, "simple", ("t", 0)) == (E.group_authorization_failed, {})
