"""Offset commits: in transactions over several groups, and by classic group members with generations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.simulation.consumers import committed_offsets
from tests.simulation.ledger import Broken, Spot, Verdict
from tests.simulation.producers import MustAbort, MustRestart, Producer
from tests.simulation.wire import GROUP, NONE, TRY_AGAIN, Gone, Wire

OFFSET_COMMIT, JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 8, 11, 12, 14
SESSION_TIMEOUT_MS: Final = 6_000
GENERATION_STEP: Final = 1_000_000
"""A member commits generation * this number + a counter, so that an offset shows its generation."""
PAUSE_S: Final = (0.3, 4.0)
ABORTS: Final = 0.4


@dataclass(slots=True)
class Marked:
    """One transaction that commits its number as the offset of some partitions in some groups."""

    number: int
    spots: frozenset[tuple[str, Spot]]
    verdict: Verdict = Verdict.ABORTED


@dataclass(slots=True)
class OffsetsLedger:
    """The commits of offsets and their outcomes."""

    transactions: list[Marked] = field(default_factory=list)
    sent: dict[Spot, set[int]] = field(default_factory=dict)
    acknowledged: dict[Spot, int] = field(default_factory=dict)
    """Highest offset whose commit by a member was acknowledged, by partition."""

    def possible(self, key: tuple[str, Spot]) -> set[int]:
        """Offsets that a group may have in a partition. ``key`` is (group, partition).

        These are the offset of the last committed transaction (-1 if there is none), and those of later
        transactions with unknown outcome. ``check`` verifies that each transaction takes effect as a whole or not
        at all.
        """
        found = {-1}
        for each in self.transactions:
            if key not in each.spots:
                continue
            if each.verdict is Verdict.COMMITTED:
                found = {each.number}
            elif each.verdict is Verdict.UNKNOWN:
                found.add(each.number)
        return found

    def check_seen(self, group: str, seen: dict[Spot, int]) -> None:
        """Check offsets that a client fetched while no transaction was open: each must be one of ``possible``."""
        for spot, offset in seen.items():
            possible = self.possible((group, spot))
            if offset not in possible:
                raise Broken(
                    f"group {group} has the offset {offset} in {spot}, but valid are {sorted(possible)}"
                )

    def check(self, committed: Callable[[str, Spot], int]) -> None:
        """Check at the end that each transaction has committed all of its offsets, or none.

        A later transaction may have replaced an offset.
        """
        keys = {key for each in self.transactions for key in each.spots}
        offsets = {key: committed(*key) for key in keys}
        for (group, spot), offset in offsets.items():
            self.check_seen(group, {spot: offset})
        shown = set(offsets.values())
        for each in self.transactions:
            if each.verdict is Verdict.UNKNOWN and each.number in shown:
                wrong = [key for key in each.spots if offsets[key] < each.number]
                if wrong:
                    raise Broken(
                        f"transaction {each.number} has committed a part of its offsets, but not those of {wrong}"
                    )

    def check_members(self, committed: Callable[[Spot], int]) -> None:
        for spot, highest in self.acknowledged.items():
            offset = committed(spot)
            if offset < highest or offset not in self.sent[spot]:
                raise Broken(
                    f"a member's commit of {highest} in {spot} was acknowledged, but the group has {offset}"
                )


async def mark(
    wire: Wire, groups: Sequence[str], spots: Sequence[Spot], ledger: OffsetsLedger, stop: Any, level: int
) -> None:
    """Run transactions that only commit offsets, of several groups and many partitions, and abort many."""
    producer = Producer(wire, wire.name, level=level)
    await producer.live()
    number = 0
    while not stop.now:
        await asyncio.sleep(wire.random.uniform(*PAUSE_S))
        number += 1
        chosen = {
            group: wire.random.sample(spots, wire.random.randint(1, len(spots)))
            for group in wire.random.sample(groups, wire.random.randint(1, len(groups)))
        }
        marked = Marked(number, frozenset((group, spot) for group, some in chosen.items() for spot in some))
        ledger.transactions.append(marked)
        try:
            for group, some in chosen.items():
                await producer.send_offsets(group, dict.fromkeys(some, number))
            committed = wire.random.random() >= ABORTS
            if committed:
                marked.verdict = Verdict.UNKNOWN
            await producer.end(committed=committed)
            if committed:
                marked.verdict = Verdict.COMMITTED
            await _look(wire, groups, spots, ledger)
        except MustAbort as error:
            wire.say(f"offsets {number} are aborted: {error}")
            await producer.abort()
        except MustRestart as error:
            wire.say(f"offsets {number} restart: {error}")
            await producer.live()
        wire.say(f"offsets {number} {marked.verdict.value}")
    wire.close()


async def _look(wire: Wire, groups: Sequence[str], spots: Sequence[Spot], ledger: OffsetsLedger) -> None:
    """Fetch stable offsets, which no open transaction may change, and check them."""
    group = wire.random.choice(groups)
    try:
        seen = await committed_offsets(wire, group, spots)
    except Gone:
        return
    ledger.check_seen(group, seen)


class Member:
    """A member of a classic group: it joins, sends heartbeats, commits, and sometimes sleeps beyond its session timeout."""

    def __init__(self, wire: Wire, group: str, spots: Sequence[Spot], ledger: OffsetsLedger) -> None:
        self._wire = wire
        self._group = group
        self._spots = spots
        self._ledger = ledger
        self._member_id = ""
        self._generation = -1
        self._owned: list[int] = []
        self._count = 0

    async def run(self, stop: Any) -> None:
        while not stop.now:
            try:
                if await self._join():
                    await self._work(stop)
            except Gone:
                self._wire.forget_coordinator(GROUP, self._group)
            await self._wire.back_off()
        self._wire.close()

    async def _ask(self, key: int, version: int, request: Any) -> tuple[ErrorCode, Any]:
        answer = await self._wire.ask_coordinator(GROUP, self._group, key, version, request)
        error = ErrorCode(getattr(answer, "error_code", 0))
        if error is not NONE:
            self._wire.say(f"api {key}: {error.name}")
            if error is ErrorCode.not_coordinator:
                raise Gone(error.name)
            if error in (ErrorCode.unknown_member_id, ErrorCode.illegal_generation):
                self._member_id = ""
        return error, answer

    async def _join(self) -> bool:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="simulation", metadata=b"")],
        )
        error, joined = await self._ask(JOIN_GROUP, 5, request)
        if error is ErrorCode.member_id_required:
            request.member_id = self._member_id = joined.member_id
            error, joined = await self._ask(JOIN_GROUP, 5, request)
        if error is not NONE:
            return False
        self._member_id, self._generation = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == joined.member_id:
            members = sorted(each.member_id for each in joined.members)
            assignments = [
                SyncGroupRequestAssignment(
                    member_id=each, assignment=bytes(range(at, len(self._spots), len(members)))
                )
                for at, each in enumerate(members)
            ]
        sync = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            assignments=assignments,
        )
        error, synced = await self._ask(SYNC_GROUP, 3, sync)
        self._owned = list(synced.assignment)
        return error is NONE

    async def _work(self, stop: Any) -> None:
        """Send heartbeats and commit until a rebalance or an error."""
        random = self._wire.random
        while not stop.now:
            if random.random() < 0.08:
                await asyncio.sleep(random.uniform(4, 20))  # then continues with its old generation
            else:
                await asyncio.sleep(random.uniform(0.5, 2.5))
                beat = HeartbeatRequest(
                    group_id=self._group, generation_id=self._generation, member_id=self._member_id
                )
                if (await self._ask(HEARTBEAT, 3, beat))[0] is not NONE:
                    return
            if not await self._commit():
                return

    async def _commit(self) -> bool:
        if not self._owned:
            return True
        spot = self._spots[self._wire.random.choice(self._owned)]
        self._count += 1
        offset = self._generation * GENERATION_STEP + self._count
        highest = self._ledger.acknowledged.get(spot, -1)
        self._ledger.sent.setdefault(spot, set()).add(offset)
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=spot[0],
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=spot[1], committed_offset=offset, committed_metadata=""
                        )
                    ],
                )
            ],
        )
        _, answer = await self._ask(OFFSET_COMMIT, 7, request)
        error = ErrorCode(answer.topics[0].partitions[0].error_code)
        self._wire.say(f"member commits {offset} in {spot}: {error.name}")
        if error is NONE:
            if offset // GENERATION_STEP < highest // GENERATION_STEP:
                raise Broken(f"offset {offset} was committed in {spot} after {highest} of a later generation")
            self._ledger.acknowledged[spot] = max(highest, offset, self._ledger.acknowledged.get(spot, -1))
            return True
        if error is ErrorCode.not_coordinator:
            raise Gone(error.name)
        if error in (ErrorCode.unknown_member_id, ErrorCode.illegal_generation):
            self._member_id = ""
        return error in TRY_AGAIN
