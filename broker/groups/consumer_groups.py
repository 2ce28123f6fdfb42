"""Carries out decisions about consumer groups (KIP-848) on a shard: append, timers, response.

Only records change a group, so a decision has no effect before its records are in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.clock import Clock
from broker.groups import classic
from broker.groups.consumer import classic_members, heartbeat, timeouts
from broker.groups.consumer.context import Client, Context, Decision, MayDescribe, Refused, live_group
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.subscribing import resolve_regexes
from broker.groups.consumer_settings import assignors, settings_of
from broker.groups.effects import REGEX_TIMER, Arm, Timer
from broker.groups.modern_groups import ModernGroups
from broker.groups.shard import GroupShard
from broker.groups.topics_image import MetadataTopics
from broker.logging import get_logger
from broker.loop.coroutines import start_in_background
from protocol.errors import ErrorCode
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

log = get_logger()


class ConsumerGroups(ModernGroups[Context]):
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
        """Start the timers of each group of a shard that was just loaded: each member gets a full session."""
        for group in shard.state.consumer_groups.values():
            context = self.context(group.group_id)
            for arm in timeouts.loaded(context, group):
                self._arm(shard, group.group_id, arm)

    # -- requests -----------------------------------------------------------------------------------------------

    async def heartbeat(
        self,
        shard: GroupShard,
        request: ConsumerGroupHeartbeatRequest,
        client: Client,
    ) -> ConsumerGroupHeartbeatResponse:
        """Handle ConsumerGroupHeartbeat. The caller has called `check_heartbeat` before."""
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

        try:
            return await self.carry_out_request(shard, group_id, decide)
        except Refused as refusal:
            return refuse_heartbeat(refusal.error, refusal.message)

    def check_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, api_version: int
    ) -> ConsumerGroupHeartbeatResponse | None:
        """Make the checks that do not need the group. Returns the error response, or None if the request is valid."""
        try:
            heartbeat.check_request(request, api_version, assignors(self._config))
        except Refused as refusal:
            return refuse_heartbeat(refusal.error, refusal.message)
        return None

    async def join(
        self,
        shard: GroupShard,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        client: Client,
        api_version: int,
    ) -> JoinGroupResponse:
        """Handle JoinGroup from a client of the classic protocol, for a consumer group that has members."""
        new_member_id = self._new_member_id()

        def decide(context: Context) -> Decision[JoinGroupResponse]:
            joiner = classic_members.read_join(context, group, request, client, api_version, new_member_id)
            resolving = shard.is_armed(group.group_id, REGEX_TIMER)
            decision = classic_members.join(context, group, joiner, shard.state.config, resolving=resolving)
            decision.may_describe = client.may_describe
            return decision

        try:
            return await self.carry_out_request(shard, group.group_id, decide)
        except Refused as refusal:
            # As in Kafka, the response has no member id; for a classic group it has the request's member id.
            return JoinGroupResponse(error_code=refusal.error)

    async def sync(
        self, shard: GroupShard, group: ConsumerGroup, request: SyncGroupRequest
    ) -> SyncGroupResponse:
        try:
            return await self.carry_out_request(
                shard, group.group_id, lambda context: classic_members.sync(context, group, request)
            )
        except Refused as refusal:
            return SyncGroupResponse(error_code=refusal.error)

    async def classic_heartbeat(
        self,
        shard: GroupShard,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str | None,
        generation: int,
    ) -> ErrorCode:
        try:
            return await self.carry_out_request(
                shard,
                group.group_id,
                lambda _: classic_members.heartbeat(group, member_id, instance_id, generation),
            )
        except Refused as refusal:
            return refusal.error

    async def leave(
        self, shard: GroupShard, group: ConsumerGroup, leaving: Sequence[MemberIdentity]
    ) -> LeaveGroupResponse:
        try:
            return await self.carry_out_request(
                shard,
                group.group_id,
                lambda context: classic_members.leave(context, group, shard.state.config, leaving),
            )
        except Refused as refusal:
            return LeaveGroupResponse(error_code=refusal.error)

    def _new_member_id(self) -> str:
        """Return a new member id of 22 characters, like Kafka's ``Uuid.toString``."""
        unique = self._new_uuid()
        if not isinstance(unique, UUID):
            return str(unique)
        return uuid_text(unique)

    # -- carrying out decisions ---------------------------------------------------------------------------------

    def context(self, group_id: str) -> Context:
        settings = settings_of(self._config, self._metadata, group_id)
        return Context(self.topics, settings, self._clock.now_ms())

    def carry_out_rest(self, shard: GroupShard, group_id: str, decision: Decision[Any]) -> None:
        """Carry out a decision whose records are appended: timers, downgrade, regular expressions to resolve."""
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
            decision = timeouts.expired(context, group, shard.state.config, timer, member_epoch)
            if decision.records:
                log.info(
                    "group has lost members",
                    group=group_id,
                    timer=timer.what.value,
                    member=timer.member_id,
                    members_left=len(group.members) - 1,
                )
            return decision

        start_in_background(self.carry_out_timer(shard, group_id, decide), shard.life)

    def _resolve(
        self, shard: GroupShard, group_id: str, regexes: frozenset[str], may_describe: MayDescribe | None
    ) -> None:
        def decide(context: Context) -> Decision[None]:
            group = live_group(shard.state.group(group_id), group_id)
            return resolve_regexes(context, group, regexes, may_describe)

        start_in_background(self.carry_out_timer(shard, group_id, decide), shard.life)


def refuse_heartbeat(error: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error, error_message=message)
