"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup (KIP-848). Pure.

A consumer group has no leader, as the coordinator computes the assignment. A JoinGroup has the effects of a
ConsumerGroupHeartbeat, and its response does not wait for the other members. A member requests its assignment by
SyncGroup. SyncGroup and Heartbeat return REBALANCE_IN_PROGRESS when the member has to join again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.groups.consumer import records
from broker.groups.consumer.assignments import without_epochs
from broker.groups.consumer.context import (
    Client,
    Context,
    Decision,
    MigrationPolicy,
    Refused,
    join_timer,
    member_of,
    refused,
    session_timer,
    sync_timer,
)
from broker.groups.consumer.conversion import (
    downgrade,
    encode_assignment,
    is_downgraded_by_replacing,
    partitions_by_id,
)
from broker.groups.consumer.fencing import check_incarnation, fence, static_member_of
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.heartbeat import step
from broker.groups.consumer.member import ConsumerGroupMember, MemberState
from broker.groups.consumer.membership import check_size, joining_member, known_member
from broker.groups.consumer.subscribing import RegexStatus, update_epoch, update_regex
from broker.groups.consumer.targets import Target, update_target
from broker.groups.consumer.topics import TopicsImage
from broker.groups.effects import Arm, Cancel
from broker.groups.group import CONSUMER_PROTOCOL, ClassicGroupConfig
from broker.groups.members import protocols_of
from protocol.errors import NONE, ErrorCode
from protocol.messages.consumer_group_heartbeat import TopicPartitions
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from protocol.records.consumer_protocol import Subscription
from protocol.records.group_log import ClassicMemberMetadata, ClassicProtocol
from protocol.schema import MalformedRecord
from protocol.slotted import slotted

MEMBER_ID_REQUIRED_SINCE: Final = 4
REBALANCE_TIMEOUT_SINCE: Final = 1


@slotted(frozen=True)
class ClassicJoiner:
    """A JoinGroup request for a consumer group, parsed and checked."""

    request: JoinGroupRequest
    member_id: str
    """Member id of the request; a new one if the request has none."""
    client: Client
    api_version: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def is_unknown(self) -> bool:
        return not self.request.member_id

    @property
    def needs_member_id(self) -> bool:
        """Whether the client must send a second JoinGroup with the member id of the response (KIP-394)."""
        is_dynamic = self.request.group_instance_id is None
        return self.is_unknown and is_dynamic and self.api_version >= MEMBER_ID_REQUIRED_SINCE

    def subscription(self) -> Subscription:
        try:
            return Subscription.decode(self.protocols[0][1])
        except MalformedRecord:
            raise refused(ErrorCode.inconsistent_group_protocol) from None


def read_join(
    context: Context,
    group: ConsumerGroup,
    request: JoinGroupRequest,
    client: Client,
    api_version: int,
    new_member_id: str,
) -> ClassicJoiner:
    """Check whether the client may join, and parse its JoinGroup. Raises `Refused`."""
    if context.settings.migration_policy is MigrationPolicy.DISABLED:
        raise refused(ErrorCode.inconsistent_group_protocol)
    member_id = request.member_id or new_member_id
    check_size(context, group, member_id, request.group_instance_id)
    protocols = protocols_of(request.protocols)
    if not group.supports_classic(request.protocol_type, frozenset(name for name, _ in protocols)):
        raise refused(ErrorCode.inconsistent_group_protocol)
    timeout_ms = (
        request.rebalance_timeout_ms if api_version >= REBALANCE_TIMEOUT_SINCE else request.session_timeout_ms
    )
    return ClassicJoiner(request, member_id, client, api_version, timeout_ms, protocols)


def join(
    context: Context,
    group: ConsumerGroup,
    joiner: ClassicJoiner,
    config: ClassicGroupConfig,
    *,
    resolving: bool,
) -> Decision[JoinGroupResponse]:
    request = joiner.request
    instance_id, member_id = request.group_instance_id, joiner.member_id
    if joiner.needs_member_id:
        return Decision(JoinGroupResponse(member_id=member_id, error_code=ErrorCode.member_id_required))
    decision = Decision(JoinGroupResponse())
    if instance_id is None or joiner.is_unknown:
        old = joining_member(group, member_id, instance_id, decision, classic=True)
    else:
        old = static_member_of(group, instance_id, member_id)
    subscription = joiner.subscription()
    new = _updated_member(old, joiner, subscription)
    out = decision.records
    if new is not old:
        out.append(records.member_subscription(group.group_id, new))
    names_changed = new.subscribed_topic_names != old.subscribed_topic_names
    regex = update_regex(context, group, old, new, resolving=resolving, out=out)
    decision.regexes = regex.to_resolve
    bump = names_changed or regex.status is not RegexStatus.UNCHANGED
    epoch = update_epoch(context, group, old, new, bump=bump, out=out)
    decision.is_refreshed = epoch.is_refreshed
    owned = _owned(context.topics, subscription)
    if is_downgraded_by_replacing(context, group, group.static_member(instance_id)):
        rebalance = group.assignment_epoch < epoch.epoch
        if not rebalance:
            target = Target(group.assignment_epoch, group.target_of(new.member_id, new.instance_id))
            new = step(context, group, new, target, owned, decision, subscription_changed=bump)
        downgrade(context, group, config, decision, joining=new, rebalance=rebalance)
    else:
        target = update_target(
            context, group, epoch.epoch, old, new, homogeneous=epoch.is_homogeneous, out=out
        )
        new = step(context, group, new, target, owned, decision, subscription_changed=bump)
        decision.timers += (
            Cancel(join_timer(member_id)),
            Arm(session_timer(member_id), request.session_timeout_ms),
            Arm(sync_timer(member_id), joiner.rebalance_timeout_ms),
        )
    decision.response = JoinGroupResponse(
        member_id=new.member_id,
        generation_id=new.member_epoch,
        protocol_type=CONSUMER_PROTOCOL,
        protocol_name=joiner.protocols[0][0],
    )
    return decision


def _updated_member(
    old: ConsumerGroupMember, joiner: ClassicJoiner, subscription: Subscription
) -> ConsumerGroupMember:
    request = joiner.request
    protocols = tuple(ClassicProtocol(name=name, metadata=metadata) for name, metadata in joiner.protocols)
    return old.evolve(
        instance_id=request.group_instance_id or old.instance_id,
        rack_id=subscription.rack_id or old.rack_id,
        rebalance_timeout_ms=joiner.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex="",
        client_id=joiner.client.client_id,
        client_host=joiner.client.client_host,
        classic=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms, supported_protocols=protocols
        ),
    )


def _owned(topics: TopicsImage, subscription: Subscription) -> list[TopicPartitions]:
    owned = partitions_by_id(topics, subscription.owned_partitions)
    return [TopicPartitions(topic_id=topic_id, partitions=sorted(of)) for topic_id, of in owned.items()]


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> ConsumerGroupMember:
    """Return the member that sent a SyncGroup or Heartbeat. Raises `Refused` for an invalid member or generation."""
    member = known_member(group, member_id, instance_id)
    if not member.uses_classic_protocol:
        raise refused(ErrorCode.unknown_member_id)
    if member.member_epoch != generation:
        raise refused(ErrorCode.illegal_generation)
    return member


def sync(context: Context, group: ConsumerGroup, request: SyncGroupRequest) -> Decision[SyncGroupResponse]:
    if not group.members:
        raise refused(ErrorCode.unknown_member_id)
    member = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    first = member.classic_protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol_name not in (
        None,
        first.name,
    ):
        raise refused(ErrorCode.inconsistent_group_protocol)
    decision = Decision(SyncGroupResponse())
    if group.assignment_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        decision.timers.append(_rejoin_by(member))
        decision.response = SyncGroupResponse(error_code=ErrorCode.rebalance_in_progress)
        return decision
    assert member.classic is not None
    decision.timers += (
        Cancel(sync_timer(member.member_id)),
        Arm(session_timer(member.member_id), member.classic.session_timeout_ms),
    )
    decision.response = SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=encode_assignment(context.topics, without_epochs(member.assigned), first.metadata),
    )
    return decision


def _rejoin_by(member: ConsumerGroupMember) -> Arm:
    return Arm(join_timer(member.member_id), member.rebalance_timeout_ms, if_absent=True)


def heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> Decision[ErrorCode]:
    member = _classic_member(group, member_id, instance_id, generation)
    assert member.classic is not None
    session = Arm(session_timer(member.member_id), member.classic.session_timeout_ms)
    decision = Decision(NONE, timers=[session])
    if (
        member.member_epoch < group.assignment_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_unreleased(member))
    ):
        decision.timers.append(_rejoin_by(member))
        decision.response = ErrorCode.rebalance_in_progress
    return decision


def leave(
    context: Context, group: ConsumerGroup, config: ClassicGroupConfig, leaving: Sequence[MemberIdentity]
) -> Decision[LeaveGroupResponse]:
    """Process a LeaveGroup. The request of an administrator may remove members of both protocols."""
    results: list[MemberResponse] = []
    gone: dict[str, ConsumerGroupMember] = {}
    for identity in leaving:
        error = NONE
        try:
            member = _leaving_member(group, identity)
            gone[member.member_id] = member
        except Refused as refusal:
            error = refusal.error
        results.append(
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=error,
            )
        )
    return fence(context, group, config, list(gone.values()), LeaveGroupResponse(members=results))


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerGroupMember:
    instance_id = identity.group_instance_id
    if instance_id is None:
        return member_of(group, identity.member_id)
    member = group.static_member(instance_id)
    if member is None:
        raise refused(ErrorCode.unknown_member_id)
    if identity.member_id:
        check_incarnation(member, instance_id, identity.member_id)
    return member
