"""Finds the group and the member for a request, with the fencing checks of KIP-848. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from broker.groups.consumer import records
from broker.groups.consumer.assignments import TopicPartitions, has_all
from broker.groups.consumer.context import Context, Decision, live_group, member_of, refused
from broker.groups.consumer.conversion import check_upgrade, upgrade
from broker.groups.consumer.fencing import static_member_of
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import STATIC_LEAVE_EPOCH, ConsumerGroupMember
from broker.groups.group import ClassicGroup, ClassicGroupState
from broker.groups.records import LogRecord
from protocol.errors import ErrorCode
from protocol.records.group_log import GroupMetadataKey


def group_to_join(
    context: Context,
    group_id: str,
    found: object | None,
    decision: Decision[Any],
) -> ConsumerGroup:
    """Return the group that a member joins: ``found``, or a new one if ``found`` is None or a classic Empty group.

    A classic group with members is upgraded. The records and timers are added to ``decision``.
    """
    if found is None:
        return ConsumerGroup(group_id)
    if not isinstance(found, ClassicGroup):
        return live_group(found, group_id)
    if found.state is ClassicGroupState.EMPTY:
        decision.records.append(LogRecord(GroupMetadataKey(group_id)))
        return ConsumerGroup(group_id)
    check_upgrade(context, found)
    group, written, sessions = upgrade(context, found)
    decision.records += written
    decision.timers += sessions
    return group


def check_size(context: Context, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
    """Raise `Refused` if the group is full, and has neither this member nor a member with this instance id."""
    size_max = context.settings.group_size_max
    if (
        len(group.members) >= size_max
        and member_id not in group.members
        and instance_id not in group.static_members
    ):
        raise refused(
            ErrorCode.group_max_size_reached,
            f"The consumer group has reached its maximum capacity of {size_max} members.",
        )


def check_epoch(member: ConsumerGroupMember, epoch: int, owned: Iterable[TopicPartitions] | None) -> None:
    """Raise `Refused` with FENCED_MEMBER_EPOCH unless ``epoch`` is 0 (a join) or the member's epoch.

    The member's previous epoch is accepted, too, if all ``owned`` partitions are assigned to the member: in this
    case the member did not receive the last response, and sends its request again.
    """
    if epoch == 0 or epoch == member.member_epoch:
        return
    relation = "greater" if epoch > member.member_epoch else "smaller"
    if relation == "smaller" and epoch == member.previous_member_epoch and has_all(member.assigned, owned):
        return
    raise refused(
        ErrorCode.fenced_member_epoch,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def joining_member(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    decision: Decision[Any],
    *,
    classic: bool,
) -> ConsumerGroupMember:
    """Return the joining member: a new one, a known one, or a static member that keeps its assignment under a new id."""
    if instance_id is None:
        return group.members.get(member_id) or ConsumerGroupMember(member_id=member_id)
    former = group.static_member(instance_id)
    if former is None:
        return group.members.get(member_id) or ConsumerGroupMember(member_id=member_id)
    if not classic and not former.uses_classic_protocol and former.member_epoch != STATIC_LEAVE_EPOCH:
        raise refused(
            ErrorCode.unreleased_instance_id,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because "
            f"the instance id is owned by {former.member_id} member.",
        )
    member = former.evolve(member_id=member_id, member_epoch=0, previous_member_epoch=0)
    target = group.target_of(former.member_id)
    decision.records += records.member_tombstones(group.group_id, former.member_id)
    decision.records += (
        records.member_subscription(group.group_id, member),
        records.target_assignment(group.group_id, member_id, target),
        records.current_assignment(group.group_id, member),
    )
    return member


def known_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
    if instance_id is None:
        return member_of(group, member_id)
    return static_member_of(group, instance_id, member_id)
