"""The state that a coordinator loads from its log equals the state that it had in memory, field by field."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from broker.groups.commits import Committer, OffsetToCommit
from broker.groups.coordinator_state import GroupCoordinatorState
from broker.groups.group import ClassicGroup, ClassicGroupState
from broker.groups.shard import GroupShard
from protocol.errors import ErrorCode as E
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import MemberIdentity
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.records.group_log import decode_key, decode_value
from protocol.schema import Key
from tests.broker.groups.world import World, subscription

HISTORIES = int(os.environ.get("ODRADEK_HISTORIES", "1000"))
BATCH = 50
EVENTS = 40
GROUPS = ("a", "b", "c")
PRODUCERS = (1, 2, 3)


class History:
    """Random requests and events at one coordinator with two partitions. Some appends are delayed, and some
    partitions change their leader."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.world = World(
            offsets_partitions=2,
            group_initial_rebalance_delay_ms=self.rng.choice((0, 3_000)),
            group_max_size=self.rng.choice((2, 2**31 - 1)),
            offsets_retention_minutes=1,
        )
        self.futures: list[asyncio.Future] = []
        self.ending: set[int] = set()
        self.events: list[tuple[Callable[[], object], int]] = [
            (self.join, 30),
            (self.sync, 15),
            (self.behave, 15),
            (self.heartbeat, 5),
            (self.leave, 5),
            (self.commit, 15),
            (self.commit_transactional, 15),
            (self.marker, 10),
            (self.delete_offsets, 4),
            (self.delete_group, 3),
            (self.delete_topic, 1),
            (self.pass_time, 15),
            (self.hold, 4),
            (self.release, 6),
            (self.refuse, 2),
            (self.change_leader, 1),
        ]

    def run(self) -> None:
        happen, weights = zip(*self.events, strict=True)
        for event in self.rng.choices(happen, weights, k=EVENTS):
            self.ask(event())
        self.release()

    def check(self, seed: int) -> None:
        """Check what must be true at the end of a history."""

    def ask(self, request: Coroutine | None) -> None:
        outcome = self.world.start(request)
        self.futures += [outcome] if isinstance(outcome, asyncio.Future) else []

    # -- random subjects ----------------------------------------------------------------------------------------

    @property
    def groups(self):
        return self.world.groups

    def group(self) -> tuple[str, ClassicGroup | None]:
        group_id = self.rng.choice(GROUPS)
        found = self.groups.find(group_id)
        return group_id, found if isinstance(found, ClassicGroup) else None

    def member(self, group: ClassicGroup | None) -> tuple[str, str | None]:
        """A random member: a known member, a pending id, an unknown id, or an instance id with or without its member id."""
        members = [] if group is None else list(group.members)
        known = [(each.member_id, each.group_instance_id) for each in members]
        pending = [] if group is None else [(member_id, None) for member_id in group.pending_joins]
        return self.rng.choice(
            [*known, *known, *pending, ("", None), ("unknown", None), ("", "i"), ("unknown", "j")]
        )

    # -- events -------------------------------------------------------------------------------------------------

    def join(self):
        group_id, group = self.group()
        member_id, instance_id = self.member(group)
        return self.join_as(group_id, member_id, instance_id or self.rng.choice((None, None, "i", "j")))

    def join_as(self, group_id: str, member_id: str, instance_id: str | None):
        names = self.rng.choice((["range"], ["range", "roundrobin"], ["roundrobin", "range"]))
        metadata = self.rng.choice((subscription("t"), subscription("t", "u"), b"garbage"))
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=self.rng.choice((6_000, 30_000)),
            rebalance_timeout_ms=self.rng.choice((5_000, 60_000)),
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=self.rng.choice(("consumer", "consumer", "consumer", "connect")),
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in names],
        )
        return self.groups.join(request, "client", "/127.0.0.1", self.rng.choice((0, 3, 5, 9)))

    def behave(self):
        """Act as well-behaved clients: all members join, and the leader sends the assignment."""
        group_id, group = self.group()
        if group is None:
            return
        for member_id in list(group.pending_joins):
            self.ask(self.join_as(group_id, member_id, None))
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            for member in group.members:
                if member.joining is None and member.member_id in group.members:
                    self.ask(self.join_as(group_id, member.member_id, member.group_instance_id))
            self.world.clock.advance(self.rng.choice((0, 3_000)))
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            assert group.leader is not None
            self.ask(self.sync_as(group_id, group, group.leader, None))

    def sync(self):
        group_id, group = self.group()
        return None if group is None else self.sync_as(group_id, group, *self.member(group))

    def sync_as(self, group_id: str, group: ClassicGroup, member_id: str, instance_id: str | None):
        return self.groups.sync(
            SyncGroupRequest(
                group_id=group_id,
                generation_id=group.generation,
                member_id=member_id,
                group_instance_id=instance_id,
                assignments=[
                    SyncGroupRequestAssignment(member_id=each.member_id, assignment=self.rng.randbytes(3))
                    for each in group.members
                    if self.rng.random() < 0.8
                ],
            )
        )

    def heartbeat(self):
        group_id, group = self.group()
        member_id, instance_id = self.member(group)
        generation = 1 if group is None else group.generation
        return self.groups.heartbeat(group_id, member_id, instance_id, generation)

    def leave(self):
        group_id, group = self.group()
        leaving = [self.member(group) for _ in range(self.rng.randint(1, 3))]
        identities = [
            MemberIdentity(member_id=each, group_instance_id=instance) for each, instance in leaving
        ]
        return self.groups.leave(group_id, identities)

    def offsets(self) -> list[OffsetToCommit]:
        topic_id = self.rng.choice((None, self.world.topic.topic_id))
        return [
            OffsetToCommit("t", self.rng.randrange(3), self.rng.randrange(100), 0, "m", topic_id)
            for _ in range(self.rng.randint(1, 3))
        ]

    def commit(self):
        group_id, group = self.group()
        who = Committer(group_id)
        if group is not None and group.members:
            member_id, instance_id = self.member(group)
            who = Committer(group_id, member_id, group.generation, instance_id)
        retention_ms = self.rng.choice((-1, -1, 30_000))
        return self.groups.commit(who, self.offsets(), retention_ms, 8)

    def commit_transactional(self):
        group_id, _ = self.group()
        producer = self.rng.choice(PRODUCERS)
        if producer in self.ending:
            return None  # the transaction coordinator begins no transaction before the markers of the last one are committed
        return self.groups.commit_transactional(
            group_id, "", -1, None, producer, 0, self.offsets(), 3, verified=True
        )

    def marker(self):
        producer, committed = self.rng.choice(PRODUCERS), self.rng.random() < 0.6
        for index, partition in self.world.partitions.items():
            self.world.marker(producer, committed, partition=index)
            if partition.hold:
                self.ending.add(producer)

    def delete_offsets(self):
        group_id, _ = self.group()
        return self.groups.delete_offsets(group_id, [("t", self.rng.randrange(3))])

    def delete_group(self):
        return self.groups.delete(self.group()[0])

    def delete_topic(self):
        self.groups.on_topic_deleted(self.world.topic)

    def pass_time(self):
        self.world.clock.advance(self.rng.choice((0, 0, 1_000, 1_000, 6_000, 30_000, 700_000)))

    def hold(self):
        self.rng.choice(self.world.partitions).hold = True

    def release(self):
        for partition in self.world.partitions.values():
            partition.refuse = E.none
            partition.release()
        self.ending.clear()

    def refuse(self):
        self.rng.choice(self.world.partitions).refuse = E.not_enough_replicas

    def change_leader(self):
        partition = self.rng.choice(self.world.partitions)
        partition.leader_epoch += 1
        topic = self.world.metadata.topics[partition.topic]
        self.groups.on_leader_changed(topic, topic.partitions[partition.index])


@pytest.mark.parametrize("first", range(0, HISTORIES, BATCH))
async def test_a_rebuilt_memory_is_the_same(first: int):
    for seed in range(first, first + BATCH):
        await run_and_reload(History(seed), seed)


async def run_and_reload(history: History, seed: int) -> None:
    """Run a history, and compare its state with the one that a new coordinator loads from the log."""
    history.run()
    history.check(seed)
    world = history.world
    before = world.groups.memory()
    world.groups.close()
    assert world.clock.timers == [], f"seed {seed}: a timer was left behind"
    world.restart()
    assert world.groups.memory() == before, f"seed {seed}"
    await asyncio.sleep(0)
    assert all(future.done() for future in history.futures), f"seed {seed}: a request is still waiting"
    world.groups.close()


def load_compacted(shard: GroupShard) -> GroupCoordinatorState:
    """The state from a log that has only the last record of each key, and no tombstones."""
    latest = {
        bytes(record.key or b""): (record.offset, record.value)
        for batch in shard.partition.log.batches()
        if not batch.is_control
        for record in batch.records()
    }
    rebuilt = GroupCoordinatorState(shard.state.config)
    for raw_key, (offset, value) in sorted(latest.items(), key=lambda item: item[1][0]):
        key = decode_key(raw_key)
        assert isinstance(key, Key)
        if value is not None:
            rebuilt.apply(offset, -1, key, decode_value(key, bytes(value)))
    return rebuilt


async def test_the_histories_are_worth_their_name():
    """The histories reach every group state except Dead, and end with waiting requests, members, and committed and pending
    offsets."""
    states: set[object] = set()
    waited = left = pending = members = 0
    for seed in range(100):
        history = History(seed)
        history.run()
        image: list[Any] = list(history.world.groups.memory().values())
        states |= {group.state for group in history.world.all_groups()}
        waited += len(history.futures)
        left += sum(len(each["committed"]) for each in image)
        pending += sum(len(each["pending"]) for each in image)
        members += sum(len(group["members"]) for each in image for group in each["groups"].values())
        history.world.groups.close()
    assert states == set(ClassicGroupState) - {ClassicGroupState.DEAD}
    assert min(waited, left, pending, members) > 20, (waited, left, pending, members)
