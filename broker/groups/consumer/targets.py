"""The target assignment of a group: when it is computed, and the records for it. Pure.

The counterpart of Kafka's ``TargetAssignmentBuilder``.
"""

from __future__ import annotations

from broker.groups.consumer import records
from broker.groups.consumer.assignments import TargetAssignment
from broker.groups.consumer.context import Context
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import ConsumerGroupMember
from broker.groups.records import LogRecord
from protocol.named_tuple import NamedTuple


class Target(NamedTuple):
    """Target assignment of one member, and the group epoch for which it was computed."""

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
    """Return the target assignment of the member ``new``, which replaces ``old``.

    If the group epoch ``epoch`` is newer than the assignment epoch, and the assignment interval has passed,
    compute the target assignments of all members first, and add their records to ``out``.
    """
    if group.assignment_epoch >= epoch or not is_due(
        context.settings.assignment_interval_ms, group.assignment_timestamp_ms, context.now_ms
    ):
        return Target(group.assignment_epoch, group.target_of(new.member_id, new.instance_id))
    # Imported on first use: a broker without consumer groups starts without the assignors.
    from broker.groups.consumer.assigning import assign

    name = group.preferred_assignor(old, new) or context.settings.assignors[0]
    assigned = assign(context, group, name, new, homogeneous=homogeneous)
    for member_id, target in assigned.items():
        if group.targets.get(member_id) != target:
            out.append(records.target_assignment(group.group_id, member_id, target))
    out.append(records.target_assignment_metadata(group.group_id, epoch, context.now_ms))
    return Target(epoch, assigned[new.member_id])


def is_due(interval_ms: int, last_ms: int, now_ms: int) -> bool:
    """Whether the assignment interval has passed since the last computation of the target assignments (KIP-1263).

    Members that join within the interval are assigned together. A computation in the future is from a process whose
    clock was advanced: nobody has to wait for it.
    """
    return last_ms == 0 or not last_ms <= now_ms < last_ms + interval_ms
