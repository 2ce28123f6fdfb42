"""The target assignment of a group: when it is computed anew, and which records that takes. Pure.

As Kafka's ``TargetAssignmentBuilder``.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.groups.consumer import records
from broker.groups.consumer.assignments import NO_TARGET, TargetAssignment
from broker.groups.consumer.assignors import ASSIGNORS
from broker.groups.consumer.assignors.spec import GroupSpec, MemberSpec
from broker.groups.consumer.context import Context
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import ConsumerGroupMember
from broker.groups.consumer.subscribing import subscribed_topic_ids
from broker.groups.records import LogRecord


class Target(NamedTuple):
    """What one member shall have, as of an epoch."""

    epoch: int
    partitions: TargetAssignment


def update_target(
    context: Context,
    group: ConsumerGroup,
    epoch: int,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    *,
    homogeneous: bool,
    out: list[LogRecord],
) -> Target:
    """What ``new``, which stands in the place of ``old``, shall have; computed anew if the group's epoch is newer."""
    if group.assignment_epoch >= epoch or not _is_due(context, group):
        return Target(group.assignment_epoch, group.target_of(new.member_id, new.instance_id))
    assignors = context.settings.assignors
    name = group.preferred_assignor(old, new) or assignors[0]
    spec = GroupSpec.of(
        _member_specs(context, group, new), context.topics.partition_count, homogeneous=homogeneous
    )
    assigned = ASSIGNORS[name](spec)
    for member in spec.members:
        target = assigned.get(member.member_id, NO_TARGET)
        if group.targets.get(member.member_id) != target:
            out.append(records.target_assignment(group.group_id, member.member_id, target))
    out.append(records.target_assignment_metadata(group.group_id, epoch, context.now_ms))
    return Target(epoch, assigned.get(new.member_id, NO_TARGET))


def _is_due(context: Context, group: ConsumerGroup) -> bool:
    """Many members that come one after the other are assigned together, once in an interval (KIP-1263)."""
    interval_ms, last_ms = context.settings.assignment_interval_ms, group.assignment_timestamp_ms
    return last_ms == 0 or interval_ms == 0 or context.now_ms >= last_ms + interval_ms


def _member_specs(context: Context, group: ConsumerGroup, new: ConsumerGroupMember) -> list[MemberSpec]:
    members = dict(group.members)
    replaced = group.static_members.get(new.instance_id) if new.instance_id is not None else None
    members[new.member_id] = new
    if replaced is not None and replaced != new.member_id:
        members.pop(replaced, None)
    return [
        MemberSpec(
            member.member_id,
            subscribed_topic_ids(context, group, member),
            group.target_of(member.member_id, member.instance_id),
            member.instance_id,
            member.rack_id,
        )
        for member in members.values()
    ]
