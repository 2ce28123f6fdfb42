"""Random histories with share groups beside all others: the state can be loaded from the log, also if it is compacted."""

import os
from contextlib import suppress
from typing import Any

import pytest

from broker.groups.consumer.context import Client, Refused
from broker.groups.coordinator_state import GroupCoordinatorState
from broker.groups.shard import GroupShard
from broker.groups.share.group import ShareGroup
from protocol.errors import ErrorCode as E
from protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.broker.groups.test_rebuild import History, load_compacted, run_and_reload

HISTORIES = int(os.environ.get("ODRADEK_HISTORIES", "1000")) // 2
BATCH = 50
TOPICS = ("t", "u", "v")
MEMBERS = ("m1", "m2", "m3", "m4")


class ShareHistory(History):
    """A random history with members of share groups, whose share coordinators sometimes fail or respond late."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world.config.group_share_assignment_interval_ms = self.rng.choice((0, 0, 1_000))
        self.world.config.group_share_max_size = self.rng.choice((2, 200))
        self.events += [
            (self.share_joins, 60),
            (self.share_beats, 90),
            (self.share_leaves, 40),
            (self.share_offsets, 50),
            (self.share_coordinator, 15),
            (self.topic_changes, 6),
        ]

    def share_group(self) -> ShareGroup | None:
        found = [group for group in self.groups.all_groups() if isinstance(group, ShareGroup)]
        return self.rng.choice(found) if found else None

    async def beat(self, group_id: str, member_id: str, epoch: int, names: list[str] | None = None) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=epoch, subscribed_topic_names=names
        )
        with suppress(Refused):
            await self.groups.share_groups.heartbeat(request, Client("client", "/127.0.0.1"))

    def names(self) -> list[str]:
        return self.rng.sample(TOPICS, self.rng.randint(1, 2))

    def share_joins(self):
        return self.beat(self.group()[0], self.rng.choice(MEMBERS), 0, self.names())

    def share_beats(self):
        group = self.share_group()
        if group is None or not group.members:
            return None
        member = self.rng.choice(list(group.members.values()))
        names = self.names() if self.rng.random() < 0.2 else None
        epoch = member.member_epoch + self.rng.choice((0, 0, 0, 0, 0, 0, -1, 1))
        return self.beat(group.group_id, member.member_id, epoch, names)

    def share_leaves(self):
        group = self.share_group()
        if group is None or not group.members:
            return None
        return self.beat(group.group_id, self.rng.choice(list(group.members)), -1)

    async def share_offsets(self) -> None:
        group = self.share_group()
        group_id = self.group()[0] if group is None else group.group_id
        topic = self.rng.choice(TOPICS)
        altered = AlterShareGroupOffsetsRequestPartition(
            partition_index=self.rng.randrange(4), start_offset=self.rng.randrange(99)
        )
        topics = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[altered])]
        with suppress(Refused):
            if self.rng.random() < 0.5:
                await self.groups.share_groups.alter_offsets(group_id, topics)
            else:
                await self.groups.share_groups.delete_offsets(group_id, [topic])

    def share_coordinator(self) -> None:
        self.world.persister.error = self.rng.choice((E.none, E.coordinator_not_available))
        self.rng.choice((self.world.persister.hold, self.world.persister.release))()

    def release(self) -> None:
        super().release()
        self.world.clock.advance(0)
        self.world.persister.release()

    def topic_changes(self):
        name = self.rng.choice(TOPICS[1:])
        topic = self.world.metadata.topics.get(name)
        if topic is not None and self.rng.random() < 0.3:
            self.world.metadata.remove(name)
        else:
            self.world.metadata.grow(name, 1 if topic is None else len(topic.partitions) + 2)

    def check(self, seed: int) -> None:
        """A member has only initialized partitions, and only topics to which it subscribes."""
        groups = [group for group in self.groups.all_groups() if isinstance(group, ShareGroup)]
        for group, member in ((each, member) for each in groups for member in each.members.values()):
            for topic_id, partitions in member.assigned.items():
                topic = group.partitions.initialized.get(topic_id)
                if topic is not None:
                    assert partitions <= topic.partitions, f"seed {seed}"
                    assert topic.name in member.subscribed_topic_names, f"seed {seed}"
        for shard in self.groups._runtime.all():
            # A load forgets topics whose deletion could not be written.
            self.groups.share_groups.loaded(shard)


@pytest.mark.parametrize("first", range(0, HISTORIES, BATCH))
async def test_a_rebuilt_memory_is_the_same(first: int):
    for seed in range(first, first + BATCH):
        await run_and_reload(ShareHistory(seed), seed)


async def test_a_compacted_log_gives_the_same_groups():
    """The groups loaded from a compacted log equal those of the whole log."""
    for seed in range(100):
        history = ShareHistory(seed)
        history.run()
        world = history.world
        shard = world.groups.shard_of("a")
        assert isinstance(shard, GroupShard)
        before = images(shard.state)
        world.groups.close()
        assert images(load_compacted(shard)) == before, f"seed {seed}"


def images(state: GroupCoordinatorState) -> dict[str, object]:
    return {name: group.image() for name, group in state.share_groups.items()}


async def test_the_histories_are_worth_their_name():
    """The histories reach groups with and without members, and partitions in each state of their initialization."""
    states: set[str] = set()
    initializing = initialized = deleting = assigned = 0
    for seed in range(100):
        history = ShareHistory(seed)
        history.run()
        for group in history.world.all_groups():
            if isinstance(group, ShareGroup):
                states.add(group.state)
                found: Any = group.partitions
                initializing += len(found.initializing)
                initialized += len(found.initialized)
                deleting += len(found.deleting)
                assigned += sum(bool(member.assigned) for member in group.members.values())
        history.world.groups.close()
    assert states == {"Empty", "Stable"}
    assert min(initializing, initialized, deleting, assigned) > 1, (
        initializing,
        initialized,
        deleting,
        assigned,
    )
