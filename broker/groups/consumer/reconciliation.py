"""One step from a member's current assignment to its target assignment (``CurrentAssignmentBuilder``, KIP-848). Pure.

A partition never belongs to two members: a member that must revoke a partition first confirms the revocation
(``topic_partitions`` of its heartbeat); only then is the partition assigned to another member. Until a member has confirmed
its revocations, its epoch does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from broker.groups.consumer.assignments import (
    NO_PARTITIONS,
    AssignedPartitions,
    TargetAssignment,
    TopicPartitions,
    has,
    has_any,
)
from broker.groups.consumer.context import refused
from broker.groups.consumer.group import UNOWNED
from broker.groups.consumer.member import ConsumerGroupMember, MemberState
from protocol.errors import ErrorCode
from protocol.named_tuple import NamedTuple


class Goal(NamedTuple):
    """The input of a reconciliation: target, subscription, partition owners, and partitions reported by the member."""

    epoch: int
    target: TargetAssignment
    subscribed: frozenset[UUID]
    """Ids of the topics to which the member subscribes now. The target assignment may be for an older subscription."""
    owner_epoch: Callable[[UUID, int], int]
    owned: Iterable[TopicPartitions] | None
    """Partitions that the member reports as owned; None if the request does not report them."""


def reconcile(member: ConsumerGroupMember, goal: Goal, *, subscription_changed: bool) -> ConsumerGroupMember:
    """Return the member after the next step of its reconciliation; the member itself if nothing changes."""
    match member.state:
        case MemberState.STABLE if member.member_epoch != goal.epoch:
            return _next_assignment(member, goal, member.member_epoch)
        case MemberState.STABLE:
            return _revoke_unsubscribed(member, goal) if subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS if has_any(member.pending_revocation, goal.owned):
            return _revoke_unsubscribed(member, goal) if subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS | MemberState.UNRELEASED_PARTITIONS:
            return _next_assignment(member, goal, member.member_epoch)
        case MemberState.UNKNOWN:
            if goal.owned is None or any(True for _ in goal.owned):
                raise refused(
                    ErrorCode.fenced_member_epoch,
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return _next_assignment(member, goal, goal.epoch)


def _revoke_unsubscribed(member: ConsumerGroupMember, goal: Goal) -> ConsumerGroupMember:
    """Revoke partitions of topics to which the member no longer subscribes, without waiting for a new target assignment."""
    lost = {
        topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id not in goal.subscribed
    }
    if not lost:
        return member
    kept = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id not in lost}
    pending = dict(member.pending_revocation)
    for topic_id, epochs in lost.items():
        pending[topic_id] = {**pending.get(topic_id, {}), **epochs}
    if not has_any(pending, goal.owned):
        return member.at_epoch(
            member.member_epoch,
            assigned=kept,
            pending_revocation=member.pending_revocation,
            state=member.state,
        )
    return member.at_epoch(
        member.member_epoch,
        assigned=kept,
        pending_revocation=pending,
        state=MemberState.UNREVOKED_PARTITIONS,
    )


class _Difference(NamedTuple):
    """The difference between the current and the target assignment of a member.

    ``has_unreleased``: whether another member still has a partition of the target assignment.
    """

    kept: dict[UUID, dict[int, int]]
    revoked: AssignedPartitions
    gained: dict[UUID, list[int]]
    has_unreleased: bool


def _difference(member: ConsumerGroupMember, goal: Goal) -> _Difference:
    difference = _Difference({}, {}, {}, False)
    unreleased = False
    revoked: dict[UUID, dict[int, int]] = {}
    for topic_id in dict.fromkeys((*goal.target, *member.assigned)):
        target = goal.target.get(topic_id, frozenset()) if topic_id in goal.subscribed else frozenset()
        current = member.assigned.get(topic_id, {})
        kept = {index: epoch for index, epoch in current.items() if index in target}
        lost = {index: epoch for index, epoch in current.items() if index not in target}
        gained = []
        for index in sorted(target - kept.keys()):
            others = goal.owner_epoch(topic_id, index) != UNOWNED
            if others and not has(member.pending_revocation, topic_id, index):
                unreleased = True
            else:
                gained.append(index)
        if kept:
            difference.kept[topic_id] = kept
        if lost:
            revoked[topic_id] = lost
        if gained:
            difference.gained[topic_id] = gained
    return difference._replace(revoked=revoked, has_unreleased=unreleased)


def _next_assignment(member: ConsumerGroupMember, goal: Goal, epoch: int) -> ConsumerGroupMember:
    difference = _difference(member, goal)
    if difference.revoked and has_any(difference.revoked, goal.owned):
        return member.at_epoch(
            epoch,
            assigned=difference.kept,
            pending_revocation=difference.revoked,
            state=MemberState.UNREVOKED_PARTITIONS,
        )
    assigned = difference.kept
    for topic_id, indexes in difference.gained.items():
        assigned.setdefault(topic_id, {}).update(dict.fromkeys(indexes, goal.epoch))
    return member.at_epoch(
        goal.epoch,
        assigned={topic_id: dict(sorted(epochs.items())) for topic_id, epochs in assigned.items()},
        pending_revocation=NO_PARTITIONS,
        state=MemberState.UNRELEASED_PARTITIONS if difference.has_unreleased else MemberState.STABLE,
    )
