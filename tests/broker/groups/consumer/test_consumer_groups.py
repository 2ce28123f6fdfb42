"""Consumer groups at a coordinator with a manual clock: timers, changed topics and settings, appends that wait or fail.

The responses to requests are compared with Kafka's in tests/differential/stories/consumer_groups.py.
"""

import asyncio
from types import SimpleNamespace
from typing import Final

import pytest
from structlog.testing import capture_logs

from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.targets import is_due
from broker.groups.group import ClassicGroup
from protocol.errors import ErrorCode as E
from protocol.messages.join_group import JoinGroupRequestProtocol
from protocol.records.consumer_protocol import Assignment, TopicPartitions
from tests.broker.groups.world import World, subscription


class Client:
    """A member of the consumer protocol that behaves like a real client."""

    def __init__(self, world: World, member_id: str, group: str = "g", **said) -> None:
        self.world, self.id, self.group = world, member_id, group
        self.said = {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["t"]} | said
        self.instance = self.said.pop("instance_id", None)
        self.epoch = 0
        self.owned: list = []

    def ask(self, **fields):
        request = {
            "group_id": self.group,
            "member_id": self.id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
            "topic_partitions": None,
        }
        answer = self.world.ask("consumer_group_heartbeat", 1, **(request | fields))
        if isinstance(answer, asyncio.Future):
            return answer
        if answer.error_code == E.none:
            self.epoch = answer.member_epoch
        return answer

    def join(self, **fields):
        return self.ask(**({"member_epoch": 0, "topic_partitions": []} | self.said | fields))

    def beat(self, **fields):
        """Send a heartbeat in which the member owns the partitions of the last assignment it received."""
        member = self.member
        owned = (
            []
            if member is None
            else [
                SimpleNamespace(topic_id=topic, partitions=list(epochs))
                for topic, epochs in member.assigned.items()
            ]
        )
        return self.ask(**({"topic_partitions": owned} | fields))

    @property
    def member(self):
        group = self.world.groups.find(self.group)
        return group.members.get(self.id) if isinstance(group, ConsumerGroup) else None

    @property
    def partitions(self) -> list[tuple[str, int]]:
        topics = self.world.groups.consumer_groups.topics
        assigned = {} if self.member is None else self.member.assigned
        return sorted(
            (topics.topic_name(topic) or "", index) for topic, epochs in assigned.items() for index in epochs
        )


@pytest.fixture
def world():
    world = World()
    yield world
    world.groups.close()
    assert world.clock.timers == []


def names(world: World, group: str = "g") -> set[str]:
    found = world.groups.find(group)
    return set(found.members) if isinstance(found, ConsumerGroup) else set()


# -- time ----------------------------------------------------------------------------------------------------------


def test_a_member_that_is_not_heard_of_goes(world):
    a, b = Client(world, "a"), Client(world, "b")
    a.join()
    b.join()
    world.clock.advance(44_000)
    a.beat()
    world.clock.advance(1_500)
    assert names(world) == {"a"}
    assert a.beat().error_code == E.none
    assert len(a.partitions) == 3
    assert b.beat().error_code == E.unknown_member_id


def test_a_group_has_a_session_timeout_of_its_own(world):
    world.metadata.image.configs[32, "g"] = {
        "consumer.session.timeout.ms": "50000",
        "consumer.heartbeat.interval.ms": "7000",
    }
    a = Client(world, "a")
    assert a.join().heartbeat_interval_ms == 7_000
    world.clock.advance(49_000)
    assert names(world) == {"a"}
    world.clock.advance(1_500)
    assert names(world) == set()


def test_a_member_must_revoke_in_its_rebalance_timeout(world):
    a, b = Client(world, "a"), Client(world, "b")
    a.join()
    b.join()
    a.ask()  # the response contains the partitions to revoke
    for _ in range(9):
        world.clock.advance(1_000)
        a.ask()  # its session stays alive, but it does not report its owned partitions
    assert names(world) == {"a", "b"}
    with capture_logs() as logged:
        world.clock.advance(1_500)
    assert names(world) == {"b"}
    (line,) = [each for each in logged if each["event"] == "group has lost members"]
    assert (line["timer"], line["member"]) == ("rebalance", "a")


def test_one_that_has_revoked_is_not_thrown_out_later(world):
    a, b = Client(world, "a"), Client(world, "b")
    a.join()
    b.join()
    a.ask()
    a.beat()
    world.clock.advance(20_000)
    assert names(world) == {"a", "b"}


def test_after_a_restart_sessions_and_rebalance_timeouts_begin_anew(world):
    a, b = Client(world, "a"), Client(world, "b")
    a.join()
    b.join()
    a.ask()
    world.groups.close()
    world.clock.advance(100_000)
    world.restart()
    assert names(world) == {"a", "b"}
    world.clock.advance(9_000)
    assert names(world) == {"a", "b"}
    world.clock.advance(1_500)
    assert names(world) == {"b"}
    world.clock.advance(40_000)
    assert names(world) == set()


def test_assignments_are_made_once_in_an_interval(world):
    world.config.group_consumer_assignment_interval_ms = 1_000
    a, b, c = (Client(world, name) for name in "abc")
    a.join()
    assert len(a.partitions) == 3
    b.join()
    c.join()
    assert a.ask().assignment is None
    assert world.groups.find("g").state == "Assigning"
    world.clock.advance(1_000)
    assert a.ask().assignment is not None
    a.beat()
    b.beat()
    c.beat()
    assert [len(each.partitions) for each in (a, b, c)] == [1, 1, 1]


def test_an_assignment_of_a_clock_that_was_ahead_holds_back_no_other() -> None:
    """The log has it; a new process starts with real time."""
    due_ms = [now_ms for now_ms in (8_999, 9_000, 9_999, 10_000) if is_due(1_000, 9_000, now_ms)]
    assert due_ms == [8_999, 10_000]


def test_an_emptied_group_does_not_wait_for_the_interval(world):
    world.config.group_consumer_assignment_interval_ms = 1_000
    a, b = Client(world, "a"), Client(world, "b")
    a.join()
    a.ask(member_epoch=-1)
    b.join()
    assert len(b.partitions) == 3


# -- members of the classic protocol -------------------------------------------------------------------------------


def join_classic(world: World, member_id: str, **changes):
    return world.join(member_id, protocols=[offer(subscription("t"))], **changes)


ALL: Final = Assignment(assigned_partitions=[TopicPartitions(topic="t", partitions=[0, 1, 2])]).encode(3)


async def classic_member(world: World, **changes) -> str:
    """Join a classic group as its only member. The group becomes Stable with all partitions assigned to this member. Returns
    the member id."""
    member_id = await world.member(**changes)
    (member,) = world.classic_group(changes.get("group", "g")).members
    member.assignment = ALL
    return member_id


def offer(metadata: bytes, name: str = "range") -> JoinGroupRequestProtocol:
    return JoinGroupRequestProtocol(name=name, metadata=metadata)


async def test_a_classic_member_must_sync_and_join_in_time(world):
    a = Client(world, "a")
    a.join()
    joined = join_classic(world, "c", rebalance_timeout_ms=10_000, session_timeout_ms=30_000)
    assert (joined.error_code, joined.generation_id) == (E.none, world.groups.find("g").epoch)
    world.clock.advance(9_000)
    a.beat()
    assert names(world) == {"a", "c"}
    world.clock.advance(1_500)  # the member has not sent SyncGroup
    assert names(world) == {"a"}
    a.beat()

    joined = join_classic(world, "c", rebalance_timeout_ms=10_000, session_timeout_ms=30_000)
    world.sync("c", {}, generation=joined.generation_id)
    b = Client(world, "b")
    b.join()
    beat = {"group_id": "g", "member_id": "c", "generation_id": joined.generation_id}
    assert world.ask("heartbeat", 3, **beat).error_code == E.rebalance_in_progress
    for _ in range(9):
        world.clock.advance(1_000)
        assert world.ask("heartbeat", 3, **beat).error_code == E.rebalance_in_progress
    world.clock.advance(1_500)  # the member sends heartbeats, but no JoinGroup
    assert "c" not in names(world)


async def test_members_that_wait_in_a_classic_group_join_again_when_it_is_upgraded(world):
    await classic_member(world)
    other = world.join("", version=0)
    assert isinstance(other, asyncio.Future)
    a = Client(world, "a")
    assert a.join().error_code == E.none
    assert isinstance(world.groups.find("g"), ConsumerGroup)
    answer = await other
    assert answer.error_code == E.rebalance_in_progress


async def test_the_last_member_of_the_consumer_protocol_may_be_lost_by_its_session(world):
    leader = await classic_member(world, session_timeout_ms=1_000_000)
    a = Client(world, "a")
    a.join()
    assert names(world) == {"a", leader}
    world.clock.advance(45_500)
    group = world.groups.find("g")
    assert isinstance(group, ClassicGroup)
    assert (group.state, set(group.members._by_id)) == ("PreparingRebalance", {leader})


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades", "joins"),
    [
        ("bidirectional", True, True, True),
        ("upgrade", True, False, True),
        ("downgrade", False, True, True),
        ("disabled", False, False, False),
    ],
)
async def test_the_migration_policy(world, policy, upgrades, downgrades, joins):
    world.config.group_consumer_migration_policy = policy
    await classic_member(world, group="classic")
    answer = Client(world, "a", "classic").join()
    assert (answer.error_code == E.none) is upgrades
    if not upgrades:
        assert answer.error_code == E.group_id_not_found
        assert "online upgrade is disabled" in answer.error_message

    a = Client(world, "a", "consumer")
    a.join()
    joined = join_classic(world, "c", group="consumer")
    assert (joined.error_code == E.none) is joins
    if not joins:
        assert joined.error_code == E.inconsistent_group_protocol
        return
    a.ask(member_epoch=-1)
    assert isinstance(world.groups.find("consumer"), ClassicGroup) is downgrades


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"protocol_type": "connect"}, "does not use the consumer embedded protocol"),
        ({"protocols": [offer(b"garbage")]}, "the embedded consumer protocol is malformed"),
    ],
)
async def test_what_cannot_be_upgraded(world, changes, reason):
    await classic_member(world, **changes)
    answer = Client(world, "a").join()
    assert answer.error_code == E.group_id_not_found
    assert reason in answer.error_message
    assert isinstance(world.groups.find("g"), ClassicGroup)


async def test_user_data_of_a_custom_assignor_is_not_thrown_away(world):
    await classic_member(world)
    (found,) = world.groups.find("g").members
    found.assignment = Assignment(user_data=b"mine").encode(0)
    answer = Client(world, "a").join()
    assert answer.error_code == E.group_id_not_found
    assert "custom assignor" in answer.error_message


def test_a_full_group(world):
    world.config.group_consumer_max_size = 1
    a = Client(world, "a")
    a.join()
    answer = Client(world, "b").join()
    assert answer.error_code == E.group_max_size_reached
    assert "maximum capacity of 1 members" in answer.error_message
    assert a.beat().error_code == E.none
    assert join_classic(world, "c").error_code == E.group_max_size_reached


# -- topics --------------------------------------------------------------------------------------------------------


def test_a_regular_expression_follows_the_topics(world):
    a = Client(world, "a", subscribed_topic_names=None, subscribed_topic_regex="(t|new.*)")
    assert list(a.join().assignment.topic_partitions) == []
    world.clock.advance(0)  # the regular expression is resolved in the background
    a.beat()
    assert len(a.partitions) == 3
    world.metadata.grow("new-1", 2)
    world.metadata.grow("other", 2)
    a.beat()
    world.clock.advance(0)
    a.beat()
    assert len(a.partitions) == 3, "regular expressions are not resolved again within ten seconds"
    world.clock.advance(10_001)
    a.beat()
    world.clock.advance(0)
    a.beat()
    assert a.partitions == [*(("new-1", index) for index in (0, 1)), *(("t", index) for index in (0, 1, 2))]
    world.metadata.remove("new-1")
    a.beat()
    assert len(a.partitions) == 3


def test_a_regular_expression_is_resolved_at_its_interval(world):
    world.config.group_consumer_regex_refresh_interval_ms = 30_000
    a = Client(world, "a", subscribed_topic_names=None, subscribed_topic_regex="t")
    a.join()
    world.clock.advance(0)
    before = world.groups.find("g").regexes_resolved_at_ms
    for _ in range(2):
        world.clock.advance(29_000)
        a.beat()
        world.clock.advance(0)
    assert world.groups.find("g").regexes_resolved_at_ms > before


def test_a_topic_that_grows_is_assigned_at_the_next_heartbeat(world):
    a = Client(world, "a")
    a.join()
    epoch = a.epoch
    world.metadata.grow("u", 1)
    assert (a.beat().assignment, a.epoch) == (None, epoch), "the group is not subscribed to the topic u"
    world.metadata.grow("t", 5)
    assert a.beat().assignment is not None
    assert (len(a.partitions), a.epoch) == (5, epoch + 1)


# -- the log -------------------------------------------------------------------------------------------------------


async def test_a_steady_heartbeat_writes_nothing(world):
    a = Client(world, "a")
    a.join()
    end = [partition.log_end_offset for partition in world.partitions.values()]
    for _ in range(3):
        assert a.beat().error_code == E.none
    assert [partition.log_end_offset for partition in world.partitions.values()] == end


async def test_no_answer_before_the_records_are_committed(world):
    for partition in world.partitions.values():
        partition.hold = True
    a = Client(world, "a")
    answer = a.join()
    assert isinstance(answer, asyncio.Future)
    for partition in world.partitions.values():
        partition.release()
    assert (await answer).error_code == E.none


async def test_a_deletion_whose_wait_ends_within_an_append_sees_the_records_of_that_append(world):
    """The append of a new member commits what the deletion waits for. The group has a member then."""
    a = Client(world, "a")
    a.join()
    a.ask(member_epoch=-1)
    world.partition.hold = True
    committing = world.commit(5, group="h")
    deleting = world.ask("delete_groups", 1, groups_names=["g"])
    world.partition.hold = False
    assert a.join().error_code == E.none
    assert (await deleting).results[0].error_code == E.non_empty_group
    assert await committing is E.none
    before = world.groups.memory()
    world.groups.close()
    world.restart()
    assert world.groups.memory() == before
    assert names(world) == {"a"}


async def test_what_cannot_be_written_has_not_happened(world):
    a = Client(world, "a")
    a.join()
    for partition in world.partitions.values():
        partition.refuse = E.not_enough_replicas
    assert Client(world, "b").join().error_code == E.coordinator_not_available
    assert a.ask(member_epoch=-1).error_code == E.coordinator_not_available
    for partition in world.partitions.values():
        partition.refuse = E.none
    assert names(world) == {"a"}
    assert a.beat().error_code == E.none


def test_the_broker_may_be_told_not_to_serve_consumer_groups(world):
    a = Client(world, "a")
    world.config.group_coordinator_rebalance_protocols = ("classic",)
    assert a.join().error_code == E.unsupported_version
    (group,) = world.ask("consumer_group_describe", 1, group_ids=["g"]).groups
    assert group.error_code == E.unsupported_version
    world.config.group_coordinator_rebalance_protocols = ("classic", "consumer")
    world.metadata.features = {}
    assert a.join().error_code == E.unsupported_version
