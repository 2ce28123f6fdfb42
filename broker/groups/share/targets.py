"""The target assignment of a share group: when it is computed, and the records for it. Pure."""

from __future__ import annotations

from broker.groups.consumer.assignors.spec import GroupSpec, MemberSpec
from broker.groups.consumer.targets import Target, is_due
from broker.groups.consumer.topics import topic_ids
from broker.groups.records import LogRecord
from broker.groups.share import records
from broker.groups.share.assignor import assign
from broker.groups.share.context import ShareContext
from broker.groups.share.group import ShareGroup
from broker.groups.share.member import ShareGroupMember


def update_target(
    context: ShareContext,
    group: ShareGroup,
    epoch: int,
    new: ShareGroupMember,
    *,
    homogeneous: bool,
    out: list[LogRecord],
) -> Target:
    """Return the target assignment of the joining or changed member ``new``.

    If the group epoch ``epoch`` is newer than the assignment epoch, and the assignment interval has passed,
    compute the target assignments of all members first, and add their records to ``out``.
    """
    if group.assignment_epoch >= epoch or not is_due(
        context.assignment_interval_ms, group.assignment_timestamp_ms, context.now_ms
    ):
        return Target(group.assignment_epoch, group.targets.get(new.member_id, {}))
    members = [
        MemberSpec(
            member.member_id,
            topic_ids(context.topics, member.subscribed_topic_names),
            group.targets.get(member.member_id, {}),
        )
        for member in {**group.members, new.member_id: new}.values()
    ]
    spec = GroupSpec.of(members, context.topics.partition_count, homogeneous=homogeneous)
    assigned = assign(spec, group.initialized)
    for member_id, target in assigned.items():
        if group.targets.get(member_id) != target:
            out.append(records.target_assignment(group.group_id, member_id, target))
    out.append(records.target_assignment_metadata(group.group_id, epoch, context.now_ms))
    return Target(epoch, assigned[new.member_id])
