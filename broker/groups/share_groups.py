"""Carries out decisions about share groups (KIP-932) on a shard, and asks the share coordinators through the persister."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from broker.clock import Clock
from broker.groups.consumer.context import Client, Decision, Refused, session_timer
from broker.groups.effects import Arm
from broker.groups.modern_groups import ModernGroups
from broker.groups.shard import GroupShard
from broker.groups.share import fencing, heartbeat, initializing, offsets
from broker.groups.share.context import ShareContext, live_group
from broker.groups.share.group import ShareGroup
from broker.groups.topics_image import MetadataTopics
from broker.logging import get_logger
from broker.loop.coroutines import start_in_background
from broker.share.settings import settings_of
from broker.share.state import Initialization, Outcome, StoredState
from protocol.errors import NONE, ErrorCode
from protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponseTopic,
)
from protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsResponseTopic
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from protocol.records.share_group_log import ShareGroupStatePartitionMetadataKey
from protocol.uuids import uuid_text

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.metadata.cluster import ClusterMetadata
    from broker.share.persister import Persister

Spot = tuple[UUID, int]
INVALID_PARTITION: Final = "Initialize share group parameters has invalid partitionId - "
log = get_logger()


class ShareGroups(ModernGroups[ShareContext]):
    """The share groups of one node."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        metadata: ClusterMetadata,
        topics: MetadataTopics,
        shard_of: Callable[[str], GroupShard | ErrorCode],
        persister: Persister,
    ) -> None:
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self.topics = topics
        self._shard_of = shard_of
        self._persister = persister

    def loaded(self, shard: GroupShard) -> None:
        """Start the session of each member of a shard that was just loaded. Forget the topics that no longer exist."""
        now_ms, forgotten = self._clock.now_ms(), set[UUID]()
        for group in shard.state.share_groups.values():
            group.initializing_since_ms = now_ms
            forgotten |= {
                each for each in group.partitions.topic_ids() if self.topics.topic_name(each) is None
            }
            timeout_ms = self.context(group.group_id).session_timeout_ms
            for member_id in group.members:
                self._arm(shard, group.group_id, Arm(session_timer(member_id), timeout_ms))
        if forgotten:
            self.forget_topics(shard, frozenset(forgotten))

    # -- groups -------------------------------------------------------------------------------------------------

    def _shard(self, group_id: str) -> GroupShard:
        """Return the shard of a group. Raises `Refused`."""
        shard = self._shard_of(group_id) if group_id else ErrorCode.invalid_group_id
        if isinstance(shard, ErrorCode):
            raise Refused(shard)
        return shard

    def find(self, group_id: str) -> ShareGroup:
        """Return a group for read access. Raises `Refused`."""
        return live_group(self._shard(group_id).state.group(group_id), group_id)

    def initialized_partitions(self, group_id: str) -> Mapping[UUID, frozenset[int]]:
        """The initialized partitions of a group by topic; none if there is no such group. Raises `Refused`."""
        shard = self._shard_of(group_id)
        if isinstance(shard, ErrorCode):
            raise Refused(shard)
        group = shard.state.share_groups.get(group_id)
        initialized = {} if group is None else group.partitions.initialized
        return {topic_id: partitions for topic_id, (_, partitions) in initialized.items()}

    async def summaries(
        self, group_id: str, partitions: Sequence[Spot]
    ) -> Mapping[Spot, tuple[Outcome, StoredState]]:
        """Ask the share coordinators for the states of share partitions, without their batches."""
        asked = [(topic_id, partition, 0) for topic_id, partition in partitions]
        found = await self._persister.summaries(group_id, asked) if asked else []
        return dict(zip(partitions, found, strict=True))

    # -- requests -----------------------------------------------------------------------------------------------

    async def heartbeat(
        self, request: ShareGroupHeartbeatRequest, client: Client
    ) -> ShareGroupHeartbeatResponse:
        """Handle ShareGroupHeartbeat. Raises `Refused`."""
        heartbeat.check_request(request)
        group_id, asked = request.group_id, list[Initialization]()
        shard = self._shard(group_id)

        def decide(context: ShareContext) -> Decision[ShareGroupHeartbeatResponse]:
            found = shard.state.group(group_id)
            decision = heartbeat.heartbeat(context, found, request, client)
            asked[:] = decision.initialize
            return decision

        response = await self.carry_out_request(shard, group_id, decide)
        if asked:
            start_in_background(self._initialize(group_id, asked), shard.life)
        return response

    async def _initialize(self, group_id: str, asked: Sequence[Initialization]) -> None:
        """Ask the share coordinators to initialize partitions, and record the result in the group."""
        outcomes = await self._persister.initialize(group_id, asked)
        failed = next((each for each in outcomes if each.error is not NONE), None)
        if failed is not None:
            log.warning("share partitions not initialized", group=group_id, error=failed.error.name)
        await self._note(group_id, asked, done=failed is None)

    async def _note(self, group_id: str, asked: Sequence[Initialization], *, done: bool) -> None:
        """Record in the group whether partitions are initialized. The partition may have a new shard by now."""
        shard = self._shard_of(group_id)
        if isinstance(shard, ErrorCode):
            return
        decide = initializing.initialized if done else initializing.uninitialized
        await self.carry_out_timer(
            shard,
            group_id,
            lambda context: decide(context, live_group(shard.state.group(group_id), group_id), asked),
        )

    async def alter_offsets(
        self, group_id: str, topics: Sequence[AlterShareGroupOffsetsRequestTopic]
    ) -> list[AlterShareGroupOffsetsResponseTopic]:
        """Handle AlterShareGroupOffsets for topics that the client may alter. Raises `Refused`."""
        shard, asked = self._shard(group_id), list[Initialization]()

        def decide(context: ShareContext) -> Decision[list[AlterShareGroupOffsetsResponseTopic]]:
            decision = offsets.alter(context, shard.state.group(group_id), group_id, topics)
            asked[:] = decision.initialize
            return decision

        altered = await self.carry_out_request(shard, group_id, decide)
        if not asked:
            return altered
        wrong = next((each for each in asked if each.partition < 0), None)
        if wrong is not None:
            # Kafka's persister refuses such parameters by an exception.
            place = f"{group_id} {uuid_text(wrong.topic_id)} {wrong.partition}"
            raise Refused(ErrorCode.unknown_server_error, INVALID_PARTITION + place)
        outcomes = await self._persister.initialize(group_id, asked)
        if all(outcome.error is NONE for outcome in outcomes):
            start_in_background(self._note(group_id, asked, done=True), shard.life)
            return altered
        by_spot = {
            (each.topic_id, each.partition): found for each, found in zip(asked, outcomes, strict=True)
        }
        for topic in altered:
            for partition in topic.partitions:
                found = by_spot.get((topic.topic_id, partition.partition_index))  # type: ignore[arg-type]
                if found is not None:
                    partition.error_code, partition.error_message = found
        return altered

    async def delete_offsets(
        self, group_id: str, names: Sequence[str]
    ) -> list[DeleteShareGroupOffsetsResponseTopic]:
        """Handle DeleteShareGroupOffsets for topics that the client may alter. Raises `Refused`."""
        shard = self._shard(group_id)
        deletion = await self.carry_out_request(
            shard,
            group_id,
            lambda context: offsets.delete_offsets(context, shard.state.group(group_id), group_id, names),
        )
        refused = list(deletion.refused)
        if not deletion.partitions:
            return refused
        failed: dict[UUID, Outcome] = {}
        outcomes = await self._persister.delete(group_id, deletion.partitions)
        for (topic_id, _), outcome in zip(deletion.partitions, outcomes, strict=True):
            if outcome.error is not NONE:
                failed.setdefault(topic_id, outcome)
        names_by_id = {
            topic_id: self.topics.topic_name(topic_id) or "" for topic_id, _ in deletion.partitions
        }
        refused += (
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=names_by_id[topic_id], topic_id=topic_id, error_code=error, error_message=message
            )
            for topic_id, (error, message) in failed.items()
        )
        deleted = {topic_id: name for topic_id, name in names_by_id.items() if topic_id not in failed}
        if not deleted:
            return refused
        shard = self._shard(group_id)
        done = await self.carry_out_request(
            shard,
            group_id,
            lambda context: offsets.offsets_deleted(context, shard.state.share_groups.get(group_id), deleted),
        )
        return [*done, *refused]

    async def delete_state(self, group_id: str) -> ErrorCode:
        """Delete the states of all share partitions of a group, before the group is deleted."""
        try:
            shard = self._shard(group_id)
            doomed = await self.carry_out_request(
                shard,
                group_id,
                lambda context: offsets.delete_group(
                    context, live_group(shard.state.group(group_id), group_id)
                ),
            )
        except Refused as refusal:
            return refusal.error
        outcomes = await self._persister.delete(group_id, doomed) if doomed else []
        return next((outcome.error for outcome in outcomes if outcome.error is not NONE), NONE)

    def forget_topics(self, shard: GroupShard, deleted: frozenset[UUID]) -> None:
        """Remove deleted topics from the share partitions of all groups. The share coordinators delete the states."""

        def decide(context: ShareContext) -> Decision[None]:
            return initializing.forget_topics(context, shard.state.share_groups.values(), deleted)

        start_in_background(self.carry_out_timer(shard, "", decide), shard.life)

    # -- carrying out decisions ---------------------------------------------------------------------------------

    def context(self, group_id: str) -> ShareContext:
        config, settings = self._config, settings_of(self._config, self._metadata, group_id)
        return ShareContext(
            self.topics,
            self._clock.now_ms(),
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            assignment_interval_ms=settings.assignment_interval_ms,
            group_size_max=config.group_share_max_size,
            initialize_retry_interval_ms=config.group_share_initialize_retry_interval_ms,
        )

    def carry_out_rest(self, shard: GroupShard, group_id: str, decision: Decision[Any]) -> None:
        """Carry out a decision whose records are appended: timers, and what is not in the log."""
        groups = shard.state.share_groups
        for key, value, _ in decision.records:
            if isinstance(key, ShareGroupStatePartitionMetadataKey) and value is not None:
                groups[key.group_id].initializing_since_ms = self._clock.now_ms()
        group = groups.get(group_id)
        if group is not None and decision.is_refreshed:
            group.compared_at = self.topics.changes
        for effect in decision.timers:
            if isinstance(effect, Arm):
                self._arm(shard, group_id, effect)
            else:
                shard.cancel(group_id, effect.timer)

    # -- time ---------------------------------------------------------------------------------------------------

    def _arm(self, shard: GroupShard, group_id: str, arm: Arm) -> None:
        shard.arm(group_id, arm, partial(self._expired, shard, group_id, arm.timer.member_id))

    def _expired(self, shard: GroupShard, group_id: str, member_id: str) -> None:
        def decide(context: ShareContext) -> Decision[None]:
            group = live_group(shard.state.group(group_id), group_id)
            log.info("session of a share group's member has expired", group=group_id, member=member_id)
            return fencing.expired(context, group, member_id)

        start_in_background(self.carry_out_timer(shard, group_id, decide), shard.life)
