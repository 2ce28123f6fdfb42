"""Computation of a target assignment: prepares the group's members for an assignor and calls it. Pure.

A broker imports this module, and the assignors with it, when the first member joins a consumer group.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.groups.consumer.assignments import TargetAssignment
from broker.groups.consumer.assignors import ASSIGNORS
from broker.groups.consumer.assignors.spec import GroupSpec, MemberSpec
from broker.groups.consumer.context import Context
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import ConsumerGroupMember
from broker.groups.consumer.subscribing import subscribed_topic_ids


def assign(
    context: Context, group: ConsumerGroup, name: str, new: ConsumerGroupMember, *, homogeneous: bool
) -> Mapping[str, TargetAssignment]:
    """Compute the target assignment of every member by the assignor ``name``. Members without partitions are included.

    ``new`` is a joining or changed member. ``homogeneous``: all members subscribe to the same topics.
    """
    spec = GroupSpec.of(
        _member_specs(context, group, new), context.topics.partition_count, homogeneous=homogeneous
    )
    assigned = ASSIGNORS[name](spec)
    return {member.member_id: assigned.get(member.member_id, {}) for member in spec.members}


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
