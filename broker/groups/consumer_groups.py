"""Consumer groups (KIP-848) on a shard: decides, appends, and then does the rest of what was decided.

What is decided is not true before it is in the log: the group changes by its records alone. So the walk of every request and
of every timer is the same (`ConsumerGroups.carry_out`): decide, append, move timers, answer once the records are committed.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from broker.clock import Clock
from broker.groups import classic
from broker.groups.consumer import classic_members, fencing, heartbeat
from broker.groups.consumer.context import Client, Context, Decision, MayDescribe, Refused, live_group
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.subscribing import resolve_regexes
from broker.groups.consumer_settings import assignors, settings_of
from broker.groups.effects import REGEX_TIMER, Arm, Timer
from broker.groups.shard import GroupShard
from broker.groups.topics_image import MetadataTopics
from broker.logging import get_logger
from broker.loop.deferred import Deferred
from protocol.errors import NONE, ErrorCode
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from protocol.uuids import uuid_text

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.metadata.cluster import ClusterMetadata

R = TypeVar("R")
Refuse = Callable[[ErrorCode, str | None], R]
"""Makes the response of a request that is refused: (error, Kafka's message)."""
log = get_logger()


class ConsumerGroups:
    """The consumer groups of one node."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        metadata: ClusterMetadata,
        new_uuid: Callable[[], object],
    ) -> None:
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._new_uuid = new_uuid
        self.topics = MetadataTopics(metadata)
        metadata.subscribe(self.topics)

    def loaded(self, shard: GroupShard) -> None:
        """Every member gets a whole session."""
        for group in shard.state.consumer_groups.values():
            context = self._context(group.group_id)
            for arm in fencing.loaded(context, group):
                self._arm(shard, group.group_id, arm)

    # -- requests -----------------------------------------------------------------------------------------------

    def heartbeat(
        self,
        shard: GroupShard,
        request: ConsumerGroupHeartbeatRequest,
        client: Client,
    ) -> ConsumerGroupHeartbeatResponse | Future[ConsumerGroupHeartbeatResponse]:
        """ConsumerGroupHeartbeat, once `check_request` has let it pass."""
        group_id = request.group_id
        if not request.member_id:
            request.member_id = self._new_member_id()

        def decide(context: Context) -> Decision[ConsumerGroupHeartbeatResponse]:
            decision = heartbeat.heartbeat(
                context,
                shard.state.group(group_id),
                request,
                client,
                shard.state.config,
                resolving=shard.is_armed(group_id, REGEX_TIMER),
            )
            decision.may_describe = client.may_describe
            return decision

        return self._answer(shard, group_id, decide, refuse_heartbeat)

    def check_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, api_version: int
    ) -> ConsumerGroupHeartbeatResponse | None:
        """What is wrong with a request whatever its group is; None if nothing is."""
        try:
            heartbeat.check_request(request, api_version, assignors(self._config))
        except Refused as refusal:
            return refuse_heartbeat(refusal.error, refusal.message)
        return None

    def join(
        self,
        shard: GroupShard,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        client: Client,
        api_version: int,
    ) -> JoinGroupResponse | Future[JoinGroupResponse]:
        """JoinGroup of a member of the classic protocol, in a group that has members."""
        new_member_id = self._new_member_id()

        def decide(context: Context) -> Decision[JoinGroupResponse]:
            joiner = classic_members.read_join(context, group, request, client, api_version, new_member_id)
            resolving = shard.is_armed(group.group_id, REGEX_TIMER)
            decision = classic_members.join(context, group, joiner, shard.state.config, resolving=resolving)
            decision.may_describe = client.may_describe
            return decision

        def refuse(error: ErrorCode, _: str | None) -> JoinGroupResponse:
            # It names no member, as Kafka's; a classic group's names the one of the request.
            return JoinGroupResponse(error_code=error)

        return self._answer(shard, group.group_id, decide, refuse)

    def sync(
        self, shard: GroupShard, group: ConsumerGroup, request: SyncGroupRequest
    ) -> SyncGroupResponse | Future[SyncGroupResponse]:
        return self._answer(
            shard,
            group.group_id,
            lambda context: classic_members.sync(context, group, request),
            lambda error, _: SyncGroupResponse(error_code=error),
        )

    def classic_heartbeat(
        self,
        shard: GroupShard,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str | None,
        generation: int,
    ) -> ErrorCode | Future[ErrorCode]:
        return self._answer(
            shard,
            group.group_id,
            lambda _: classic_members.heartbeat(group, member_id, instance_id, generation),
            lambda error, _: error,
        )

    def leave(
        self, shard: GroupShard, group: ConsumerGroup, leaving: Sequence[MemberIdentity]
    ) -> LeaveGroupResponse | Future[LeaveGroupResponse]:
        return self._answer(
            shard,
            group.group_id,
            lambda context: classic_members.leave(context, group, shard.state.config, leaving),
            lambda error, _: LeaveGroupResponse(error_code=error),
        )

    def _new_member_id(self) -> str:
        """As Kafka's ``Uuid.toString``: 22 characters."""
        unique = self._new_uuid()
        if not isinstance(unique, UUID):
            return str(unique)
        return uuid_text(unique)

    # -- carrying out -------------------------------------------------------------------------------------------

    def _context(self, group_id: str) -> Context:
        settings = settings_of(self._config, self._metadata, group_id)
        return Context(self.topics, settings, self._clock.now_ms())

    def _answer(
        self,
        shard: GroupShard,
        group_id: str,
        decide: Callable[[Context], Decision[R]],
        refuse: Refuse[R],
    ) -> R | Future[R]:
        reply: Deferred[R] = Deferred()

        def refuse_it(error: ErrorCode, message: str | None) -> None:
            # As Kafka logs why it does not upgrade a group: librdkafka shows the error without its message.
            note = log.info if error is ErrorCode.group_id_not_found else log.debug
            note("group request refused", group=group_id, error=error.name, reason=message)
            reply.resolve(refuse(error, message))

        self.carry_out(shard, group_id, decide, reply.resolve, refuse_it)
        return reply.outcome()

    def carry_out(
        self,
        shard: GroupShard,
        group_id: str,
        decide: Callable[[Context], Decision[R]],
        answer: Callable[[R], None],
        refuse: Callable[[ErrorCode, str | None], None],
        *,
        may_be_held: bool = True,
    ) -> None:
        """Decide and do it; ``answer`` is called once what was decided is committed.

        Where a rule holds the append up, what was decided is forgotten, and decided anew when the rule lets go: the group
        may be another by then.
        """
        try:
            decision = decide(self._context(group_id))
        except Refused as refusal:
            refuse(refusal.error, refusal.message)
            return
        records = decision.records
        if records and may_be_held and shard.is_intercepted:
            again = partial(self.carry_out, shard, group_id, decide, answer, refuse, may_be_held=False)
            shard.at_append(records[0].key, lambda _: again(), lambda error: refuse(error, None))
            return
        end_offset = shard.partition.log_end_offset
        if records:
            # Members that wait in a group which is upgraded join again.
            deleted = ErrorCode.rebalance_in_progress
            error, end_offset = shard.append_records(records, deleted=deleted)
            if error is not NONE:
                refuse(shard.client_error(error), None)
                return
        self._follow(shard, group_id, decision)

        def committed(error: ErrorCode) -> None:
            if error is NONE:
                answer(decision.response)
            else:
                refuse(error, None)

        shard.when_committed(end_offset, committed)

    def _follow(self, shard: GroupShard, group_id: str, decision: Decision[R]) -> None:
        """What comes with the records of a decision."""
        group = shard.state.consumer_groups.get(group_id)
        if group is not None and decision.is_refreshed:
            group.compared_at = self.topics.changes
        became = decision.becomes
        if became is not None:
            shard.state.groups[group_id] = became
        for effect in decision.timers:
            if not isinstance(effect, Arm):
                shard.cancel(group_id, effect.timer)
            elif became is not None:
                shard.run(became, [effect])
            else:
                self._arm(shard, group_id, effect)
        if became is not None:
            log.info("consumer group became a classic group", group=group_id, members=len(became.members))
            if decision.rebalances:
                shard.run(became, classic.begin_rebalance(became, self._clock.now_ms()))
        elif decision.regexes:
            resolve = partial(self._resolve, shard, group_id, decision.regexes, decision.may_describe)
            shard.arm(group_id, Arm(REGEX_TIMER, 0), resolve)

    # -- time ---------------------------------------------------------------------------------------------------

    def _arm(self, shard: GroupShard, group_id: str, arm: Arm) -> None:
        shard.arm(group_id, arm, partial(self._expired, shard, group_id, arm.timer, arm.member_epoch))

    def _expired(self, shard: GroupShard, group_id: str, timer: Timer, member_epoch: int) -> None:
        def decide(context: Context) -> Decision[None]:
            group = live_group(shard.state.group(group_id), group_id)
            decision = fencing.expired(context, group, shard.state.config, timer, member_epoch)
            if decision.records:
                log.info(
                    "group has lost members",
                    group=group_id,
                    timer=timer.what.value,
                    member=timer.member_id,
                    left=len(group.members) - 1,
                )
            return decision

        self._alone(shard, group_id, decide)

    def _resolve(
        self, shard: GroupShard, group_id: str, regexes: frozenset[str], may_describe: MayDescribe | None
    ) -> None:
        def decide(context: Context) -> Decision[None]:
            group = live_group(shard.state.group(group_id), group_id)
            return resolve_regexes(context, group, regexes, may_describe)

        self._alone(shard, group_id, decide)

    def _alone(self, shard: GroupShard, group_id: str, decide: Callable[[Context], Decision[None]]) -> None:
        """What no request waits for."""

        def refused(error: ErrorCode, message: str | None) -> None:
            log.debug("group not changed", group=group_id, error=error.name, reason=message)

        self.carry_out(shard, group_id, decide, lambda _: None, refused)


def refuse_heartbeat(error: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error, error_message=message)
