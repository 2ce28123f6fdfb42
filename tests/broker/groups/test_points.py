"""Fault rules at the injection points of the group coordinator, and the coordinator of a node that has ended."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from broker.groups.consumer.group import ConsumerGroup
from broker.groups.coordinator import GroupCoordinator
from broker.metadata.topics import CONSUMER_OFFSETS
from broker.metadata.values import PartitionState
from protocol.errors import ErrorCode as E
from protocol.messages.leave_group import MemberIdentity
from tests.broker.groups.consumer.test_consumer_groups import Client
from tests.broker.groups.world import NODE_ID, World, settled, turn
from tests.support.points import Gate


@pytest.fixture
async def world() -> World:
    return World()


def lead(world: World, leader: int, epoch: int) -> None:
    """Make a node the leader of the offsets partition, in a new leader epoch."""
    partition = world.partition
    partition.leader_id, partition.leader_epoch = leader, epoch
    state = PartitionState(0, (1, 2), (1, 2), leader, epoch, 1)
    world.groups.on_leader_changed(world.metadata.topics[CONSUMER_OFFSETS], state)


async def test_a_held_commit_is_not_written_until_it_is_released(world: World) -> None:
    world.injection.points = gate = Gate("group.append")
    committing = world.commit(5)
    await turn()
    [held] = gate.held
    at = held.at
    assert (at.node_id, at.topic, at.partition) == (NODE_ID, CONSUMER_OFFSETS, 0)
    assert at.group_id == "g"
    assert world.partition.log_end_offset == 0
    assert world.fetch() == (-1, E.none)
    gate.release()
    assert await settled(committing) is E.none
    assert world.fetch() == (5, E.none)


async def test_a_commit_that_is_refused_failed(world: World) -> None:
    world.injection.points = gate = Gate("group.append")
    committing = world.commit(5)
    await turn()
    gate.refuse(E.not_enough_replicas)
    assert await settled(committing) is E.coordinator_not_available
    assert world.fetch() == (-1, E.none)


async def test_a_held_request_fails_when_the_leadership_ends(world: World) -> None:
    world.injection.points = gate = Gate("group.append")
    committing = world.commit(5)
    await turn()
    lead(world, 2, 1)
    assert await settled(committing) is E.not_coordinator
    lead(world, NODE_ID, 2)
    gate.release()
    assert world.fetch() == (-1, E.none), "the next leadership of this node does not write it either"


async def test_a_rebalance_whose_record_is_held_continues_when_it_is_released(world: World) -> None:
    joining = world.join(version=3)
    world.clock.advance(0)
    member = (await joining).member_id
    world.injection.points = gate = Gate("group.append")
    syncing = world.sync(member, {member: b"all"})
    await turn()
    assert len(gate.held) == 1
    gate.release()
    assert (await syncing).error_code == E.none
    assert world.heartbeat(member) is E.none


async def test_a_deletion_that_is_held(world: World) -> None:
    world.commit(5)
    world.injection.points = gate = Gate("group.append")
    deleting = world.start(world.groups.delete("g"))
    assert isinstance(deleting, asyncio.Future)
    assert world.fetch() == (5, E.none)
    gate.release()
    assert await deleting is E.none
    assert world.fetch() == (-1, E.none)


async def test_a_load_that_is_held_answers_14(world: World) -> None:
    world.commit(5)
    world.injection.points = gate = Gate("coordinator.load")
    lead(world, NODE_ID, 1)
    assert world.commit(6) is E.coordinator_load_in_progress
    assert world.groups.all_groups() is E.coordinator_load_in_progress
    assert [held.at.topic for held in gate.held] == [CONSUMER_OFFSETS]
    gate.release()
    assert world.fetch() == (5, E.none)


async def test_a_load_that_is_released_after_the_next_load_does_nothing(world: World) -> None:
    world.commit(5)
    world.injection.points = gate = Gate("coordinator.load")
    lead(world, NODE_ID, 1)
    world.injection.points = None
    lead(world, NODE_ID, 2)
    shard = world.groups._runtime._shards[0]
    gate.release()
    assert world.groups._runtime._shards[0] is shard
    assert world.fetch() == (5, E.none)


async def test_a_load_that_is_refused(world: World) -> None:
    world.injection.points = gate = Gate("coordinator.load")
    lead(world, NODE_ID, 1)
    gate.refuse(E.kafka_storage_error)
    assert world.commit(5) is E.not_coordinator


async def test_a_new_leader_loads_before_the_first_request(world: World) -> None:
    world.commit(5)
    lead(world, 2, 1)
    assert world.groups.memory() == {}
    lead(world, NODE_ID, 2)
    assert list(world.groups.memory()) == [0]


async def test_a_killed_node_sends_no_response_and_leaves_no_timer(world: World) -> None:
    await world.member(group="h")
    joining = world.join(version=3)
    world.partition.hold = True
    committing = world.commit(5, group="i")
    await turn()
    end_offset = world.partition.log_end_offset
    world.kill()
    assert world.clock.timers == []
    world.partition.stop_leading(E.not_leader_or_follower)
    await turn()
    assert not joining.done()
    assert not committing.done()
    lead(world, NODE_ID, 1)
    assert world.commit(6) is E.not_coordinator
    assert world.partition.log_end_offset == end_offset
    for waiting in (joining, committing):
        waiting.cancel()


async def test_member_ids_come_from_the_chance_that_is_given(world: World) -> None:
    def member_id() -> str:
        groups = GroupCoordinator(
            world.config,  # type: ignore[arg-type]
            world.clock,
            world.metadata,  # type: ignore[arg-type]
            world.replicas,  # type: ignore[arg-type]
            random=Random(7),
        )
        return str(groups._new_uuid())

    assert member_id() == member_id()


# -- a released request is checked again ---------------------------------------------------------------------------


async def test_a_commit_that_is_held_counts_only_if_its_member_is_still_one(world: World) -> None:
    """A held OffsetCommit gets UNKNOWN_MEMBER_ID if its member's session has timed out in the meantime: another
    member may own the partition and have fetched the earlier offset. The simulation found this."""
    member = Client(world, "m")
    member.join()
    world.injection.points = gate = Gate("group.append")
    committing = world.commit(5, version=9, member_id="m", generation_id_or_member_epoch=member.epoch)
    await turn()
    world.injection.points = None
    world.clock.advance(46_000)
    assert member.member is None
    gate.release()
    assert await settled(committing) is E.unknown_member_id
    assert world.fetch() == (-1, E.none)


async def test_a_commit_that_is_held_counts_only_in_the_generation_of_its_member(world: World) -> None:
    member = await world.member()
    world.injection.points = gate = Gate("group.append")
    committing = world.commit(5, member_id=member, generation_id_or_member_epoch=1)
    await turn()
    world.injection.points = None
    world.clock.advance(11_000)  # the session of the member times out
    await world.member()
    gate.release()
    assert await settled(committing) is E.unknown_member_id
    assert world.fetch() == (-1, E.none)


async def test_a_member_whose_records_are_held_joins_the_group_that_is_there_by_then(world: World) -> None:
    world.injection.points = gate = Gate("group.append")
    joining = Client(world, "a").join()
    world.injection.points = None
    assert Client(world, "b").join().member_epoch == 2
    gate.release()
    assert (await joining).member_epoch == 3
    group = world.groups.find("g")
    assert isinstance(group, ConsumerGroup)
    assert (set(group.members), group.epoch) == ({"a", "b"}, 3)


async def test_a_group_that_has_a_member_by_then_is_not_deleted(world: World) -> None:
    world.commit(5)
    world.injection.points = gate = Gate("group.append")
    deleting = world.start(world.groups.delete("g"))
    world.injection.points = None
    assert Client(world, "m").join().error_code == E.none
    gate.release()
    assert await settled(deleting) is E.non_empty_group
    assert world.fetch() == (5, E.none)


async def test_offsets_of_a_topic_that_has_a_subscriber_by_then_are_not_deleted(world: World) -> None:
    member = Client(world, "m", subscribed_topic_names=["u"])
    member.join()
    world.commit(5, version=9, member_id="m", generation_id_or_member_epoch=member.epoch)
    world.injection.points = gate = Gate("group.append")
    deleting = world.start(world.groups.delete_offsets("g", [("t", 0)]))
    world.injection.points = None
    member.ask(subscribed_topic_names=["t"])
    gate.release()
    assert await settled(deleting) == (E.none, [E.group_subscribed_to_topic])
    assert world.fetch() == (5, E.none)


async def test_an_offset_that_is_committed_again_by_then_does_not_expire(world: World) -> None:
    world.commit(5)
    world.clock.advance(7 * 86_400_000 - 1_000)
    world.injection.points = gate = Gate("group.append")
    world.clock.advance(601_000)
    assert gate.held
    world.injection.points = None
    world.commit(6)
    gate.release()
    assert world.fetch() == (6, E.none)


async def test_the_record_of_a_group_that_is_deleted_by_then_is_not_written(world: World) -> None:
    world.injection.points = gate = Gate("group.append")
    joining = world.join()
    world.injection.points = None
    (deleted,) = world.ask("delete_groups", 2, groups_names=["g"]).results
    assert deleted.error_code == E.none
    gate.release()
    assert (await joining).error_code == E.unknown_member_id
    world.restart()
    assert world.groups.all_groups() == []


async def test_the_assignment_of_a_generation_that_is_over_by_then_is_not_written(world: World) -> None:
    joining = world.join(version=3)
    world.clock.advance(0)
    member = (await joining).member_id
    world.injection.points = gate = Gate("group.append")
    syncing = world.sync(member, {member: b"all"})
    world.injection.points = None
    leaving = [MemberIdentity(member_id=member)]
    assert world.ask("leave_group", 3, group_id="g", members=leaving).error_code == E.none
    gate.release()
    assert (await syncing).error_code == E.unknown_member_id
    before = world.groups.memory()
    world.restart()
    assert world.groups.memory() == before
    assert world.commit(5, member_id=member, generation_id_or_member_epoch=1) is E.unknown_member_id


async def test_the_record_of_a_member_that_came_back_is_not_written_behind_a_later_one(world: World) -> None:
    """Two static members rejoin one after the other. The record of the first rejoin is held, and the record of the second
    rejoin already has both new member ids, so the first record must not follow it in the log."""
    joining = [world.join(group_instance_id=instance) for instance in "ij"]
    world.clock.advance(0)
    first, second = [(await each).member_id for each in joining]
    world.sync(first, {first: b"1", second: b"2"})
    world.injection.points = gate = Gate("group.append")
    back = world.join(group_instance_id="i")
    world.injection.points = None
    later = world.join(group_instance_id="j")
    gate.release()
    ids = {(await back).member_id, later.member_id}
    assert {member.member_id for member in world.classic_group("g").members} == ids
    before = world.groups.memory()
    world.restart()
    assert world.groups.memory() == before
