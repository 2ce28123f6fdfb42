"""The node is killed at each line where the group coordinator waits: nothing is written, and no client gets a response.

The last test checks that the registered walks (see ``walk``) reach every `await` of `broker/groups` and of the group
APIs.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import broker.groups
from broker.loop.coroutines import Suspended
from protocol.errors import ErrorCode as E
from protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequestTopic
from protocol.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequestGroup
from protocol.messages.leave_group import MemberIdentity
from protocol.messages.offset_delete import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequestGroup
from tests.broker.groups.consumer.test_consumer_groups import Client
from tests.broker.groups.test_coordinator import commit_transactional
from tests.broker.groups.world import World, settled, turn
from tests.support.points import Gate

PACKAGE = Path(broker.groups.__file__).parent
APIS = (
    "consumer_group_heartbeat",
    "alter_share_group_offsets",
    "delete_groups",
    "delete_share_group_offsets",
    "heartbeat",
    "join_group",
    "leave_group",
    "offset_commit",
    "offset_delete",
    "offset_fetch",
    "share_group_heartbeat",
    "sync_group",
)
MODULES = {*PACKAGE.rglob("*.py"), *(PACKAGE.parent / "apis" / f"{api}.py" for api in APIS)}
Requests = list[Any]
Walk = Callable[[World], Awaitable[Requests]]
WALKS: dict[str, Walk] = {}


def walk(function: Walk) -> Walk:
    """Register a walk: a function that sends requests until they wait, and returns the requests without a response."""
    WALKS[function.__name__] = function
    return function


def hold_appends(world: World) -> None:
    """Hold every append with a fault rule."""
    world.injection.points = Gate("group.append")


def hold_commits(world: World) -> None:
    """Make appends succeed but stay uncommitted, as if no other replica fetched them."""
    world.partition.hold = True


# -- offsets --------------------------------------------------------------------------------------------------------


def delete_offsets(world: World) -> Any:
    topics = [
        OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    ]
    return world.ask("offset_delete", 0, group_id="g", topics=topics)


@walk
async def commit_that_a_rule_holds(world: World) -> Requests:
    hold_appends(world)
    return [world.commit(5)]


@walk
async def commit_that_is_not_committed(world: World) -> Requests:
    hold_commits(world)
    return [world.commit(5)]


@walk
async def transactional_commit(world: World) -> Requests:
    hold_commits(world)
    return [commit_transactional(world)]


@walk
async def fetch_of_stable_offsets(world: World) -> Requests:
    hold_commits(world)
    groups = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in "gh"]
    return [
        world.commit(5),
        world.fetch(stable=True),
        world.ask("offset_fetch", 8, groups=groups, require_stable=True),
    ]


@walk
async def deletion_of_offsets(world: World) -> Requests:
    world.commit(5)
    hold_commits(world)
    return [delete_offsets(world)]


@walk
async def deletion_of_offsets_that_a_rule_holds(world: World) -> Requests:
    world.commit(5)
    hold_appends(world)
    return [delete_offsets(world)]


@walk
async def deletion_of_a_group_behind_a_commit(world: World) -> Requests:
    world.commit(5)
    hold_commits(world)
    return [world.commit(6, group="h"), world.ask("delete_groups", 2, groups_names=["g", "x"])]


@walk
async def deletion_of_a_group(world: World) -> Requests:
    world.commit(5)
    hold_commits(world)
    return [world.ask("delete_groups", 2, groups_names=["g", "x"])]


@walk
async def expiry(world: World) -> Requests:
    world.commit(5)
    hold_commits(world)
    world.clock.advance(7 * 86_400_000)
    return []


@walk
async def deletion_of_a_topic(world: World) -> Requests:
    world.commit(5)
    hold_commits(world)
    world.groups.on_topic_deleted(world.topic)
    return []


# -- classic groups -------------------------------------------------------------------------------------------------


@walk
async def join_that_waits_for_members(world: World) -> Requests:
    return [world.join(version=3)]


@walk
async def join_whose_group_is_not_committed(world: World) -> Requests:
    hold_commits(world)
    return [world.join()]


@walk
async def join_whose_group_is_not_committed_in_time(world: World) -> Requests:
    hold_commits(world)
    joining = world.join()
    world.clock.advance(5_000)
    assert (await joining).error_code == E.coordinator_not_available
    return []


@walk
async def sync_that_waits_for_the_leader(world: World) -> Requests:
    joining = world.join(version=3), world.join(version=3)
    world.clock.advance(0)
    leader, follower = [(await each).member_id for each in joining]
    assert leader != follower
    return [world.sync(follower)]


@walk
async def sync_whose_assignment_a_rule_holds(world: World) -> Requests:
    joining = world.join(version=3)
    world.clock.advance(0)
    member = (await joining).member_id
    hold_appends(world)
    return [world.sync(member, {member: b"all"})]


@walk
async def sync_whose_assignment_is_not_committed(world: World) -> Requests:
    joining = world.join(version=3)
    world.clock.advance(0)
    member = (await joining).member_id
    hold_commits(world)
    return [world.sync(member, {member: b"all"})]


@walk
async def assignment_that_is_out_of_date_when_a_rule_lets_it_go(world: World) -> Requests:
    joining = world.join(version=3)
    world.clock.advance(0)
    member = (await joining).member_id
    world.injection.points = gate = Gate("group.append")
    syncing = world.sync(member, {member: b"all"})
    world.injection.points = None
    hold_commits(world)
    leaving = world.ask("leave_group", 3, group_id="g", members=[MemberIdentity(member_id=member)])
    assert (await syncing).error_code == E.unknown_member_id
    gate.release()
    return [leaving]


@walk
async def heartbeat_behind_a_commit(world: World) -> Requests:
    member = await world.member()
    hold_commits(world)
    beat = {"group_id": "g", "generation_id": 1, "member_id": member}
    return [world.commit(5, group="h"), world.ask("heartbeat", 4, **beat)]


@walk
async def leave_of_the_last_member(world: World) -> Requests:
    member = await world.member()
    hold_commits(world)
    return [world.ask("leave_group", 3, group_id="g", members=[MemberIdentity(member_id=member)])]


@walk
async def leave_of_a_stranger_behind_a_commit(world: World) -> Requests:
    await world.member()
    hold_commits(world)
    stranger = [MemberIdentity(member_id="stranger")]
    leaving = [world.ask("leave_group", 3, group_id="g", members=stranger)]
    leaving.append(world.ask("leave_group", 2, group_id="g", member_id="stranger"))
    assert not any(isinstance(each, Awaitable) for each in leaving), (
        "no append is in flight, so they do not wait"
    )
    return [
        world.commit(5, group="h"),
        world.ask("leave_group", 3, group_id="g", members=stranger),
        world.ask("leave_group", 2, group_id="g", member_id="stranger"),
    ]


# -- consumer groups ------------------------------------------------------------------------------------------------


@walk
async def heartbeat_that_a_rule_holds(world: World) -> Requests:
    hold_appends(world)
    return [Client(world, "m").join()]


@walk
async def heartbeat_that_is_not_committed(world: World) -> Requests:
    hold_commits(world)
    return [Client(world, "m").join()]


@walk
async def end_of_a_session_that_a_rule_holds(world: World) -> Requests:
    Client(world, "m").join()
    hold_appends(world)
    world.clock.advance(46_000)
    return []


@walk
async def end_of_a_session_that_is_not_committed(world: World) -> Requests:
    Client(world, "m").join()
    hold_commits(world)
    world.clock.advance(46_000)
    return []


@walk
async def regular_expression_that_is_resolved(world: World) -> Requests:
    Client(world, "m", subscribed_topic_names=None, subscribed_topic_regex="t").join()
    hold_commits(world)
    world.clock.advance(0)
    return []


@walk
async def classic_join_of_a_consumer_group(world: World) -> Requests:
    Client(world, "m").join()
    hold_commits(world)
    return [world.join(version=3)]


async def classic_member(world: World) -> str:
    """Add a member of the classic protocol to a consumer group, and return its id."""
    Client(world, "m").join()
    joined = await settled(world.join(version=3))
    assert joined.error_code == E.none
    hold_commits(world)
    world.commit(5, group="h").cancel()
    return str(joined.member_id)


@walk
async def classic_sync_in_a_consumer_group(world: World) -> Requests:
    member = await classic_member(world)
    generation = world.consumer_group("g").members[member].member_epoch
    return [world.sync(member, generation=generation)]


@walk
async def classic_heartbeat_in_a_consumer_group(world: World) -> Requests:
    member = await classic_member(world)
    generation = world.consumer_group("g").members[member].member_epoch
    return [world.ask("heartbeat", 4, group_id="g", generation_id=generation, member_id=member)]


@walk
async def classic_leave_of_a_consumer_group(world: World) -> Requests:
    member = await classic_member(world)
    return [world.ask("leave_group", 3, group_id="g", members=[MemberIdentity(member_id=member)])]


# -- share groups ---------------------------------------------------------------------------------------------------


def share_heartbeat(world: World, epoch: int = 0, member_id: str = "s") -> Any:
    names = [] if epoch else ["t"]
    return world.ask(
        "share_group_heartbeat",
        1,
        group_id="g",
        member_id=member_id,
        member_epoch=epoch,
        subscribed_topic_names=names,
    )


def alter_offsets(world: World) -> Any:
    partitions = [AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=5)]
    topics = [AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=partitions)]
    return world.ask("alter_share_group_offsets", 0, group_id="g", topics=topics)


def delete_share_offsets(world: World) -> Any:
    topics = [DeleteShareGroupOffsetsRequestTopic(topic_name="t")]
    return world.ask("delete_share_group_offsets", 0, group_id="g", topics=topics)


def describe_offsets(world: World) -> Any:
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)]
    return world.ask("describe_share_group_offsets", 1, groups=groups)


@walk
async def share_heartbeat_that_a_rule_holds(world: World) -> Requests:
    hold_appends(world)
    return [share_heartbeat(world)]


@walk
async def share_heartbeat_that_is_not_committed(world: World) -> Requests:
    hold_commits(world)
    return [share_heartbeat(world)]


@walk
async def initialization_without_a_response(world: World) -> Requests:
    world.persister.hold()
    share_heartbeat(world)
    return []


@walk
async def initialization_whose_record_is_not_committed(world: World) -> Requests:
    world.persister.hold()
    share_heartbeat(world)
    hold_commits(world)
    world.persister.release()
    return []


@walk
async def expiry_of_a_share_member(world: World) -> Requests:
    share_heartbeat(world)
    hold_commits(world)
    world.clock.advance(45_000)
    return []


@walk
async def altered_share_offsets_that_are_not_committed(world: World) -> Requests:
    hold_commits(world)
    return [alter_offsets(world)]


@walk
async def altered_share_offsets_without_a_response(world: World) -> Requests:
    world.persister.hold()
    return [alter_offsets(world)]


@walk
async def deleted_share_offsets_that_are_not_committed(world: World) -> Requests:
    alter_offsets(world)
    hold_commits(world)
    return [delete_share_offsets(world)]


@walk
async def deleted_share_offsets_without_a_response(world: World) -> Requests:
    alter_offsets(world)
    world.persister.hold()
    return [delete_share_offsets(world)]


@walk
async def deleted_share_offsets_whose_end_is_not_committed(world: World) -> Requests:
    alter_offsets(world)
    world.persister.hold()
    requests = [delete_share_offsets(world)]
    hold_commits(world)
    world.persister.release()
    return requests


@walk
async def described_share_offsets(world: World) -> Requests:
    alter_offsets(world)
    world.persister.hold()
    return [describe_offsets(world)]


@walk
async def deletion_of_a_share_group_that_is_not_committed(world: World) -> Requests:
    alter_offsets(world)
    hold_commits(world)
    return [world.ask("delete_groups", 2, groups_names=["g"])]


@walk
async def deletion_of_a_share_group_without_a_response(world: World) -> Requests:
    alter_offsets(world)
    world.persister.hold()
    return [world.ask("delete_groups", 2, groups_names=["g"])]


# -- the tests ------------------------------------------------------------------------------------------------------


def release_everything(world: World) -> None:
    """Release every rule and append that a walk waits for, and advance the clock."""
    gate, world.injection.points = world.injection.points, None
    if isinstance(gate, Gate):
        gate.release()
    world.partition.release()
    world.clock.advance(3_600_000)
    world.partition.stop_leading(E.not_leader_or_follower)


@pytest.mark.parametrize("name", WALKS)
async def test_a_node_that_is_killed_while_it_waits(name: str) -> None:
    world = World()
    requests = await WALKS[name](world)
    await turn()
    assert world.life.suspended_coroutines
    assert not any(request.done() for request in requests), "they wait"
    end_offset = world.partition.log_end_offset
    world.kill()
    assert not world.life.suspended_coroutines
    assert world.clock.timers == []
    release_everything(world)
    world.persister.release()
    await turn()
    assert world.partition.log_end_offset == end_offset, "nothing is written"
    assert not any(request.done() for request in requests), "no client gets a response"
    for request in requests:
        request.cancel()


@pytest.mark.parametrize("name", WALKS)
async def test_who_waits_there_gets_an_error_when_the_leadership_goes(name: str) -> None:
    world = World()
    requests = await WALKS[name](world)
    end_offset = world.partition.log_end_offset
    world.groups.close()
    # These waits end outside of the coordinator.
    world.persister.release()
    world.clock.advance(0)
    assert not world.life.suspended_coroutines
    await turn()
    assert all(request.done() for request in requests)
    release_everything(world)
    await turn()
    assert world.partition.log_end_offset == end_offset, "nothing is written"


async def test_a_rule_that_kills_the_node_at_the_append() -> None:
    world = World()

    class Killing(Gate):
        def reached(self, at: Any, go_on: Callable[[], object], refuse: Callable[[E], object]) -> None:
            world.kill()
            super().reached(at, go_on, refuse)

    world.injection.points = Killing("group.append")
    committing = world.commit(5)
    release_everything(world)
    await turn()
    assert not committing.done()
    assert not world.life.suspended_coroutines
    assert world.partition.log_end_offset == 0
    committing.cancel()


# -- the walks reach every await ------------------------------------------------------------------------------------


@cache
def awaits(path: Path) -> list[tuple[range, str]]:
    """The line range and the label of each `await` in a module."""
    return [
        (range(node.lineno, (node.end_lineno or 0) + 1), f"{path.name}:{node.lineno} {ast.unparse(node)}")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Await)
    ]


def waits_at(coroutine: object) -> Iterator[str]:
    """Labels of the `await`s at which a coroutine is suspended, from the request's coroutine inwards."""
    while isinstance(coroutine, Coroutine):
        frame = coroutine.cr_frame  # type: ignore[attr-defined]
        path = Path(frame.f_code.co_filename)
        if path in MODULES:
            yield from (text for lines, text in awaits(path) if frame.f_lineno in lines)
        coroutine = coroutine.cr_await  # type: ignore[attr-defined]


async def test_every_await_of_the_coordinator_is_one_of_these() -> None:
    reached: set[str] = set()
    for each in WALKS.values():
        world = World()
        requests = await each(world)
        await asyncio.sleep(0)
        for suspended in world.life.suspended_coroutines:
            assert isinstance(suspended, Suspended)
            reached.update(waits_at(suspended._coroutine))
        world.kill()
        for request in requests:
            request.cancel()
    assert reached == {text for path in MODULES for _, text in awaits(path)}
