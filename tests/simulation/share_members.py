"""Members of share groups (KIP-932): they fetch, acknowledge and renew, die with locks, reconnect, and join again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from random import Random
from typing import Any, Final
from uuid import UUID

from broker.clock import Domain
from protocol.errors import ErrorCode
from protocol.messages import share_acknowledge, share_fetch
from protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.simulation.consumers import whole_batches
from tests.simulation.ledger import Broken
from tests.simulation.reach import Stage
from tests.simulation.share_ledger import Delivery, Place, ShareLedger
from tests.simulation.wire import ASK_COORDINATOR_AGAIN, GROUP, NONE, TRY_AGAIN, Gone, Link, Wire

HEARTBEAT, SHARE_FETCH, SHARE_ACKNOWLEDGE, DESCRIBE_OFFSETS = 76, 78, 79, 90
LEAVE, JOIN = -1, 0
INITIAL, FINAL = 0, -1
"""Share session epochs."""
GAP, ACCEPT, RELEASE, REJECT, RENEW, KEEP = 0, 1, 2, 3, 4, -1
"""AcknowledgeTypes. KEEP: the member does not acknowledge the record now."""
CHOICES: Final = ((ACCEPT, 66), (RELEASE, 12), (REJECT, 6), (KEEP, 16))
CHOICES_WITH_RENEWAL: Final = (*CHOICES, (RENEW, 30))
ACTS: Final = (("sleep", 4), ("die", 3), ("leave", 2), ("subscribe", 3), ("reconnect", 3), ("work", 85))
"""The next action of a member, drawn with these weights."""
WITH_ACKNOWLEDGE: Final = 0.4
"""Probability that a member sends its acknowledgements in a ShareAcknowledge instead of a ShareFetch."""
LATE: Final = 0.1
"""Probability that a member also acknowledges records of a session that has ended."""
PAUSE_S: Final = (0.2, 1.2)
EXPELLED: Final = frozenset(
    {ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch, ErrorCode.group_id_not_found}
)
SESSION_ENDED: Final = frozenset(
    {
        ErrorCode.share_session_not_found,
        ErrorCode.invalid_share_session_epoch,
        ErrorCode.share_session_limit_reached,
    }
)
REFUSED: Final = frozenset({ErrorCode.invalid_record_state, ErrorCode.invalid_request})
"""Nothing was changed. All other errors, and a lost response, leave open whether the acknowledgement was carried out."""


@dataclass(slots=True)
class Session:
    """The share session of a member with one node."""

    link: Link | None = None
    epoch: int = INITIAL
    places: set[Place] = field(default_factory=set)
    held: dict[Place, dict[int, Delivery]] = field(default_factory=dict)


Chosen = Mapping[Place, Mapping[int, int]]
"""By partition and offset: the AcknowledgeType."""


class ShareMember:
    """A member of a share group. After it has died or left, it joins again with a new member id."""

    def __init__(
        self, wire: Wire, stage: Stage, ledger: ShareLedger, subscriptions: Sequence[Sequence[str]]
    ) -> None:
        self.wire = wire
        self._stage = stage
        self._ledger = ledger
        self._subscriptions = subscriptions
        self._random: Random = wire.random
        self._takes_all = False
        """Whether the member accepts each record, so that the group comes to the end of the log."""
        self.begin_life()

    def begin_life(self) -> None:
        self.member_id = str(UUID(int=self._random.getrandbits(128)))
        self.epoch = JOIN
        self._assigned: set[Place] = set()
        self._sessions: dict[int, Session] = {}
        self._late: dict[int, dict[Place, dict[int, Delivery]]] = {}
        """By node: the records of the last session that has ended."""

    # ---- life

    async def run(self) -> None:
        names, weights = [name for name, _ in ACTS], [weight for _, weight in ACTS]
        while not self._stage.stop.now:
            (act,) = self._random.choices(names, weights)
            await self._try(act)
        if self.epoch != JOIN:
            await self._try("leave")
        self.wire.close()

    async def drain(self, topics: Sequence[str]) -> None:
        """Accept all records, until the group has no lag in these topics."""
        self._subscriptions, self._takes_all = [topics], True
        self.begin_life()
        while not await self._has_no_lag(topics):
            await self._try("work")
        self.wire.say("has no lag")
        self.wire.close()

    async def _try(self, act: str) -> None:
        try:
            await self._act(act)
        except Gone:
            self.wire.forget_coordinator(GROUP, self._ledger.group_id)
            await self.wire.back_off()
        await asyncio.sleep(self._random.uniform(*PAUSE_S))

    async def _act(self, act: str) -> None:
        if self.epoch == JOIN:
            await self._beat(self._random.choice(self._subscriptions))
        elif act == "sleep":
            await asyncio.sleep(self._random.uniform(1, 15))
        elif act == "die":
            self.wire.say("dies")
            self.wire.disconnect()
            self.begin_life()
            await asyncio.sleep(self._random.uniform(0, 8))
        elif act == "leave":
            await self._leave()
        elif act == "subscribe":
            await self._beat(self._random.choice(self._subscriptions))
        elif act == "reconnect":
            self.wire.disconnect()
        else:
            await self._beat()
            await self._work()

    async def _leave(self) -> None:
        self.wire.say("leaves")
        nodes = sorted(self._sessions)
        if self._random.random() < 0.5:
            await self._heartbeat(LEAVE, None)
        for node_id in nodes:
            with suppress(Gone):
                await self._acknowledge(node_id, FINAL)
        await self._heartbeat(LEAVE, None)
        self.begin_life()

    # ---- membership

    async def _beat(self, topics: Sequence[str] | None = None) -> None:
        answer = await self._heartbeat(self.epoch, topics)
        error = ErrorCode(answer.error_code)
        if error is NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self._take(answer.assignment.topic_partitions)
        elif error in EXPELLED:
            self.epoch = JOIN
        elif error in ASK_COORDINATOR_AGAIN:
            raise Gone(error.name)
        elif error not in TRY_AGAIN:
            raise Broken(f"a heartbeat of {self.wire.name} fails with {error.name}: {answer.error_message}")

    async def _heartbeat(self, epoch: int, topics: Sequence[str] | None) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=self._ledger.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            subscribed_topic_names=topics,
        )
        answer = await self.wire.ask_coordinator(GROUP, self._ledger.group_id, HEARTBEAT, 1, request)
        if answer.error_code:
            self.wire.say(f"heartbeat: {ErrorCode(answer.error_code).name}")
        return answer

    def _take(self, rows: Iterable[Any]) -> None:
        self._assigned = {
            Place(topic.name, row.topic_id, index)
            for row in rows
            if (topic := self._stage.cluster.metadata.topic_by_id(row.topic_id)) is not None
            for index in row.partitions
        }
        self.wire.say(f"has {sorted((each.topic, each.partition) for each in self._assigned)}")

    async def _has_no_lag(self, topics: Sequence[str]) -> bool:
        """Whether the group has acknowledged all records."""
        names = [DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=[0, 1]) for name in topics]
        group = DescribeShareGroupOffsetsRequestGroup(group_id=self._ledger.group_id, topics=names)
        request = DescribeShareGroupOffsetsRequest(groups=[group])
        try:
            answer = await self.wire.ask_coordinator(
                GROUP, self._ledger.group_id, DESCRIBE_OFFSETS, 1, request
            )
        except Gone:
            return False
        (found,) = answer.groups
        error = ErrorCode(found.error_code)
        if error in ASK_COORDINATOR_AGAIN:
            self.wire.forget_coordinator(GROUP, self._ledger.group_id)
        if error is not NONE:
            return False
        lags = [each.lag for topic in found.topics for each in topic.partitions]
        self.wire.say(f"lag: {lags}")
        return not any(lags)  # -1: nothing was acknowledged yet

    # ---- records

    async def _work(self) -> None:
        by_node: dict[int, set[Place]] = {}
        for place in sorted(self._assigned, key=lambda place: (place.topic, place.partition)):
            with suppress(Gone):
                node_id, _ = await self.wire.leader(place.topic, place.partition)
                by_node.setdefault(node_id, set()).add(place)
        nodes = sorted(by_node.keys() | {each for each in self._sessions if self._sessions[each].held})
        if not nodes:
            return
        node_id = self._random.choice(nodes)
        session = self._sessions.setdefault(node_id, Session())
        if session.epoch and self._random.random() < WITH_ACKNOWLEDGE:
            await self._acknowledge(node_id, session.epoch)
        else:
            await self._fetch(node_id, session, by_node.get(node_id, set()))

    async def _fetch(self, node_id: int, session: Session, wanted: set[Place]) -> None:
        random = self._random
        chosen = self._choose(node_id, session, renews=False) if session.epoch else {}
        named = (wanted if not session.epoch else wanted - session.places) | chosen.keys()
        rows = {
            place: share_fetch.FetchPartition(
                partition_index=place.partition,
                acknowledgement_batches=_batches(
                    share_fetch.AcknowledgementBatch, chosen.get(place, {}), random
                ),
            )
            for place in sorted(named)
        }
        forgotten = session.places - wanted if session.epoch and random.random() < 0.5 else set()
        records_max = 500 if self._takes_all else random.choice((1, 5, 20, 500))
        request = share_fetch.ShareFetchRequest(
            group_id=self._ledger.group_id,
            member_id=self.member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=random.choice((0, 100, 500, 2_000)),
            min_bytes=1,
            max_bytes=random.choice((100, 2_000, 1 << 20)),
            max_records=records_max,
            batch_size=random.choice((1, records_max)),
            share_acquire_mode=random.choice((0, 1)),
            topics=[
                share_fetch.FetchTopic(topic_id=topic_id, partitions=[rows[each] for each in places])
                for topic_id, places in _by_topic(rows).items()
            ],
            forgotten_topics_data=[
                share_fetch.ForgottenTopic(topic_id=topic_id, partitions=[each.partition for each in places])
                for topic_id, places in _by_topic(forgotten).items()
            ],
        )
        sent, sent_ms = self._ledger.next_request(), self._now_ms()
        answer = await self._ask(node_id, session, SHARE_FETCH, request, chosen)
        if answer is None:
            return
        session.places = (session.places | named) - forgotten
        by_key = {(place.topic_id, place.partition): place for place in (session.places | forgotten)}
        for topic in answer.responses:
            for row in topic.partitions:
                place = by_key.get((topic.topic_id, row.partition_index))
                if place is None:
                    raise Broken(
                        f"{self.wire.name} got {topic.topic_id}-{row.partition_index} without asking"
                    )
                self._note_errors(place, ErrorCode(row.error_code))
                self._settle(session, place, chosen, ErrorCode(row.acknowledge_error_code))
                if row.acquired_records:
                    self._deliver(session, place, row, sent, sent_ms)

    def _deliver(self, session: Session, place: Place, row: Any, sent: int, sent_ms: int) -> None:
        """Note the acquired records of one partition."""
        records = bytes(row.records or b"")
        batches = list(whole_batches(records))
        if self.wire.facts.topic_id(place.topic) == place.topic_id:
            self.wire.facts.shown(place.topic, place.partition, records)
        control = {
            offset
            for batch in batches
            if batch.is_control
            for offset in range(batch.base_offset, batch.next_offset)
        }
        held, last = session.held.setdefault(place, {}), -1
        for each in row.acquired_records:
            inside = batches and batches[0].base_offset <= each.first_offset <= each.last_offset
            if not inside or each.last_offset > batches[-1].last_offset or each.first_offset <= last:
                raise Broken(f"{self.wire.name} got the records {each} of {place} without their batches")
            last = each.last_offset
            for offset in range(each.first_offset, last + 1):
                delivery = Delivery(each.delivery_count, sent, sent_ms, offset in control)
                self._ledger.delivered(place, offset, delivery)
                held[offset] = delivery
        self.wire.say(
            f"{place.topic}-{place.partition}: "
            f"{[(each.first_offset, each.last_offset, each.delivery_count) for each in row.acquired_records]}"
        )

    async def _acknowledge(self, node_id: int, epoch: int) -> None:
        """Send a ShareAcknowledge, which may also renew locks. With the final epoch it ends the session."""
        session = self._sessions[node_id]
        renews = self._random.random() < 0.5
        chosen = self._choose(node_id, session, renews=renews)
        rows = {
            place: share_acknowledge.AcknowledgePartition(
                partition_index=place.partition,
                acknowledgement_batches=_batches(share_acknowledge.AcknowledgementBatch, kinds, self._random),
            )
            for place, kinds in chosen.items()
        }
        if not rows and epoch != FINAL:
            return
        request = share_acknowledge.ShareAcknowledgeRequest(
            group_id=self._ledger.group_id,
            member_id=self.member_id,
            share_session_epoch=epoch,
            is_renew_ack=renews,
            topics=[
                share_acknowledge.AcknowledgeTopic(
                    topic_id=topic_id, partitions=[rows[each] for each in places]
                )
                for topic_id, places in _by_topic(rows).items()
            ],
        )
        answer = await self._ask(node_id, session, SHARE_ACKNOWLEDGE, request, chosen)
        if answer is None:
            return
        by_key = {(place.topic_id, place.partition): place for place in chosen}
        for topic in answer.responses:
            for row in topic.partitions:
                error = ErrorCode(row.error_code)
                self._note_errors(by_key[topic.topic_id, row.partition_index], error)
                self._settle(session, by_key[topic.topic_id, row.partition_index], chosen, error)
        if epoch == FINAL:
            del self._sessions[node_id]

    async def _ask(self, node_id: int, session: Session, api: int, request: Any, chosen: Chosen) -> Any:
        """Send a request of the session. Return the response, or None if it says that the session has ended."""
        try:
            answer = await self.wire.ask_node(node_id, api, 2, request)
        except Gone:
            self._note_possible(chosen)
            self._end_session(node_id)
            for place in self._assigned:
                self.wire.forget_leader(place.topic, place.partition)
            raise
        error = ErrorCode(answer.error_code)
        if error is NONE:
            if request.share_session_epoch == INITIAL:
                session.link = self.wire.link_to(node_id)
            session.epoch += 1
            answered = {
                (topic.topic_id, row.partition_index)
                for topic in answer.responses
                for row in topic.partitions
            }
            if not {(place.topic_id, place.partition) for place in chosen} <= answered:
                raise Broken(f"{self.wire.name}: api {api} has no result for one of {sorted(chosen)}")
            if request.share_session_epoch == FINAL:
                self._note_possible(chosen)  # if the request has arrived twice, the second one is refused
            return answer
        self._note_possible(
            chosen
        )  # perhaps the request has arrived twice, and the first one was carried out
        self.wire.say(f"api {api} in epoch {request.share_session_epoch}: {error.name}")
        if error not in SESSION_ENDED and error not in TRY_AGAIN:
            raise Broken(f"{self.wire.name}: api {api} fails with {error.name}")
        self._end_session(node_id)
        return None

    def _note_possible(self, chosen: Chosen) -> None:
        for place, kinds in chosen.items():
            known = self._ledger.at(place)
            known.maybe_accepted.update(offset for offset, kind in kinds.items() if kind == ACCEPT)
            known.maybe_rejected.update(offset for offset, kind in kinds.items() if kind in (REJECT, GAP))

    def _end_session(self, node_id: int) -> None:
        ended = self._sessions.pop(node_id, None)
        if ended is not None and ended.held:
            self._late[node_id] = ended.held

    def _note_errors(self, place: Place, error: ErrorCode) -> None:
        if error is not NONE:
            self.wire.say(f"{place.topic}-{place.partition}: {error.name}")
            self.wire.forget_leader(place.topic, place.partition)

    # ---- acknowledgements

    def _choose(self, node_id: int, session: Session, *, renews: bool) -> dict[Place, dict[int, int]]:
        """Choose what to acknowledge, and how. The records are no longer held, unless they are renewed."""
        choices = CHOICES_WITH_RENEWAL if renews else CHOICES
        kinds, weights = [kind for kind, _ in choices], [weight for _, weight in choices]
        found: dict[Place, dict[int, int]] = {}
        for place, held in session.held.items():
            usual = self._random.choices(kinds, weights)[0]
            for offset, delivery in held.items():
                kind = usual if self._random.random() < 0.7 else self._random.choices(kinds, weights)[0]
                if self._takes_all:
                    kind = ACCEPT
                if delivery.is_control and kind != KEEP:
                    kind = GAP
                if kind != KEEP:
                    found.setdefault(place, {})[offset] = kind
        if not found and node_id in self._late and self._random.random() < LATE and not self._takes_all:
            late = self._late.pop(node_id)
            return {place: dict.fromkeys(offsets, ACCEPT) for place, offsets in late.items() if offsets}
        return found

    def _settle(self, session: Session, place: Place, chosen: Chosen, error: ErrorCode) -> None:
        """Note the result of the acknowledgements of one partition."""
        kinds, held = chosen.get(place), session.held.get(place, {})
        if not kinds:
            return
        if error is not NONE:
            self.wire.say(f"acknowledges {place.topic}-{place.partition}: {error.name}")
        known = self._ledger.at(place)
        if error not in REFUSED:
            self._note_possible({place: kinds})
        if error is NONE:
            certain = {offset for offset in kinds if self._is_certain(session, held.get(offset))}
            self._ledger.accepted(
                place, [each for each in kinds if kinds[each] == ACCEPT and each in certain]
            )
            if self._ledger.dead_letter_topic:
                known.rejected.update(each for each in certain if kinds[each] == REJECT)
        for offset, kind in kinds.items():
            if kind != RENEW or error in REFUSED:
                held.pop(offset, None)

    def _is_certain(self, session: Session, delivery: Delivery | None) -> bool:
        """Whether an acknowledgement without an error changed the record's state.

        Without the lock it may be ignored: the start offset may have passed a record that was archived meanwhile.
        """
        if delivery is None or session.link is None or not session.link.is_open:
            return False
        return self._now_ms() - delivery.acquired_ms < self._ledger.lock_ms

    def _now_ms(self) -> int:
        return self._stage.cluster.clock.now_ms(Domain.GROUPS)


def _by_topic(places: Iterable[Place]) -> dict[UUID, list[Place]]:
    found: dict[UUID, list[Place]] = {}
    for place in sorted(places):
        found.setdefault(place.topic_id, []).append(place)
    return found


def _batches(batch: Any, kinds: Mapping[int, int], random: Random) -> list[Any]:
    """Acknowledgement batches: of equal types, with one type for all, or with one type for each offset."""
    found = []
    apart = random.random() < 0.5
    runs = groupby(enumerate(sorted(kinds)), key=lambda at: (at[1] - at[0], apart and kinds[at[1]]))
    for _, run in runs:
        offsets = [offset for _, offset in run]
        types = [kinds[offset] for offset in offsets]
        if len(set(types)) == 1 and random.random() < 0.7:
            types = types[:1]
        found.append(batch(first_offset=offsets[0], last_offset=offsets[-1], acknowledge_types=types))
    return found
