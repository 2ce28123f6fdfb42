"""Removal of members from a consumer group: they leave, or are fenced. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from broker.groups.consumer import records
from broker.groups.consumer.assignments import NO_PARTITIONS
from broker.groups.consumer.context import Context, Decision, R, cancel_timers, member_of, refused
from broker.groups.consumer.conversion import downgrade, is_downgraded_without
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import STATIC_LEAVE_EPOCH, ConsumerGroupMember
from broker.groups.consumer.topics import metadata_hash
from broker.groups.group import ClassicGroupConfig
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def static_member_of(group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerGroupMember:
    """Return the current static member of ``instance_id``; raise `Refused` if its member id is not ``member_id``."""
    member = group.static_member(instance_id)
    if member is None:
        raise refused(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
    check_incarnation(member, instance_id, member_id)
    return member


def check_incarnation(member: ConsumerGroupMember, instance_id: str, member_id: str) -> None:
    if member.member_id != member_id:
        raise refused(
            ErrorCode.fenced_instance_id,
            f"Static member {member_id} with instance id {instance_id} "
            f"was fenced by member {member.member_id}.",
        )


def leave(
    context: Context,
    group: ConsumerGroup,
    config: ClassicGroupConfig,
    request: ConsumerGroupHeartbeatRequest,
) -> Decision[ConsumerGroupHeartbeatResponse]:
    """Process a ConsumerGroupHeartbeat with epoch -1 (leave) or, for a static member, -2 (leave temporarily)."""
    response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    if request.instance_id is None:
        return fence(context, group, config, [member_of(group, request.member_id)], response)
    member = static_member_of(group, request.instance_id, request.member_id)
    if request.member_epoch != STATIC_LEAVE_EPOCH:
        return fence(context, group, config, [member], response)
    # Epoch -2: the assignment stays reserved for the next incarnation of the static member.
    left = member.evolve(
        member_epoch=STATIC_LEAVE_EPOCH,
        pending_revocation=NO_PARTITIONS,
        assigned={topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()},
    )
    return Decision(response, [records.current_assignment(group.group_id, left)])


def fence(
    context: Context,
    group: ConsumerGroup,
    config: ClassicGroupConfig,
    members: Sequence[ConsumerGroupMember],
    response: R,
) -> Decision[R]:
    """Return the decision that removes ``members`` from the group; ``response`` is its response.

    The group becomes a classic group if only members of the classic protocol remain, and the settings allow a
    downgrade.
    """
    decision = Decision(response)
    if not members:
        return decision
    if is_downgraded_without(context, group, members):
        downgrade(context, group, config, decision, leaving=members, rebalance=True)
        return decision
    for member in members:
        decision.records += records.member_tombstones(group.group_id, member.member_id)
    after = group.subscriptions.without(members, group.resolved)
    decision.records += (
        records.regular_expression_tombstone(group.group_id, regex)
        for regex in group.subscriptions.regexes
        if regex not in after.regexes
    )
    found_hash = metadata_hash(context.topics, after.topics)
    epoch = group.epoch + 1
    decision.records.append(records.group_epoch(group.group_id, epoch, found_hash))
    if len(members) == len(group.members):
        # Time 0: the next member that joins gets its assignment at once, not after the assignment interval (KIP-1263).
        decision.records.append(records.target_assignment_metadata(group.group_id, epoch, 0))
    decision.timers += cancel_timers([member.member_id for member in members])
    return decision
