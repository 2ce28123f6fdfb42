"""Share groups at a coordinator with a manual clock, as Apache Kafka 4.4.0 responds; share coordinators in memory."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from broker.groups.consumer.context import session_timer
from broker.groups.share.group import ShareGroupState
from broker.share.state import StoredState
from protocol.errors import ErrorCode as E
from protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequestTopic
from protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from protocol.messages.leave_group import MemberIdentity
from protocol.records.group_log import decode_key, decode_value
from protocol.schema import Key
from protocol.uuids import uuid_text
from tests.broker.groups.world import World, settled


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.groups.close()


class Member:
    """A member of a share group that behaves like a real client."""

    def __init__(self, world: World, member_id: str, group: str = "g") -> None:
        self.world, self.id, self.group = world, member_id, group
        self.epoch = 0
        self.assigned: dict[str, list[int]] = {}

    def beat(self, **fields: Any) -> Any:
        request = {"group_id": self.group, "member_id": self.id, "member_epoch": self.epoch, **fields}
        answer = self.world.ask("share_group_heartbeat", 1, **request)
        if not isinstance(answer, asyncio.Future) and answer.error_code == E.none:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                topics = self.world.groups.share_groups.topics
                self.assigned = {
                    topics.topic_name(topic.topic_id) or "": list(topic.partitions)
                    for topic in answer.assignment.topic_partitions
                }
        return answer

    def join(self, *topics: str, **fields: Any) -> Any:
        self.epoch = 0
        return self.beat(subscribed_topic_names=list(topics or ("t",)), **fields)

    def settle(self, *topics: str) -> None:
        """Join, and send heartbeats until the member has its assignment."""
        self.join(*topics)
        self.world.clock.advance(1_000)
        self.beat()


def written(world: World, since: int = 0) -> list[list[tuple[int, Any]]]:
    """(type, value) of the records of each batch from the offset ``since`` on."""

    def read(record: Any) -> tuple[int, Any]:
        key = decode_key(bytes(record.key or b""))
        assert isinstance(key, Key)
        return key.TYPE, decode_value(key, None if record.value is None else bytes(record.value))

    return [[read(record) for record in batch.records()] for batch in world.partition.log.batches(since)]


def types(world: World, since: int = 0) -> list[list[int]]:
    return [[kind for kind, _ in batch] for batch in written(world, since)]


def state_partitions(world: World) -> tuple[dict[str, list[int]], dict[str, list[int]], int]:
    """(initializing, initialized, number of topics that are being deleted) of the group g."""
    found = world.share_group("g").partitions
    return (
        {name: sorted(indexes) for name, indexes in found.initializing.values()},
        {name: sorted(indexes) for name, indexes in found.initialized.values()},
        len(found.deleting),
    )


# -- joining --------------------------------------------------------------------------------------------------------


def test_the_birth_of_a_group(world):
    """The group epoch of the first heartbeat is 2, without partitions. The partitions come after the assignment interval."""
    m = Member(world, "m")
    first = m.join()
    assert (first.error_code, first.member_id, first.member_epoch) == (0, "m", 2)
    assert (first.heartbeat_interval_ms, first.assignment.topic_partitions) == (5_000, ())
    second = m.beat()
    assert (second.member_epoch, second.assignment) == (2, None)
    world.clock.advance(1_000)
    third = m.beat()
    assert (third.member_epoch, m.assigned) == (3, {"t": [0, 1, 2]})
    end = world.partition.log_end_offset
    assert m.beat().assignment is None
    assert world.partition.log_end_offset == end, "a steady heartbeat writes nothing"
    assert types(world) == [[10, 11, 13, 12, 14, 15], [15], [11], [13, 12, 14]]
    kinds = {kind: value for batch in written(world)[:1] for kind, value in batch}
    assert (kinds[11].epoch, kinds[12].assignment_epoch, kinds[13].topic_partitions) == (2, 2, ())
    assert (kinds[14].member_epoch, kinds[14].previous_member_epoch) == (2, 0)
    assert kinds[10].client_host == "/127.0.0.1"
    assert [each.partitions for each in kinds[15].initializing_topics] == [(0, 1, 2)]
    assert [(each.state_epoch, each.start_offset) for each in world.persister.initialized] == [(2, -1)] * 3


def test_a_known_group_gives_partitions_at_once(world):
    m = Member(world, "m")
    m.settle()
    assert m.beat(member_epoch=-1).member_epoch == -1
    assert types(world)[-1] == [14, 13, 10, 11, 12]
    n = Member(world, "n")
    n.join()
    assert n.assigned == {"t": [0, 1, 2]}


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"member_id": ""}, E.invalid_request, None),
        ({"member_id": "x" * 37}, E.invalid_request, None),
        ({"member_id": " "}, E.invalid_request, "MemberId can't be empty."),
        ({"group_id": ""}, E.invalid_request, "GroupId can't be empty."),
        ({"rack_id": ""}, E.invalid_request, "RackId can't be empty."),
        ({"member_epoch": 0}, E.invalid_request, "SubscribedTopicNames must be set in first request."),
        ({"member_epoch": -2}, E.invalid_request, "MemberEpoch is invalid."),
        ({"group_id": "new"}, E.group_id_not_found, "Share group new not found."),
        ({"group_id": "new", "member_epoch": -1}, E.group_id_not_found, "Group new not found."),
        ({"group_id": "c"}, E.group_id_not_found, "Group c is not a share group."),
        ({"member_id": "n"}, E.unknown_member_id, "Member n is not a member of group g."),
        ({"member_id": "n", "member_epoch": -1}, E.unknown_member_id, "Member n is not a member of group g."),
        (
            {"member_epoch": 4},
            E.fenced_member_epoch,
            "The share group member has a greater member epoch (4) than the one known by the group coordinator "
            "(3). The member must abandon all its partitions and rejoin.",
        ),
        (
            {"member_epoch": 1},
            E.fenced_member_epoch,
            "The share group member has a smaller member epoch (1) than the one known by the group coordinator "
            "(3), and it does not match the previous member epoch (2). The member must abandon all its "
            "partitions and rejoin.",
        ),
    ],
)
def test_refused_heartbeats(world, fields, error, message):
    world.commit(5, group="c")
    m = Member(world, "m")
    m.settle()
    refused = world.ask(
        "share_group_heartbeat", 1, **{"group_id": "g", "member_id": "m", "member_epoch": 3} | fields
    )
    assert (refused.error_code, refused.error_message) == (error, message)
    assert (refused.member_id, refused.member_epoch, refused.assignment) == (None, 0, None)
    assert world.share_group("g").members.keys() == {"m"}


def test_the_previous_epoch_is_accepted(world):
    m = Member(world, "m")
    m.settle()
    assert m.beat(member_epoch=2).member_epoch == 3


def test_a_full_group_takes_no_new_member(world):
    world.config.group_share_max_size = 3
    members = [Member(world, name) for name in "abcd"]
    assert [each.join().error_code for each in members] == [0, 0, 0, E.group_max_size_reached]
    assert members[0].beat().error_code == 0
    assert members[0].join().error_code == 0


def test_share_version_0_switches_share_groups_off(world):
    m = Member(world, "m")
    m.settle()
    world.metadata.features["share.version"] = 0
    off = E.unsupported_version
    assert m.beat().error_code == off
    assert [each.error_code for each in world.ask("share_group_describe", 1, group_ids=["g"]).groups] == [off]
    assert alter(world, {0: 1}).error_code == off
    assert delete(world, "t").error_code == off
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)]
    described = world.ask("describe_share_group_offsets", 1, groups=groups)
    assert [each.error_code for each in described.groups] == [off]
    world.metadata.features["share.version"] = 2
    assert m.beat().error_code == 0


# -- epochs and assignments -----------------------------------------------------------------------------------------


def test_a_changed_subscription_drops_topics_at_once(world):
    world.metadata.grow("u", 1)
    m = Member(world, "m")
    m.settle("t", "u")
    assert m.assigned == {"t": [0, 1, 2], "u": [0]}
    m.beat(subscribed_topic_names=["u"])
    assert m.assigned == {"u": [0]}
    assert m.epoch == 3, "the target assignment is not computed before the assignment interval is over"
    world.clock.advance(1_000)
    m.beat()
    assert (m.epoch, m.assigned) == (4, {"u": [0]})
    assert m.beat(subscribed_topic_names=["u"]).assignment is not None, (
        "a request with names gets the assignment"
    )


def test_members_share_partitions(world):
    members = [Member(world, name) for name in "abcdef"]
    for each in members:
        each.join()
    world.clock.advance(1_000)
    for each in members:
        each.beat()
    assert [len(each.assigned["t"]) for each in members] == [1] * 6
    for each in members[1:]:
        each.beat(member_epoch=-1)
    world.clock.advance(1_000)
    members[0].beat()
    assert members[0].assigned == {"t": [0, 1, 2]}


def test_added_partitions_begin_at_offset_0(world):
    m = Member(world, "m")
    m.settle()
    world.metadata.grow("t", 5)
    m.beat()
    assert [(each.partition, each.start_offset) for each in world.persister.initialized[3:]] == [
        (3, 0),
        (4, 0),
    ]
    assert state_partitions(world) == ({}, {"t": [0, 1, 2, 3, 4]}, 0)
    world.clock.advance(1_000)
    m.beat()
    world.clock.advance(1_000)
    m.beat()
    assert m.assigned == {"t": [0, 1, 2, 3, 4]}


def test_a_deleted_topic_is_forgotten(world):
    m = Member(world, "m")
    m.settle()
    world.metadata.remove("t")
    assert state_partitions(world) == ({}, {}, 0)
    world.clock.advance(1_000)
    m.beat()
    assert (m.epoch, m.assigned) == (4, {})
    world.metadata.grow("t", 1)
    m.beat()
    assert [each.start_offset for each in world.persister.initialized[3:]] == [-1], "a new topic"


def test_a_topic_deleted_without_a_coordinator_is_forgotten_at_the_load(world):
    Member(world, "m").settle()
    world.groups.close()
    world.metadata.listeners.clear()
    world.metadata.remove("t")
    world.restart()
    assert state_partitions(world) == ({}, {}, 0)


def test_failed_initializations_are_tried_again(world):
    m = Member(world, "m")
    world.persister.error = E.coordinator_not_available
    m.join()
    assert state_partitions(world) == ({}, {}, 0)
    world.persister.error = E.none
    m.beat()
    assert state_partitions(world) == ({}, {"t": [0, 1, 2]}, 0)
    assert [each.start_offset for each in world.persister.initialized] == [-1] * 3


async def test_an_initialization_without_an_answer_is_tried_again_after_the_interval(world):
    m = Member(world, "m")
    world.persister.hold()
    m.join()
    world.clock.advance(29_999)
    end = world.partition.log_end_offset
    m.beat()
    assert world.partition.log_end_offset == end
    world.clock.advance(1)
    m.beat()
    assert types(world, end) == [[15]]
    world.persister.release()


def test_a_second_member_does_not_initialize_again(world):
    Member(world, "m").settle()
    count = len(world.persister.initialized)
    Member(world, "n").join()
    assert len(world.persister.initialized) == count


# -- time -----------------------------------------------------------------------------------------------------------


def test_a_member_without_heartbeats_expires(world):
    world.metadata.image.configs[32, "g"] = {"share.session.timeout.ms": "50000"}
    m = Member(world, "m")
    m.settle()
    world.clock.advance(49_999)
    assert world.share_group("g").state is ShareGroupState.STABLE
    world.clock.advance(1)
    group = world.share_group("g")
    assert (group.state, group.epoch, group.assignment_epoch, group.metadata_hash) == ("Empty", 4, 4, 0)
    assert types(world)[-1] == [14, 13, 10, 11, 12]
    assert m.beat().error_code == E.unknown_member_id
    assert m.join().error_code == 0


def test_sessions_start_again_after_a_load(world):
    m = Member(world, "m")
    m.settle()
    world.clock.advance(40_000)
    world.groups.close()
    world.restart()
    world.clock.advance(44_999)
    assert world.share_group("g").members
    world.clock.advance(1)
    assert not world.share_group("g").members
    world.clock.advance(10**9)
    assert world.share_group("g").is_empty, "a share group never expires"


# -- other protocols ------------------------------------------------------------------------------------------------


async def test_other_protocols_do_not_know_a_share_group(world):
    m = Member(world, "m")
    m.settle()
    for _ in ("with a member", "empty"):
        joined = world.join()
        assert (joined.error_code, joined.member_id) == (E.inconsistent_group_protocol, "")
        assert world.sync("m").error_code == E.unknown_member_id
        assert world.heartbeat("m") == E.unknown_member_id
        left = world.ask("leave_group", 3, group_id="g", members=[MemberIdentity(member_id="m")])
        assert [each.error_code for each in left.members] == [E.unknown_member_id]
        beaten = world.ask(
            "consumer_group_heartbeat",
            1,
            group_id="g",
            member_id="c",
            member_epoch=0,
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        message = "Group g is not a consumer group."
        assert (beaten.error_code, beaten.error_message) == (E.group_id_not_found, message)
        (described,) = world.ask("consumer_group_describe", 1, group_ids=["g"]).groups
        assert (described.error_code, described.error_message) == (E.group_id_not_found, message)
        assert world.commit(5) == E.group_id_not_found
        assert world.fetch() == (-1, E.none)
        (described,) = world.ask("describe_groups", 6, groups=["g"]).groups
        assert (described.error_code, described.group_state) == (E.group_id_not_found, "Dead")
        assert described.error_message == "Group g is not a classic group."
        m.beat(member_epoch=-1)


def test_a_share_group_is_listed_and_described(world):
    m = Member(world, "m")
    m.settle()
    world.commit(5, group="c")
    listed = {each.group_id: each for each in world.ask("list_groups", 5).groups}
    assert (listed["g"].protocol_type, listed["g"].group_state, listed["g"].group_type) == (
        "share",
        "Stable",
        "share",
    )
    for filters in ({"types_filter": ["SHARE"]}, {"states_filter": ["stable"]}):
        assert [each.group_id for each in world.ask("list_groups", 5, **filters).groups] == ["g"]
    (group, other, none, nameless) = world.ask(
        "share_group_describe", 1, group_ids=["g", "c", "x", ""], include_authorized_operations=False
    ).groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 3, 3)
    assert (group.assignor_name, group.authorized_operations) == ("simple", -(2**31))
    ((topic,),) = [member.assignment.topic_partitions for member in group.members]
    assert (topic.topic_name, topic.partitions) == ("t", (0, 1, 2))
    assert (other.error_code, other.error_message) == (E.group_id_not_found, "Group c is not a share group.")
    assert (none.error_code, none.error_message) == (E.group_id_not_found, "Group x not found.")
    assert nameless.error_code == E.invalid_group_id


def test_a_node_that_is_not_the_coordinator(world):
    world.partition.leader_id = 2
    world.groups.close()
    world.restart()
    (group,) = world.ask("share_group_describe", 1, group_ids=["g"]).groups
    assert (group.error_code, group.error_message) == (
        E.not_coordinator,
        "This is not the correct coordinator.",
    )
    assert Member(world, "m").join().error_code == E.not_coordinator
    assert alter(world, {0: 1}).error_message == "This is not the correct coordinator."


def test_topics_that_the_client_may_not_describe(world):
    Member(world, "m").settle()
    world.denied.add(("DESCRIBE", "TOPIC", "t"))
    (group,) = world.ask("share_group_describe", 1, group_ids=["g"]).groups
    assert (group.error_code, group.group_state, group.members) == (E.topic_authorization_failed, "", ())
    assert Member(world, "n").join().error_code == E.topic_authorization_failed
    assert described(world) == []
    assert described(world, t=[0]) == [("t", 0, -1, -1, E.topic_authorization_failed)]


def test_groups_that_the_client_may_not_use(world):
    Member(world, "m").settle()
    world.denied |= {(each, "GROUP", "g") for each in ("READ", "DESCRIBE", "DELETE")}
    denied = E.group_authorization_failed
    assert Member(world, "n").join().error_code == denied
    (group,) = world.ask("share_group_describe", 1, group_ids=["g"]).groups
    assert (group.error_code, group.error_message) == (denied, None)
    assert (alter(world, {0: 1}).error_code, delete(world, "t").error_code) == (denied, denied)
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)]
    (found,) = world.ask("describe_share_group_offsets", 1, groups=groups).groups
    assert (found.error_code, found.error_message) == (denied, None)


# -- offsets --------------------------------------------------------------------------------------------------------


def alter(world: World, offsets: dict[int, int], *, topic: str = "t", group: str = "g") -> Any:
    partitions = [
        AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
        for index, offset in offsets.items()
    ]
    topics = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)]
    return world.ask("alter_share_group_offsets", 0, group_id=group, topics=topics)


def delete(world: World, *names: str, group: str = "g") -> Any:
    topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
    return world.ask("delete_share_group_offsets", 0, group_id=group, topics=topics)


def described(world: World, group: str = "g", **topics: list[int]) -> list[tuple[Any, ...]]:
    """(topic, partition, start offset, lag, error) of each partition; of the named topics, or of all."""
    named = [
        DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes)
        for name, indexes in topics.items()
    ]
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=named or None)]
    (found,) = world.ask("describe_share_group_offsets", 1, groups=groups).groups
    assert found.error_code == 0
    return [
        (topic.topic_name, each.partition_index, each.start_offset, each.lag, each.error_code)
        for topic in found.topics
        for each in topic.partitions
    ]


def errors(response: Any) -> list[tuple[int, str | None]]:
    (topic,) = response.responses
    return [(each.error_code, each.error_message) for each in topic.partitions]


UNKNOWN = (E.unknown_topic_or_partition, "This server does not host this topic-partition.")


def test_offsets_of_an_unknown_group_can_be_altered(world):
    """Only the record of the share partitions is written: the group has epoch 1."""
    world.replicas.ends["t", 0] = 25
    assert errors(alter(world, {0: 5, 9: 1})) == [(0, None), UNKNOWN]
    assert types(world) == [[15], [15]]
    group = world.share_group("g")
    assert (group.state, group.epoch, group.assignment_epoch) == ("Empty", 1, 1)
    assert [each[2:] for each in world.persister.initialized] == [(1, 5)]
    assert described(world) == [("t", 0, 5, 20, 0)]
    alter(world, {0: -5})
    assert described(world) == [("t", 0, -5, 30, 0)]
    alter(world, {0: 1000})
    assert described(world, t=[0, 7]) == [("t", 0, 1000, -975, 0), ("t", 7, -1, -1, 0)]
    assert described(world, x=[0]) == [("x", 0, -1, -1, 0)]
    assert described(world, group="none") == []
    unknown = alter(world, {0: 1}, topic="nope")
    assert errors(unknown) == [UNKNOWN]
    assert unknown.responses[0].topic_id is None
    world.groups.close()
    world.restart()
    assert world.share_group("g").epoch == 1


def test_partitions_that_no_persister_accepts(world):
    """Kafka's persister throws an exception, which is the error of the whole request or group."""
    altered = alter(world, {0: 5, -1: 5})
    message = (
        f"Initialize share group parameters has invalid partitionId - g {uuid_text(world.topic.topic_id)} -1"
    )
    assert (altered.error_code, altered.error_message, altered.responses) == (
        E.unknown_server_error,
        message,
        (),
    )
    assert world.persister.initialized == []
    for indexes in ([], [0, -1]):
        topics = [DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=indexes)]
        groups = [DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=topics)]
        (found,) = world.ask("describe_share_group_offsets", 1, groups=groups).groups
        assert (found.error_code, found.topics) == (E.unknown_server_error, ())


def test_lag_is_without_what_is_acknowledged(world):
    world.replicas.ends["t", 0] = 10
    world.replicas.ends["t", 1] = 10
    world.replicas.ends["t", 2] = E.offset_not_available
    Member(world, "m").settle()
    topic_id = world.topic.topic_id
    world.persister.states["g", topic_id, 0] = StoredState(2, 3, 4, 3)
    world.persister.states["g", topic_id, 2] = StoredState(2, 3, 4, 3)
    assert described(world) == [
        ("t", 0, 4, 3, 0),
        ("t", 1, -1, -1, 0),
        ("t", 2, 0, -1, E.offset_not_available),
    ]
    world.persister.error = E.not_coordinator
    assert described(world, t=[0]) == [("t", 0, -1, -1, 0)]


def test_offsets_are_altered_only_without_members(world):
    m = Member(world, "m")
    m.settle()
    refused = [alter(world, {0: 1}), delete(world, "t")]
    assert [(each.error_code, each.error_message) for each in refused] == [
        (E.non_empty_group, "The group is not empty.")
    ] * 2
    world.commit(5, group="c")
    wrong = [alter(world, {0: 1}, group="c"), delete(world, "t", group="c"), delete(world, "t", group="x")]
    assert [each.error_code for each in wrong] == [E.group_id_not_found] * 3
    nameless = [alter(world, {0: 1}, group=""), delete(world, "t", group="")]
    assert [(each.error_code, each.error_message) for each in nameless] == [
        (E.invalid_group_id, "The group id is invalid.")
    ] * 2


def test_a_failed_alteration_leaves_the_partitions_initializing(world):
    world.persister.error = E.coordinator_not_available
    assert errors(alter(world, {0: 5, 1: 6})) == [(E.coordinator_not_available, None)] * 2
    assert state_partitions(world) == ({"t": [0, 1]}, {}, 0)


def test_deleted_offsets(world):
    m = Member(world, "m")
    m.settle()
    m.beat(member_epoch=-1)
    found = delete(world, "t", "nope", "t")
    assert found.error_code == 0
    assert [(each.topic_name, each.topic_id is None, each.error_code) for each in found.responses] == [
        ("t", False, 0),
        ("nope", True, E.unknown_topic_or_partition),
    ]
    assert types(world)[-2:] == [[15], [15]]
    assert world.persister.states == {}
    (again,) = delete(world, "t").responses
    assert (again.error_code, again.error_message, again.topic_id) == (
        E.unknown_topic_or_partition,
        "There is no offset information to delete.",
        None,
    )
    m.join()
    assert m.assigned == {}, "nothing is initialized"
    assert [each.start_offset for each in world.persister.initialized[3:]] == [-1] * 3


def test_a_failed_deletion_of_offsets_can_be_tried_again(world):
    m = Member(world, "m")
    m.settle()
    m.beat(member_epoch=-1)
    world.persister.error = E.coordinator_not_available
    assert [each.error_code for each in delete(world, "t").responses] == [E.coordinator_not_available]
    assert state_partitions(world) == ({}, {}, 1)
    world.persister.error = E.none
    assert [each.error_code for each in delete(world, "t").responses] == [0]
    assert state_partitions(world) == ({}, {}, 0)


def test_topics_without_the_acl_for_altering(world):
    world.metadata.grow("u", 1)
    m = Member(world, "m")
    m.settle("t", "u")
    m.beat(member_epoch=-1)
    world.denied.add(("READ", "TOPIC", "t"))
    denied = (E.topic_authorization_failed, "Topic authorization failed.")
    altered = alter(world, {0: 1})
    assert (errors(altered), altered.responses[0].topic_id) == ([denied], world.topic.topic_id)
    refused, deleted = delete(world, "u", "t").responses
    assert (refused.topic_name, refused.topic_id, refused.error_code) == ("t", None, denied[0])
    assert (deleted.topic_name, deleted.error_code) == ("u", 0)


# -- deletion -------------------------------------------------------------------------------------------------------


async def deleted(world: World, *names: str) -> dict[str, int]:
    answer = await settled(world.ask("delete_groups", 3, groups_names=list(names)))
    return {each.group_id: each.error_code for each in answer.results}


async def test_a_group_is_deleted_with_its_states(world):
    m = Member(world, "m")
    m.settle()
    assert await deleted(world, "g", "x") == {"g": E.non_empty_group, "x": E.group_id_not_found}
    m.beat(member_epoch=-1)
    world.persister.error = E.coordinator_not_available
    assert await deleted(world, "g") == {"g": E.coordinator_not_available}
    assert state_partitions(world) == ({}, {}, 1)
    world.persister.error = E.none
    since = world.partition.log_end_offset
    assert await deleted(world, "g") == {"g": 0}
    assert types(world, since) == [[15], [12, 15, 11]]
    assert world.persister.states == {}
    assert world.all_groups() == []
    world.groups.close()
    world.restart()
    assert world.all_groups() == []
    assert world.join().error_code == E.member_id_required, "another kind of group may have the id now"


async def test_a_response_waits_for_the_commit(world):
    world.partition.hold = True
    answer = Member(world, "m").join()
    assert not answer.done()
    assert world.persister.initialized == []
    world.partition.release()
    world.clock.advance(0)
    assert (await answer).member_epoch == 2
    assert len(world.persister.initialized) == 3


def test_what_cannot_be_written_has_not_happened(world):
    m = Member(world, "m")
    world.partition.refuse = E.not_enough_replicas
    assert m.join().error_code == E.coordinator_not_available
    assert world.all_groups() == []
    assert not world.groups.shard_of("g").is_armed("g", session_timer("m"))
