"""Random histories with members of both protocols: no partition has two owners, and the state can be loaded from the log."""

import os
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from broker.groups.commits import Committer
from broker.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from broker.groups.consumer.member import MemberState
from broker.groups.coordinator_state import GroupCoordinatorState
from broker.groups.shard import GroupShard
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from protocol.messages.sync_group import SyncGroupRequest
from tests.broker.groups.test_rebuild import History, load_compacted, run_and_reload

HISTORIES = int(os.environ.get("ODRADEK_HISTORIES", "1000"))
BATCH = 50
TOPICS = ("t", "u", "v")
MEMBERS = ("m1", "m2", "m3", "m4")


class ConsumerHistory(History):
    """A random history in which members of the consumer protocol join, send heartbeats, revoke partitions or do not, and
    leave, beside members of the classic protocol."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world.config.group_consumer_assignment_interval_ms = self.rng.choice((0, 0, 1_000))
        self.events += [
            (self.consumer_joins, 40),
            (self.consumer_beats, 80),
            (self.consumer_leaves, 10),
            (self.consumer_commits, 10),
            (self.classic_member_syncs, 20),
            (self.topic_changes, 6),
        ]

    def consumer_group(self) -> ConsumerGroup | None:
        found = [group for group in self.groups.all_groups() if isinstance(group, ConsumerGroup)]
        return self.rng.choice(found) if found else None

    def beat(self, group_id: str, member_id: str, epoch: int, **more: Any):
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=epoch,
            **{"topic_partitions": None, **more},
        )
        return self.groups.consumer_group_heartbeat(request, "client", "/127.0.0.1", 1)

    def consumer_joins(self):
        group_id, _ = self.group()
        names = self.rng.sample(TOPICS, self.rng.randint(0, 2))
        regex = self.rng.choice((None, None, "", "[tu]", "x.*", "v|__.*"))
        return self.beat(
            group_id,
            self.rng.choice(MEMBERS),
            0,
            topic_partitions=[],
            instance_id=self.rng.choice((None, None, None, "i", "j")),
            rebalance_timeout_ms=self.rng.choice((5_000, 60_000)),
            subscribed_topic_names=names,
            subscribed_topic_regex=regex,
            server_assignor=self.rng.choice((None, "uniform", "range")),
        )

    def consumer_beats(self):
        group = self.consumer_group()
        if group is None or not group.members:
            return None
        member = self.rng.choice(list(group.members.values()))
        owned = None
        if self.rng.random() < 0.7:
            owned = [
                TopicPartitions(topic_id=topic_id, partitions=list(epochs))
                for topic_id, epochs in member.assigned.items()
            ]
        changes: dict[str, Any] = {}
        if self.rng.random() < 0.2:
            changes["subscribed_topic_names"] = self.rng.sample(TOPICS, self.rng.randint(0, 2))
        if self.rng.random() < 0.1:
            changes["subscribed_topic_regex"] = self.rng.choice(("", "[tu]", "y.*"))
        epoch = member.member_epoch + self.rng.choice((0, 0, 0, 0, 0, 0, -1, 1))
        return self.beat(
            group.group_id,
            member.member_id,
            epoch,
            instance_id=member.instance_id,
            topic_partitions=owned,
            **changes,
        )

    def consumer_leaves(self):
        group = self.consumer_group()
        if group is None or not group.members:
            return None
        member = self.rng.choice(list(group.members.values()))
        epoch = self.rng.choice((-1, -2)) if member.instance_id is not None else -1
        return self.beat(group.group_id, member.member_id, epoch, instance_id=member.instance_id)

    def consumer_commits(self):
        group = self.consumer_group()
        if group is None or not group.members:
            return None
        member = self.rng.choice(list(group.members.values()))
        epoch = member.member_epoch - self.rng.choice((0, 0, 1))
        who = Committer(group.group_id, member.member_id, epoch, member.instance_id)
        return self.groups.commit(who, self.offsets(), -1, 9)

    def classic_member_syncs(self):
        """A classic member of a consumer group sends what its client would send: Heartbeat, JoinGroup, SyncGroup."""
        group = self.consumer_group()
        members = [] if group is None else [each for each in group.members.values() if each.classic]
        if group is None or not members:
            return None
        member = self.rng.choice(members)
        who = (group.group_id, member.member_id, member.instance_id)
        self.ask(self.groups.heartbeat(*who, member.member_epoch))
        if self.rng.random() < 0.5:
            return self.join_as(*who)
        request = SyncGroupRequest(
            group_id=group.group_id,
            generation_id=member.member_epoch,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
        )
        return self.groups.sync(request)

    def topic_changes(self):
        name = self.rng.choice(TOPICS[1:])
        topic = self.world.metadata.topics.get(name)
        if topic is not None and self.rng.random() < 0.3:
            self.world.metadata.remove(name)
        else:
            self.world.metadata.grow(name, 1 if topic is None else len(topic.partitions) + 2)

    def check(self, seed: int) -> None:
        for group in self.world.all_groups():
            if isinstance(group, ConsumerGroup):
                owned = owners(group)
                assert len(owned) == len(set(owned)), f"seed {seed}: a partition has two owners"


def owners(group: ConsumerGroup) -> list[tuple[UUID, int]]:
    """(topic id, partition) of each partition, once for each member that owns it or has not revoked it yet."""
    return [
        (topic_id, partition)
        for member in group.members.values()
        for part in (member.assigned, member.pending_revocation)
        for topic_id, epochs in part.items()
        for partition in epochs
    ]


@pytest.mark.parametrize("first", range(0, HISTORIES, BATCH))
async def test_a_rebuilt_memory_is_the_same(first: int):
    for seed in range(first, first + BATCH):
        await run_and_reload(ConsumerHistory(seed), seed)


async def test_a_compacted_log_gives_the_same_groups():
    """The groups loaded from a compacted log equal those of the whole log. A compacted log has only the last record of
    each key, and a member's record may precede the record of the member's group."""
    for seed in range(100):
        history = ConsumerHistory(seed)
        history.run()
        world = history.world
        shard = world.groups._runtime.find(0)
        assert isinstance(shard, GroupShard)
        before = current(shard.state)
        world.groups.close()
        assert current(load_compacted(shard)) == before, f"seed {seed}"


def current(state: GroupCoordinatorState) -> dict[str, dict[str, object]]:
    """The consumer groups of a state, in a form that can be compared after a reload. Static members have only
    their current instance ids in it. In a state, a static member that rejoined with another instance id also has
    the former one, as in Kafka, until the record with the former id is compacted."""
    images = {name: dict(group.image()) for name, group in state.consumer_groups.items()}
    for name, image in images.items():
        members = state.consumer_groups[name].members
        image["static"] = {each.instance_id: each.member_id for each in members.values() if each.instance_id}
    return images


async def test_the_histories_are_worth_their_name():
    """The histories reach every state of groups and members, and both kinds of conversion."""
    states: set[ConsumerGroupState] = set()
    of_members: set[MemberState] = set()
    mixed = downgraded = committed = 0
    for seed in range(200):
        history = ConsumerHistory(seed)
        with capture_logs() as logged:
            history.run()
        downgraded += sum(line["event"] == "consumer group became a classic group" for line in logged)
        for group in history.world.all_groups():
            if isinstance(group, ConsumerGroup):
                states.add(group.state)
                of_members |= {member.state for member in group.members.values()}
                mixed += 0 < group.classic_members < len(group.members)
        image: list[Any] = list(history.world.groups.memory().values())
        committed += sum(len(each["committed"]) for each in image)
        history.world.groups.close()
    assert states == set(ConsumerGroupState) - {ConsumerGroupState.DEAD}
    assert of_members == set(MemberState) - {MemberState.UNKNOWN}
    assert min(mixed, downgraded, committed) > 5, (mixed, downgraded, committed)
