"""The coordinator around the groups: records before responses, loading and unloading, timers, and limits of one batch."""

import asyncio
import uuid
from typing import Any

import pytest

from broker.coordinator_runtime import loader
from broker.groups.commits import OffsetToCommit
from broker.injection.crash import on_passage
from broker.metadata.topics import CONSUMER_OFFSETS
from broker.metadata.values import PartitionState, Topic
from broker.requests import own_requests
from protocol.batch import RecordBatch, build_batch
from protocol.errors import ErrorCode as E
from protocol.hashing import partition_for
from protocol.messages.leave_group import MemberIdentity
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.records.group_log import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
)
from protocol.schema import Key
from tests.broker.groups.world import World, settled, turn

MINUTE_MS = 60_000


@pytest.fixture
async def world() -> World:
    return World()


def written(world: World) -> list[tuple[object, object]]:
    found: list[tuple[object, object]] = []
    for batch in world.partition.log.batches():
        for record in batch.records():
            key = decode_key(record.key or b"")
            assert isinstance(key, Key)
            found.append((key, decode_value(key, record.value)))
    return found


def last_batch(world: World) -> RecordBatch:
    return list(world.partition.log.batches())[-1]


def commit_transactional(world: World, offset: int = 7, producer_id: int = 1, **changes):
    fields: dict[str, Any] = {
        "group_id": "g",
        "member_id": "",
        "generation_id": -1,
        "group_instance_id": None,
        "producer_id": producer_id,
        "producer_epoch": 0,
        "offsets": [OffsetToCommit("t", 0, offset, topic_id=world.topic.topic_id)],
        "api_version": 3,
        "verified": True,
    }
    return world.start(world.groups.commit_transactional(**fields | changes))


# -- records are committed before the response ----------------------------------------------------------------------


async def test_a_commit_is_answered_when_it_is_committed(world: World):
    world.partition.hold = True
    answer = world.commit(5)
    await turn()
    assert not answer.done()
    assert world.partition.log_end_offset == 1
    world.partition.release()
    assert await answer is E.none


async def test_a_commit_of_the_broker_itself_waits_as_a_client_s(world: World):
    world.partition.hold = True
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
    topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
    request = OffsetCommitRequest(group_id="g", topics=topics)
    listener: Any = None
    answer = own_requests.handle(world.node, listener, (8, 9), request, "control")
    await turn()
    assert not answer.done()
    world.partition.release()
    assert (await answer).topics[0].partitions[0].error_code == E.none


async def test_a_commit_of_the_broker_returns_at_once_if_it_is_committed_at_once(world: World):
    assert world.commit(5) is E.none
    assert world.fetch() == (5, E.none)


async def test_no_client_is_shown_what_is_not_committed_yet(world: World):
    world.commit(5)
    world.partition.hold = True
    committing = world.commit(6)
    fetching = world.fetch(stable=True)
    assert world.fetch() == (5, E.none)
    await turn()
    assert not fetching.done()
    world.partition.release()
    assert await fetching == (6, E.none)
    assert await committing is E.none
    assert world.fetch() == (6, E.none)


async def test_a_stable_fetch_that_waits_too_long_is_sent_to_another_coordinator(world: World):
    world.partition.hold = True
    committing = world.commit(6)
    fetching = world.fetch(stable=True)
    world.clock.advance(5000)
    assert await committing is E.coordinator_not_available
    assert await fetching == (-1, E.not_coordinator)
    world.partition.release()
    assert world.fetch() == (6, E.none)


async def test_a_transactional_commit_under_way_makes_a_stable_fetch_wait_and_then_says_88(world: World):
    world.partition.hold = True
    committing = asyncio.ensure_future(commit_transactional(world))
    fetching = world.fetch(stable=True)
    world.partition.release()
    assert await committing == [E.none]
    assert await fetching == (-1, E.unstable_offset_commit)


async def test_a_sync_is_answered_when_the_assignment_is_committed(world: World):
    joining = world.join(version=3)
    world.clock.advance(0)
    member = (await joining).member_id
    world.partition.hold = True
    sync = world.sync(member, {member: b"all"})
    await turn()
    assert not sync.done()
    world.partition.release()
    assert (await sync).assignment == b"all"


async def test_a_sync_whose_assignment_is_not_committed_in_time_fails_and_the_group_rebalances(world: World):
    joining = world.join(version=3)
    world.clock.advance(0)
    member = (await joining).member_id
    world.partition.hold = True
    sync = world.sync(member, {member: b"all"})
    world.clock.advance(5000)
    assert (await sync).error_code == E.coordinator_not_available
    assert (await settled(world.join(version=3, member_id=member))).generation_id == 2
    world.partition.release()
    again = await settled(world.sync(member, {member: b"again"}, generation=2))
    assert (again.error_code, again.assignment) == (E.none, b"again")


async def test_heartbeats_and_those_who_leave_twice_wait_for_what_was_written_before(world: World):
    member = await world.member()
    world.partition.hold = True
    committing = world.commit(6, group="another")
    beat = world.ask("heartbeat", 4, group_id="g", generation_id=1, member_id=member)
    wrong = world.ask("heartbeat", 4, group_id="g", generation_id=7, member_id=member)
    assert wrong.error_code == E.illegal_generation, "an error does not wait for the commit"
    stranger = [MemberIdentity(member_id="stranger")]
    leaving = world.ask("leave_group", 3, group_id="g", members=stranger)
    await turn()
    assert not beat.done()
    assert not leaving.done()
    world.partition.release()
    assert await committing is E.none
    assert (await beat).error_code == E.none
    assert (await leaving).members[0].error_code == E.unknown_member_id
    assert world.heartbeat(member) is E.none


async def test_a_static_member_that_comes_back_and_is_not_committed_in_time_has_its_old_id(world: World):
    member = await world.member(group_instance_id="i")
    world.partition.hold = True
    joining = world.join(group_instance_id="i")
    world.clock.advance(5000)
    assert (await joining).error_code == E.coordinator_not_available
    world.partition.release()
    assert world.heartbeat(member) is E.none


async def test_the_id_of_a_new_member_is_told_when_its_group_is_committed(world: World):
    world.partition.hold = True
    joining = world.join()
    await turn()
    assert not joining.done()
    world.partition.release()
    assert (await joining).error_code == E.member_id_required


async def test_the_empty_group_is_written_before_its_last_member_may_go(world: World):
    member = await world.member()
    world.partition.hold = True
    leaving = world.ask("leave_group", 3, group_id="g", members=[MemberIdentity(member_id=member)])
    await turn()
    assert not leaving.done()
    world.partition.release()
    assert (await leaving).members[0].error_code == E.none


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (E.not_enough_replicas, E.coordinator_not_available),
        (E.unknown_topic_or_partition, E.coordinator_not_available),
        (E.not_leader_or_follower, E.not_coordinator),
        (E.kafka_storage_error, E.not_coordinator),
        (E.message_too_large, E.unknown_server_error),
        (E.invalid_producer_epoch, E.invalid_producer_epoch),
    ],
)
async def test_a_failed_append_is_mapped_to_an_error_that_clients_know(world: World, refusal: E, error: E):
    member = await world.member(group="h")
    world.partition.refuse = refusal
    assert world.commit(5) is error
    assert commit_transactional(world) == [error]
    assert world.join().error_code == error
    leaving = world.ask("leave_group", 3, group_id="h", members=[MemberIdentity(member_id=member)])
    assert leaving.error_code == error
    assert world.ask("delete_groups", 1, groups_names=["h"]).results[0].error_code == error
    world.partition.refuse = E.none
    assert world.fetch() == (-1, E.none)
    assert "g" not in {group.group_id for group in world.all_groups()}


async def test_a_commit_that_times_out_may_still_be_committed(world: World):
    world.partition.hold = True
    answer = world.commit(5)
    world.clock.advance(4_999)
    await turn()
    assert not answer.done()
    world.clock.advance(1)
    assert await answer is E.coordinator_not_available
    world.partition.release()
    assert world.fetch() == (5, E.none)


async def test_a_disconnected_client_affects_no_other(world: World):
    joining = world.join(version=3)
    joining.cancel()
    await turn()
    world.clock.advance(0)
    assert world.partition.log_end_offset == 1
    world.clock.advance(10_000)
    world.clock.advance(60_000)
    assert world.classic_group("g").state == "Empty"


# -- records --------------------------------------------------------------------------------------------------------


async def test_a_plain_commit_is_version_4_with_the_topic_s_id(world: World):
    world.commit(5, metadata="m")
    assert written(world) == [
        (
            OffsetCommitKey("g", "t", 0),
            OffsetCommitValue(5, -1, "m", world.clock.now, -1, world.topic.topic_id),
        )
    ]
    batch = last_batch(world)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, 0)
    assert not batch.is_transactional


async def test_a_commit_with_a_retention_time_is_version_1(world: World):
    world.commit(5, version=3, retention_time_ms=1_000)
    (record,) = last_batch(world).records()
    assert record.value is not None
    assert record.value[:2] == b"\0\1"
    [(_, value)] = written(world)
    assert isinstance(value, OffsetCommitValue)
    assert value.expire_timestamp_ms == world.clock.now + 1_000


async def test_a_transactional_commit_has_its_producer_and_sequence_0(world: World):
    commit_transactional(world)
    batch = last_batch(world)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1, 0, 0)
    assert batch.is_transactional
    (record,) = batch.records()
    assert record.value is not None
    assert record.value.endswith(world.topic.topic_id.bytes)  # KIP-1319


async def test_many_offsets_of_one_request_are_one_batch(world: World):
    offsets = [OffsetToCommit("t", index, index) for index in range(3)]
    assert commit_transactional(world, offsets=offsets) == [E.none] * 3
    assert last_batch(world).record_count == 3


async def test_a_commit_that_no_batch_can_hold_is_refused(world: World):
    world.partition.log.config = type(world.partition.log.config)(max_message_bytes=200)
    assert world.commit(5) is E.none
    assert world.commit(5, metadata="x" * 200) is E.unknown_server_error
    assert world.fetch() == (5, E.none)


async def test_a_deletion_takes_as_many_batches_as_it_needs(world: World):
    world.partition.log.config = type(world.partition.log.config)(max_message_bytes=400)
    for partition in range(3):
        for group in ("a", "b"):
            world.commit(5, partition=partition, group=group)
    before = world.partition.log_end_offset
    world.groups.on_topic_deleted(world.topic)
    assert world.partition.log_end_offset == before + 6
    assert max(batch.record_count for batch in world.partition.log.batches()) > 1
    assert last_batch(world).size <= 400
    assert world.fetch(group="a") == world.fetch(group="b") == (-1, E.none)


async def test_the_points_of_a_crash_lie_around_the_append(world: World):
    passed: list[tuple[str, int]] = []
    with on_passage(lambda name: passed.append((name, world.partition.log_end_offset))):
        world.commit(5)
    assert passed == [("group.append.before", 0), ("group.append.after", 1)]


# -- transactions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("committed", "offset"), [(True, 7), (False, 3)])
async def test_a_marker_decides_when_it_is_committed(world: World, committed: bool, offset: int):
    world.commit(3)
    commit_transactional(world)
    world.partition.hold = True
    world.marker(1, committed)
    assert world.groups.memory()[0]["pending"]
    world.partition.release()
    assert world.fetch(stable=True) == (offset, E.none)


async def test_a_transaction_outlives_a_restart(world: World):
    commit_transactional(world)
    world.restart()
    assert world.fetch(stable=True) == (-1, E.unstable_offset_commit)
    world.marker(1, True)
    assert world.fetch(stable=True) == (7, E.none)
    world.restart()
    assert world.fetch(stable=True) == (7, E.none)


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        ({}, [E.none]),
        ({"generation_id": 1}, [E.illegal_generation]),
        ({"generation_id": 1, "api_version": 5}, [E.illegal_generation]),
        ({"generation_id": 1, "api_version": 6}, [E.group_id_not_found]),
        ({"group_id": ""}, [E.invalid_group_id]),
        (
            {"offsets": [OffsetToCommit("t", 0, 1, metadata="x" * 4097), OffsetToCommit("t", 1, 1)]},
            [E.offset_metadata_too_large, E.none],
        ),
        ({"offsets": [OffsetToCommit("t", 0, 1, metadata="é" * 4096)]}, [E.none]),
        ({"offsets": [OffsetToCommit("t", 0, 1, metadata="😀" * 2049)]}, [E.offset_metadata_too_large]),
    ],
)
async def test_transactional_commits_to_an_unknown_group(world: World, fields: dict, errors: list[E]):
    assert commit_transactional(world, **fields) == errors


@pytest.mark.parametrize(
    ("version", "error"), [(1, E.coordinator_not_available), (2, E.coordinator_load_in_progress)]
)
async def test_old_producers_get_another_error_during_loading(world: World, version: int, error: E):
    world.groups._runtime._shards[0].refusal = E.coordinator_load_in_progress
    assert commit_transactional(world, api_version=version) == [error]


# -- loading --------------------------------------------------------------------------------------------------------


async def test_the_state_is_the_same_after_a_restart(world: World):
    member = await world.member()
    world.commit(5, generation_id_or_member_epoch=1, member_id=member)
    before = world.groups.memory()
    world.restart()
    assert world.groups.memory() == before
    assert world.heartbeat(member) is E.none
    assert world.fetch() == (5, E.none)
    world.clock.advance(10_000)
    assert world.heartbeat(member) is E.unknown_member_id


async def test_a_long_log_is_loaded_in_turns_and_answers_14_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(loader, "LOAD_TURN_RECORDS", 2)
    for offset in range(10):
        world.commit(offset)
    world.restart()
    assert world.commit(99) is E.coordinator_load_in_progress
    assert world.fetch() == (-1, E.coordinator_load_in_progress)
    assert world.join().error_code == E.coordinator_load_in_progress
    assert world.heartbeat("m") is E.none  # during loading no member can have expired
    assert world.ask("list_groups", 4).error_code == E.coordinator_load_in_progress
    assert (
        world.ask("delete_groups", 1, groups_names=["g"]).results[0].error_code
        == E.coordinator_load_in_progress
    )
    assert world.groups.memory() == {}
    # Records that are written during the load are loaded too, such as a marker.
    world.marker(1, True)
    for _ in range(10):
        world.clock.advance(0)
    assert world.fetch() == (9, E.none)


async def test_offsets_that_compaction_left_without_their_group_have_one(world: World):
    world.commit(5)
    batch = build_batch([(0, GroupMetadataKey("g").encode(), None)])
    world.partition.append_internal(batch)
    world.restart()
    assert [group.group_id for group in world.all_groups()] == ["g"]
    assert world.fetch() == (5, E.none)


async def test_loading_ends_with_the_leadership(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loader, "LOAD_TURN_RECORDS", 1)
    for offset in range(10):
        world.commit(offset)
    world.restart()
    shard = world.groups._runtime._shards[0]
    world.groups._runtime.unload(0)
    read = shard.state.records
    world.clock.advance(0)
    assert read == shard.state.records < 10, "the load has stopped"
    monkeypatch.undo()
    assert world.fetch() == (9, E.none)  # the node still leads the partition, and loads it again
    world.groups.close()


async def test_a_partition_is_loaded_when_it_is_first_needed():
    world = World(offsets_partitions=4)
    for index in range(4):
        world.groups._runtime.unload(index)
    world.commit(5)
    assert list(world.groups.memory()) == [partition_for("g", 4)]


async def test_a_group_s_partition_is_the_hash_of_its_id():
    world = World(offsets_partitions=4)
    assert world.groups.partition_for("group") == partition_for("group", 4) == 3


async def test_a_group_stays_in_its_partition_until_the_node_starts_again():
    """A group keeps its partition when ``__consumer_offsets`` gets more partitions or is deleted. Otherwise members of one
    group would find different coordinators."""
    world = World(offsets_partitions=4)
    world.commit(5, group="group")
    world.metadata.grow(CONSUMER_OFFSETS, 50)
    assert world.groups.partition_for("group") == 3
    world.metadata.topics.pop(CONSUMER_OFFSETS)
    assert world.groups.partition_for("group") == 3


async def test_the_groups_of_another_coordinator_are_not_served(world: World):
    world.partition.leader_id = 2
    assert world.commit(5) is E.not_coordinator
    assert world.fetch() == (-1, E.not_coordinator)
    assert world.join().error_code == E.not_coordinator
    assert world.sync("m").error_code == E.not_coordinator
    assert world.heartbeat("m") is E.not_coordinator
    assert world.ask("leave_group", 3, group_id="g").error_code == E.not_coordinator
    assert world.ask("describe_groups", 5, groups=["g"]).groups[0].error_code == E.not_coordinator
    assert world.ask("offset_delete", 0, group_id="g").error_code == E.not_coordinator
    assert commit_transactional(world) == [E.not_coordinator]
    assert world.ask("list_groups", 4).error_code == E.none


async def test_who_waits_when_the_leadership_goes_is_sent_to_the_new_coordinator(world: World):
    member = await world.member(group="h")
    joining = world.join(version=3)
    world.partition.hold = True
    committing, fetching = world.commit(5, group="i"), world.fetch(group="i", stable=True)
    leaving = world.ask("leave_group", 3, group_id="h", members=[MemberIdentity(member_id=member)])
    await turn()
    world.partition.leader_id = 2
    state = PartitionState(0, (1, 2), (1, 2), 2, 1, 1)
    world.groups.on_leader_changed(world.metadata.topics[CONSUMER_OFFSETS], state)
    assert (await joining).error_code == E.not_coordinator
    assert await committing is E.not_coordinator
    assert await fetching == (-1, E.not_coordinator)
    assert (await leaving).error_code == E.not_coordinator
    assert len(world.clock.timers) == 1  # the timer of offset expiration
    world.partition.stop_leading(E.not_leader_or_follower)  # all requests have their response already


async def test_nothing_is_written_to_a_partition_that_another_node_leads(world: World):
    joining = world.join(version=3)
    world.clock.advance(0)
    member = (await joining).member_id
    world.partition.hold = True
    waiting = world.sync(member, {member: b"all"})
    end_offset = world.partition.log_end_offset
    world.partition.stop_leading(E.not_leader_or_follower)
    assert (await waiting).error_code == E.not_coordinator
    # The failed assignment started a rebalance that no member joins, so the group becomes empty.
    world.clock.advance(100_000)
    assert world.partition.log_end_offset == end_offset
    assert world.heartbeat(member) is E.not_coordinator


async def test_a_new_leader_epoch_of_the_same_node_reads_the_log_again(world: World):
    world.commit(5)
    shard = world.groups._runtime._shards[0]
    world.partition.leader_epoch = 3
    world.groups.on_leader_changed(
        world.metadata.topics[CONSUMER_OFFSETS], world.metadata.topics[CONSUMER_OFFSETS].partitions[0]
    )
    assert world.groups._runtime._shards[0] is not shard
    assert world.fetch() == (5, E.none)


async def test_close_leaves_no_timer_and_no_waiting_request(world: World):
    await world.member()
    joining = world.join(version=3)
    await turn()
    world.groups.close()
    assert world.clock.timers == []
    assert (await joining).error_code == E.not_coordinator


async def test_without_its_topic_there_is_no_coordinator(world: World):
    world.metadata.topics.pop(CONSUMER_OFFSETS)
    world.partitions.clear()
    world.restart()
    assert world.join().error_code == E.not_coordinator


# -- topics and time ------------------------------------------------------------------------------------------------


async def test_the_offsets_of_a_deleted_topic_are_deleted(world: World):
    world.commit(5)
    world.groups.on_topic_deleted(Topic("t", uuid.UUID(int=9)))
    assert world.fetch() == (5, E.none)  # the deleted topic had the same name but another id
    commit_transactional(world)
    world.groups.on_topic_deleted(world.topic)
    assert world.fetch(stable=True) == (-1, E.none)
    world.marker(1, True)
    assert world.fetch() == (-1, E.none)


async def test_after_a_kill_they_are_deleted_at_the_next_start(world: World):
    world.commit(5)
    world.metadata.topics["t"] = Topic("t", uuid.UUID(int=9), world.topic.partitions)
    world.restart()
    assert world.fetch() == (-1, E.none)


async def test_a_deleted_offsets_topic_takes_everything_with_it(world: World):
    world.commit(5)
    topic = world.metadata.topics.pop(CONSUMER_OFFSETS)
    world.partitions.clear()
    world.groups.on_topic_deleted(topic)
    assert world.groups.all_groups() == []


async def test_offsets_and_empty_groups_expire_at_the_next_look():
    world = World(offsets_retention_minutes=20, offsets_retention_check_interval_ms=10 * MINUTE_MS)
    world.commit(5)
    world.clock.advance(19 * MINUTE_MS)
    assert world.fetch() == (5, E.none)
    world.clock.advance(1 * MINUTE_MS)
    assert world.fetch() == (-1, E.none)
    assert world.groups.all_groups() == []
    world.restart()
    assert world.groups.all_groups() == []


async def test_the_offsets_of_a_group_with_members_stay():
    world = World(offsets_retention_minutes=20, offsets_retention_check_interval_ms=10 * MINUTE_MS)
    member = await world.member()
    world.commit(5, generation_id_or_member_epoch=1, member_id=member)
    for _ in range(40 * MINUTE_MS // 5_000):
        world.clock.advance(5_000)
        assert world.heartbeat(member) is E.none
    assert world.fetch() == (5, E.none)
    world.clock.advance(10_000)  # the session ends, and the retention time begins
    world.clock.advance(19 * MINUTE_MS)
    assert world.fetch() == (5, E.none)
    world.clock.advance(11 * MINUTE_MS)
    assert world.fetch() == (-1, E.none)
    assert world.groups.all_groups() == []


async def test_expiry_looks_at_one_partition_a_turn():
    world = World(offsets_partitions=3, offsets_retention_minutes=1)
    for group in "abcdef":
        world.commit(5, group=group)
    world.clock.advance(600_000)
    assert world.groups.all_groups() == []
    assert len(world.clock.timers) == 1


async def test_a_group_is_not_deleted_while_what_was_written_before_is_not_committed(world: World):
    world.commit(5)
    world.partition.hold = True
    committing = world.commit(6, group="another")
    deleting = world.ask("delete_groups", 2, groups_names=["g"])
    world.clock.advance(5000)
    assert await committing is E.coordinator_not_available
    assert (await deleting).results[0].error_code == E.coordinator_not_available
    world.partition.release()
    assert world.fetch() == (5, E.none)
    assert world.ask("delete_groups", 2, groups_names=["g"]).results[0].error_code == E.none
    assert world.fetch() == (-1, E.none)


async def test_a_group_that_is_deleted_forgets_who_was_about_to_join(world: World):
    pending = world.join().member_id
    (deleted,) = world.ask("delete_groups", 1, groups_names=["g"]).results
    assert deleted.error_code == E.none
    assert world.join(pending).error_code == E.unknown_member_id
    assert len(world.clock.timers) == 1
    assert (await settled(world.join())).error_code == E.member_id_required
