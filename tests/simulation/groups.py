"""Members of consumer groups (KIP-848), dynamic and static.

They join by heartbeats, are reconciled, die, are fenced, and rejoin. One group copies records in transactions with the
member's epoch. The members of another group commit offsets that contain the epoch. The checks are in
`tests.simulation.ledger` and `tests.simulation.watch`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random
from typing import Any, Final
from uuid import UUID

from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.simulation.consumers import OFFSET_FETCH, Reader
from tests.simulation.ledger import Broken, Spot
from tests.simulation.offsets import GENERATION_STEP, OFFSET_COMMIT, OffsetsLedger
from tests.simulation.producers import MemberOf, MustAbort, MustRestart, Producer
from tests.simulation.wire import ASK_COORDINATOR_AGAIN, GROUP, NONE, TRY_AGAIN, Gone, Wire

HEARTBEAT: Final = 68
LEAVE, LEAVE_FOR_A_WHILE, JOIN = -1, -2, 0
REBALANCE_TIMEOUT_MS: Final = 6_000
SETTINGS: Final = {
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 6_000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 1_000,
}
EXPELLED: Final = frozenset(
    {
        ErrorCode.unknown_member_id,
        ErrorCode.fenced_member_epoch,
        ErrorCode.fenced_instance_id,
        ErrorCode.group_id_not_found,
    }
)
STALE: Final = EXPELLED | {ErrorCode.stale_member_epoch}
COPIED_AT_ONCE: Final = 5
ABORTS: Final = 0.2
BEATS_MEANWHILE: Final = 0.3
ACTS: Final = (("sleep", 5), ("die", 3), ("leave", 3), ("subscribe", 3), ("work", 90))
"""The next action of a member, drawn with these weights."""
Subscription = tuple[Sequence[str] | None, str | None]
"""Topic names and regular expression of a heartbeat; None leaves the field out."""


class ConsumerMember:
    """A member of a consumer group. After it has died or left, it joins again with a new member id.

    ``work`` processes a partition of the member.
    """

    def __init__(
        self, wire: Wire, group: str, subscriptions: Sequence[Subscription], instance: str | None = None
    ) -> None:
        self.wire = wire
        self.group = group
        self._subscriptions = subscriptions
        self._instance = instance
        self._random: Random = wire.random
        self._is_behind = False
        """Whether the next heartbeat must contain the owned partitions."""
        self.owned: dict[Spot, int | None] = {}
        """Positions of the owned partitions, None where unknown."""
        self.begin_life()

    def begin_life(self) -> None:
        self.member_id = str(UUID(int=self._random.getrandbits(128)))
        self._lose_all()

    def _lose_all(self) -> None:
        self.epoch = JOIN
        self.owned.clear()

    @property
    def identity(self) -> MemberOf:
        return MemberOf(self.member_id, self.epoch, self._instance)

    # ---- membership

    async def run(self, stop: Any, work: Callable[[Spot], Awaitable[None]]) -> None:
        names, weights = [name for name, _ in ACTS], [weight for _, weight in ACTS]
        while not stop.now:
            (act,) = self._random.choices(names, weights)
            try:
                await self._act(act, work)
            except Gone:
                self.wire.forget_coordinator(GROUP, self.group)
                # Responses of pending requests may still come. With a new member id they no longer matter.
                if self._random.random() < 0.5:
                    self.begin_life()
                await self.wire.back_off()
            await asyncio.sleep(self._random.uniform(0.2, 1.2))
        self.wire.close()

    async def _act(self, act: str, work: Callable[[Spot], Awaitable[None]]) -> None:
        if self.epoch == JOIN:
            await self._join()
        elif act == "sleep":
            await asyncio.sleep(self._random.uniform(4, 15))
        elif act == "die":
            self.wire.say("dies")
            self.begin_life()
            await asyncio.sleep(self._random.uniform(0, 8))
        elif act == "leave":
            await self._leave()
        elif act == "subscribe":
            names, regex = self._random.choice(self._subscriptions)
            await self.beat(subscribed_topic_names=names, subscribed_topic_regex=regex)
        else:
            await self.beat()
            if self.owned and self.epoch != JOIN:
                await work(self._random.choice(sorted(self.owned)))

    async def _join(self) -> None:
        names, regex = self._random.choice(self._subscriptions)
        await self.beat(
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=names,
            subscribed_topic_regex=regex,
            topic_partitions=[],
        )

    async def _leave(self) -> None:
        epoch = LEAVE if self._instance is None else self._random.choice((LEAVE, LEAVE_FOR_A_WHILE))
        self.wire.say(f"leaves with {epoch}")
        self.owned.clear()
        await self._ask(member_epoch=epoch)
        self.begin_life()
        await asyncio.sleep(self._random.uniform(0, 4))

    async def beat(self, **more: Any) -> None:
        if self._is_behind or self._random.random() < 0.1:
            more.setdefault("topic_partitions", self._rows())
        answer = await self._ask(**more)
        if answer is None:
            return
        self._is_behind = False
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self._assigned(answer.assignment.topic_partitions)

    async def _ask(self, **more: Any) -> Any:
        """Send a heartbeat and return the response. None if the response is an error, which the member has then handled."""
        fields = {"member_epoch": self.epoch, "instance_id": self._instance, "topic_partitions": None} | more
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, **fields)
        answer = await self.wire.ask_coordinator(GROUP, self.group, HEARTBEAT, 1, request)
        error = ErrorCode(answer.error_code)
        if error is NONE:
            return answer
        self.wire.say(f"heartbeat: {error.name}")
        if error in ASK_COORDINATOR_AGAIN:
            raise Gone(error.name)
        if error is ErrorCode.fenced_instance_id:
            self.begin_life()
        elif error in EXPELLED:
            self._lose_all()
        elif error is not ErrorCode.unreleased_instance_id and error not in TRY_AGAIN:
            raise Broken(f"a heartbeat of {self.wire.name} fails with {error.name}: {answer.error_message}")
        return None

    def _assigned(self, rows: Iterable[Any]) -> None:
        topic_name = self.wire.facts.topic_name
        told = {(topic_name(row.topic_id), index) for row in rows for index in row.partitions}
        self._is_behind = told != self.owned.keys()
        if self._is_behind:
            self.wire.say(f"has {sorted(told)} in epoch {self.epoch}")
        self.owned = {spot: self.owned.get(spot) for spot in sorted(told)}

    def _rows(self) -> list[TopicPartitions]:
        by_topic: dict[str, list[int]] = {}
        for topic, index in self.owned:
            by_topic.setdefault(topic, []).append(index)
        topic_id = self.wire.facts.topic_id
        return [TopicPartitions(topic_id=topic_id(name), partitions=of) for name, of in by_topic.items()]

    # ---- offsets

    async def committed(self, spot: Spot) -> int:
        """Stable offset of the group in a partition, 0 without one, from an OffsetFetch with the member's epoch.

        Raises ``Unsettled`` or ``Gone`` if the response has an error.
        """
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=self.group,
                    member_id=self.member_id,
                    member_epoch=self.epoch,
                    topics=[OffsetFetchRequestTopics(name=spot[0], partition_indexes=[spot[1]])],
                )
            ],
            require_stable=True,
        )
        answer = await self.wire.ask_coordinator(GROUP, self.group, OFFSET_FETCH, 9, request)
        (group,) = answer.groups
        errors = [group.error_code, *(row.error_code for topic in group.topics for row in topic.partitions)]
        for error in map(ErrorCode, errors):
            if error is not NONE:
                self.wire.say(f"its offsets: {error.name}")
                raise Unsettled(error.name) if error not in ASK_COORDINATOR_AGAIN else Gone(error.name)
        return max(int(group.topics[0].partitions[0].committed_offset), 0)


class Unsettled(Exception):
    """The group's offset is not known yet. A later request may succeed."""


async def copy_together(
    member: ConsumerMember, source: str, target: str, stop: Any, transactional_id: str, level: int
) -> None:
    """Consume, transform, produce, as a member of a consumer group: TxnOffsetCommit has the member's epoch."""
    producer = Producer(member.wire, transactional_id, level=level)
    await producer.live()

    async def work(spot: Spot) -> None:
        if spot[0] != source:
            return
        try:
            await _copy_some(member, producer, spot, target)
        except Unsettled:
            return
        except MustAbort as error:
            member.wire.say(f"copy is aborted: {error}")
            await producer.abort()
        except MustRestart as error:
            member.wire.say(f"copy restarts: {error}")
            await producer.live()

    await member.run(stop, work)


async def _copy_some(member: ConsumerMember, producer: Producer, spot: Spot, target: str) -> None:
    position, random = member.owned[spot], member.wire.random
    member.owned[spot] = None  # until the outcome is known
    if position is None:
        position = await member.committed(spot)
    reader = Reader(member.wire, spot, "read_committed")
    reader.position = position
    offsets = [at for at, _ in (await reader.fetch(500))[:COPIED_AT_ONCE]]
    if not offsets:
        member.owned[spot] = position
        return
    index = spot[1]
    await producer.send((target, index), [f"copy {index}:{offset}".encode() for offset in offsets])
    if random.random() < 0.05:
        await asyncio.sleep(random.uniform(3, 12))  # may exceed its session timeout
    await producer.send_offsets(member.group, {spot: offsets[-1] + 1}, member.identity)
    if random.random() < 0.05:
        await asyncio.sleep(random.uniform(3, 12))
    committed = random.random() >= ABORTS
    await producer.end(committed=committed)
    if committed:
        member.owned[spot] = offsets[-1] + 1
    member.wire.say(f"copied {index}: {offsets} in epoch {member.epoch}")


async def commit_in_epochs(member: ConsumerMember, ledger: OffsetsLedger, stop: Any) -> None:
    """Commit offsets that encode the member's epoch: no offset of an older epoch may replace one of a newer epoch."""
    count = 0

    async def work(spot: Spot) -> None:
        nonlocal count
        count += 1
        epoch = member.epoch
        offset = epoch * GENERATION_STEP + count
        highest = ledger.acknowledged.get(spot, -1)
        ledger.sent.setdefault(spot, set()).add(offset)
        beating = None
        if member.wire.random.random() < BEATS_MEANWHILE:
            # A heartbeat is sent in front of the commit, and may move the member to its next epoch.
            beating = asyncio.ensure_future(member.beat())
            await asyncio.sleep(0)
        try:
            error = await _commit(member, spot, offset, epoch)
            if beating is not None:
                await beating
        except Gone:
            if beating is not None:
                await asyncio.gather(beating, return_exceptions=True)
            # The commit may arrive late, and must not undo what this client commits meanwhile.
            member.begin_life()
            raise
        member.wire.say(f"commits {offset} in {spot}: {error.name}")
        if error is NONE:
            if offset // GENERATION_STEP < highest // GENERATION_STEP:
                raise Broken(f"offset {offset} was committed in {spot} after {highest} of a later epoch")
            ledger.acknowledged[spot] = max(highest, offset, ledger.acknowledged.get(spot, -1))
        elif error in ASK_COORDINATOR_AGAIN:
            raise Gone(error.name)
        elif error not in STALE and error not in TRY_AGAIN:
            raise Broken(f"a commit of {member.wire.name} in {spot} fails with {error.name}")

    await member.run(stop, work)


async def _commit(member: ConsumerMember, spot: Spot, offset: int, epoch: int) -> ErrorCode:
    row = OffsetCommitRequestPartition(
        partition_index=spot[1], committed_offset=offset, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=epoch,
        member_id=member.member_id,
        group_instance_id=member.identity.instance_id,
        topics=[OffsetCommitRequestTopic(name=spot[0], partitions=[row])],
    )
    answer = await member.wire.ask_coordinator(GROUP, member.group, OFFSET_COMMIT, 9, request)
    return ErrorCode(answer.topics[0].partitions[0].error_code)
