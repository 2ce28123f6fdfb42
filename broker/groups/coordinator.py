"""The group coordinator of one node: loads and unloads its shards, and finds the shard of a group for each request."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, cast

from broker.clock import Clock, Domain, Periodic, Timer
from broker.coordinator_runtime.runtime import CoordinatorRuntime
from broker.groups import classic, commits
from broker.groups.commits import Committer, Errors, OffsetToCommit
from broker.groups.consumer.context import Client, MayDescribe
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.records import group_tombstones
from broker.groups.consumer_groups import ConsumerGroups, refuse_heartbeat
from broker.groups.effects import Effect
from broker.groups.group import ClassicGroup
from broker.groups.offsets import NO_RETENTION_OF_ITS_OWN, GroupOffsets, Spot
from broker.groups.shard import GroupShard, Producer
from broker.injection.points import FaultInjection
from broker.loop.coroutines import Waiter, start_in_background
from broker.loop.life import NodeLife
from broker.metadata.internal_topics import coordinator_partitions
from broker.metadata.listeners import MetadataListener
from broker.metadata.topics import CONSUMER_OFFSETS
from broker.replicas.partition import Partition
from protocol.errors import NONE, ErrorCode
from protocol.hashing import partition_for
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.groups.coordinator_state import Group
    from broker.groups.share_groups import ShareGroups
    from broker.metadata.cluster import ClusterMetadata
    from broker.metadata.values import PartitionState, Topic
    from broker.replicas.manager import ReplicaManager
    from broker.share.persister import Persister
    from storage.producers import VerificationGuard

LOAD_IN_PROGRESS_SINCE: Final = 2
"""First version of TxnOffsetCommit whose clients do not crash on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
MS_PER_MINUTE: Final = 60_000


def _uuid_by(rng: Random) -> uuid.UUID:
    return uuid.UUID(int=rng.getrandbits(128), version=4)


class GroupCoordinator(MetadataListener):
    """Coordinates the groups whose partition of ``__consumer_offsets`` this node leads."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        metadata: ClusterMetadata,
        replicas: ReplicaManager,
        new_uuid: Callable[[], object] | None = None,
        *,
        random: Random | None = None,
        injection: FaultInjection | None = None,
        life: NodeLife | None = None,
        partitions: int | None = None,
        persister: Persister | None = None,
    ) -> None:
        """``new_uuid`` returns the unique part of member ids; if it is None, ``random`` generates that part.

        When the node's ``life`` ends, the coroutines that wait in the coordinator are closed, before `abandon` is called.
        ``partitions`` is the number of partitions that ``__consumer_offsets`` had when the node started; None: read it from
        the metadata. ``persister`` asks share coordinators; None if there are no share groups.
        """
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._new_uuid = new_uuid or partial(_uuid_by, random or Random())
        self._injection = injection or FaultInjection()
        self._life = life or NodeLife()
        self._partitions = partitions or coordinator_partitions(CONSUMER_OFFSETS, metadata.topic, config)
        self._persister = persister
        self._share_groups: ShareGroups | None = None
        self.consumer_groups = ConsumerGroups(config, clock, metadata, self._new_uuid)
        self._runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            CONSUMER_OFFSETS, replicas, clock, self._life, self._injection, self._new_shard, self._loaded
        )
        self._expiry: Periodic | None = None
        self._rest_of_expiry: Timer | None = None
        metadata.subscribe(self)

    # -- start, stop, metadata changes --------------------------------------------------------------------------

    def start(self) -> None:
        """Load every partition that this node leads, and start the periodic expiry of offsets."""
        self._runtime.load_all(self._metadata.topic(CONSUMER_OFFSETS))
        self.start_timers()

    def start_timers(self) -> None:
        """Start the periodic expiry of offsets.

        A node that started without ``__consumer_offsets`` needs this method only: it has no partition to load.
        """
        interval_ms = self._config.offsets_retention_check_interval_ms
        self._expiry = Periodic(
            self._clock, interval_ms, self._begin_expiry, Domain.GROUPS, self._next_expiry_ms
        )

    def _new_shard(self, partition: Partition) -> GroupShard:
        return GroupShard(partition, lambda: self._config, self._clock, self._life, self._injection)

    def _loaded(self, shard: GroupShard) -> None:
        """Start the session timers of consumer groups' members. Delete the offsets of topics that no longer exist."""
        self.consumer_groups.loaded(shard)
        if shard.state.share_groups:
            self.share_groups.loaded(shard)
        for name, topic_id in shard.state.offsets.topics():
            if topic_id is not None and self._metadata.topic_by_id(topic_id) is None:
                start_in_background(commits.forget_topic(shard, name, topic_id), self._life)

    def close(self) -> None:
        """Cancel the timers and respond to all waiting requests with an error, because the node stops."""
        self._end_expiry()
        self._runtime.close()

    def abandon(self) -> None:
        """Cancel the timers, and neither respond nor write any more, because the node was killed."""
        self._end_expiry()
        self._runtime.abandon()

    def on_leader_changed(self, topic: Topic, partition: PartitionState) -> None:
        self._runtime.on_leader_changed(topic, partition)

    def on_topic_deleted(self, topic: Topic) -> None:
        """Delete the offsets of a deleted topic. If the topic is ``__consumer_offsets``, unload all shards."""
        self._runtime.on_topic_deleted(topic)
        for shard in self._runtime.open():
            start_in_background(commits.forget_topic(shard, topic.name, topic.topic_id), self._life)
            if shard.state.share_groups:
                self.share_groups.forget_topics(shard, frozenset({topic.topic_id}))

    # -- the partition of a group -------------------------------------------------------------------------------

    def partition_for(self, group_id: str) -> int:
        """Partition of ``__consumer_offsets`` for a group, by the partition count at the node's start.

        Partitions that are added later are used after the node's next start (``GroupCoordinatorService.startup``).
        """
        return partition_for(group_id, self._partitions)

    def _shard_of(self, group_id: str) -> GroupShard | ErrorCode:
        index = self.partition_for(group_id)
        shard = self._runtime.serving.find(index)
        return self._runtime.find(index) if shard is None else cast("GroupShard", shard)

    # -- members ------------------------------------------------------------------------------------------------

    async def join(
        self,
        request: JoinGroupRequest,
        client_id: str | None,
        client_host: str,
        api_version: int,
        may_describe: MayDescribe | None = None,
    ) -> JoinGroupResponse:
        config = self._config
        session_timeout_ms = request.session_timeout_ms
        lower, upper = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not request.group_id:
            return JoinGroupResponse(member_id=request.member_id, error_code=ErrorCode.invalid_group_id)
        if not lower <= session_timeout_ms <= upper:
            return JoinGroupResponse(
                member_id=request.member_id, error_code=ErrorCode.invalid_session_timeout
            )
        shard = self._shard_of(request.group_id)
        if isinstance(shard, ErrorCode):
            return JoinGroupResponse(error_code=shard)
        consumer_group = shard.state.consumer_groups.get(request.group_id)
        if consumer_group is not None and consumer_group.members:
            client = Client(client_id or "", client_host, may_describe)
            return await self.consumer_groups.join(shard, consumer_group, request, client, api_version)
        if request.group_id in shard.state.share_groups:
            return JoinGroupResponse(error_code=ErrorCode.inconsistent_group_protocol)
        if consumer_group is not None and not request.member_id:
            # An empty consumer group becomes a classic group.
            error, _ = shard.append_records(group_tombstones(consumer_group))
            if error is not NONE:
                return JoinGroupResponse(error_code=shard.client_error(error))
        now_ms = self._clock.now_ms()
        group = shard.state.groups.get(request.group_id)
        effects: list[Effect] = []
        if group is None:
            if request.member_id:
                return JoinGroupResponse(member_id=request.member_id, error_code=ErrorCode.unknown_member_id)
            group, effects = classic.create(request.group_id, shard.state.config, now_ms)
            shard.state.groups[request.group_id] = group
        joiner = classic.Joiner.of(request, client_id, client_host, api_version, str(self._new_uuid()))
        response: Waiter[JoinGroupResponse] = Waiter()
        shard.run(group, [*effects, *classic.join(group, joiner, response, now_ms)])
        return await response

    async def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        found = self._group_of(request.group_id)
        if isinstance(found, ErrorCode):
            return SyncGroupResponse(error_code=found)
        shard, group = found
        if group is None:
            return SyncGroupResponse(error_code=ErrorCode.unknown_member_id)
        if isinstance(group, ConsumerGroup):
            return await self.consumer_groups.sync(shard, group, request)
        response: Waiter[SyncGroupResponse] = Waiter()
        shard.run(group, classic.sync(group, request, response, self._clock.now_ms()))
        return await response

    async def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        found = self._group_of(group_id)
        if found is ErrorCode.coordinator_load_in_progress:
            # No member can have expired while the partition is loading.
            return NONE
        if isinstance(found, ErrorCode):
            return found
        shard, group = found
        if group is None:
            return ErrorCode.unknown_member_id
        if isinstance(group, ConsumerGroup):
            return await self.consumer_groups.classic_heartbeat(
                shard, group, member_id, group_instance_id, generation_id
            )
        error, effects = classic.heartbeat(group, member_id, group_instance_id, generation_id)
        shard.run(group, effects)
        if error not in (NONE, ErrorCode.rebalance_in_progress):
            return error
        failure = await shard.read()
        return error if failure is NONE else failure

    async def leave(self, group_id: str, members: Sequence[MemberIdentity]) -> LeaveGroupResponse:
        found = self._group_of(group_id)
        if isinstance(found, ErrorCode):
            return LeaveGroupResponse(error_code=found)
        shard, group = found
        if group is None:
            return LeaveGroupResponse(
                members=[
                    MemberResponse(
                        member_id=member.member_id,
                        group_instance_id=member.group_instance_id,
                        error_code=ErrorCode.unknown_member_id,
                    )
                    for member in members
                ]
            )
        if isinstance(group, ConsumerGroup):
            return await self.consumer_groups.leave(shard, group, members)
        response: Waiter[LeaveGroupResponse] = Waiter()
        shard.run(group, classic.leave(group, members, response, self._clock.now_ms()))
        # A response that waits is sent once the group's record is committed. A response that is ready may depend on records
        # that are only in memory yet.
        error = await shard.read() if response.done() else NONE
        return await response if error is NONE else LeaveGroupResponse(error_code=error)

    async def consumer_group_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client_id: str | None,
        client_host: str,
        api_version: int,
        may_describe: MayDescribe | None = None,
    ) -> ConsumerGroupHeartbeatResponse:
        """Handle ConsumerGroupHeartbeat. ``may_describe`` limits the topics of a regular expression; None: no limit."""
        refusal = self.consumer_groups.check_heartbeat(request, api_version)
        if refusal is not None:
            return refusal
        shard = self._shard_of(request.group_id)
        if isinstance(shard, ErrorCode):
            return refuse_heartbeat(shard)
        client = Client(client_id or "", client_host, may_describe)
        return await self.consumer_groups.heartbeat(shard, request, client)

    def _group_of(self, group_id: str) -> tuple[GroupShard, ClassicGroup | ConsumerGroup | None] | ErrorCode:
        """Return a group and its shard, for a request of the classic protocol. To such, a share group is unknown."""
        if not group_id:
            return ErrorCode.invalid_group_id
        shard = self._shard_of(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        return shard, shard.state.group_with_offsets(group_id)

    # -- share groups -------------------------------------------------------------------------------------------

    @property
    def share_groups(self) -> ShareGroups:
        """The share groups of this node. Their modules are imported with the first one."""
        if self._share_groups is None:
            from broker.groups.share_groups import ShareGroups

            assert self._persister is not None
            self._share_groups = ShareGroups(
                self._config,
                self._clock,
                self._metadata,
                self.consumer_groups.topics,
                self._shard_of,
                self._persister,
            )
        return self._share_groups

    # -- groups -------------------------------------------------------------------------------------------------

    def shard_of(self, group_id: str) -> GroupShard | ErrorCode:
        """Return the shard of a group for read access, or the error for the client."""
        return self._shard_of(group_id)

    def find(self, group_id: str) -> Group | ErrorCode:
        """Return a group for read access, or the error for the client.

        The group id may be empty, as offsets may be committed under the empty id.
        """
        shard = self._shard_of(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        return shard.state.group(group_id) or ErrorCode.group_id_not_found

    def all_groups(self) -> list[Group] | ErrorCode:
        """Return all groups that this node coordinates; COORDINATOR_LOAD_IN_PROGRESS while a partition is loading."""
        shards = [shard for _, shard in self._runtime.items()]
        if any(shard.is_loading for shard in shards):
            return ErrorCode.coordinator_load_in_progress
        return [group for shard in shards for group in shard.state.all_groups()]

    def known(self) -> Iterator[tuple[Group, GroupOffsets]]:
        """Yield (group, offsets of its partition) for all groups of this node, except in partitions that are loading."""
        for shard in self._runtime.all():
            if shard.is_current() and not shard.is_loading:
                for group in shard.state.all_groups():
                    yield group, shard.state.offsets

    async def delete(self, group_id: str) -> ErrorCode:
        shard = self._shard_of(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        if group_id in shard.state.share_groups:
            error = await self.share_groups.delete_state(group_id)
            if error is not NONE:
                return error
        return await commits.delete_group(shard, group_id)

    # -- offsets ------------------------------------------------------------------------------------------------

    async def commit(
        self, who: Committer, offsets: Sequence[OffsetToCommit], retention_ms: int, api_version: int
    ) -> Errors:
        shard = self._shard_of(who.group_id)
        if isinstance(shard, ErrorCode):
            return [shard] * len(offsets)
        return await commits.commit(shard, who, offsets, retention_ms, api_version)

    async def commit_transactional(
        self,
        group_id: str,
        member_id: str,
        generation_id: int,
        group_instance_id: str | None,
        producer_id: int,
        producer_epoch: int,
        offsets: Sequence[OffsetToCommit],
        api_version: int,
        *,
        guard: VerificationGuard | None = None,
        verified: bool = False,
    ) -> Errors:
        """Commit the offsets of a TxnOffsetCommit, after the transaction was verified. Returns one error for each offset.

        ``guard`` and ``verified`` are passed to the append (``Partition.append_internal``).
        """
        shard = self._shard_of(group_id) if group_id else ErrorCode.invalid_group_id
        if isinstance(shard, ErrorCode):
            if shard is ErrorCode.coordinator_load_in_progress and api_version < LOAD_IN_PROGRESS_SINCE:
                shard = ErrorCode.coordinator_not_available
            return [shard] * len(offsets)
        who = Committer(group_id, member_id, generation_id, group_instance_id)
        producer = Producer(producer_id, producer_epoch, guard, verified)
        return await commits.commit(shard, who, offsets, NO_RETENTION_OF_ITS_OWN, api_version, producer)

    def on_marker(
        self, partition_index: int, producer_id: int, producer_epoch: int, committed: bool, marker_offset: int
    ) -> None:
        """Commit or drop the pending offsets of a transaction whose marker is committed.

        If the partition is not loaded, do nothing: a later load reads the marker from the log.
        """
        shard = self._runtime.get(partition_index)
        if shard is not None:
            shard.state.offsets.end_transaction(producer_id, committed, marker_offset)

    async def fetch(
        self, wanted: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        shard = self._shard_of(wanted.group_id)
        if isinstance(shard, ErrorCode):
            return OffsetFetchResponseGroup(group_id=wanted.group_id, error_code=shard)
        return await commits.fetch(shard, wanted, require_stable=require_stable)

    async def delete_offsets(self, group_id: str, spots: Sequence[Spot]) -> tuple[ErrorCode, Errors]:
        shard = self._shard_of(group_id) if group_id else ErrorCode.invalid_group_id
        if isinstance(shard, ErrorCode):
            return shard, []
        return await commits.delete_offsets(shard, group_id, spots)

    # -- expiry -------------------------------------------------------------------------------------------------

    @property
    def _retention_ms(self) -> int:
        return self._config.offsets_retention_minutes * MS_PER_MINUTE

    def _next_expiry_ms(self) -> int | None:
        waits = (commits.expires_in_ms(shard, self._retention_ms) for shard in self._runtime.open())
        wait_ms = min((wait_ms for wait_ms in waits if wait_ms is not None), default=None)
        return None if wait_ms is None else self._clock.now_ms(Domain.GROUPS) + wait_ms

    def _begin_expiry(self) -> None:
        if self._rest_of_expiry is None:
            self._expire_next([index for index, shard in self._runtime.items() if shard.state.all_groups()])

    def _expire_next(self, indices: Sequence[int]) -> None:
        """Expire the offsets of one shard in each turn of the event loop, so that many groups do not block the loop."""
        self._rest_of_expiry = None
        if not indices:
            return
        shard = self._runtime.get(indices[0])
        if shard is not None:
            start_in_background(commits.expire(shard, self._retention_ms), self._life)
        rest = partial(self._expire_next, indices[1:])
        self._rest_of_expiry = self._clock.call_later_ms(0, rest, Domain.GROUPS)

    def _end_expiry(self) -> None:
        for timer in (self._expiry, self._rest_of_expiry):
            if timer is not None:
                timer.cancel()

    # -- comparison in tests ------------------------------------------------------------------------------------

    def memory(self) -> dict[int, dict[str, object]]:
        """Return all groups and offsets by partition, as plain values. A rebuild from the logs gives equal values."""
        return {
            index: shard.state.image()
            for index, shard in sorted(self._runtime.items())
            if not shard.is_loading
        }
