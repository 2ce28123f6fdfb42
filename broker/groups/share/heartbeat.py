"""Handling of ShareGroupHeartbeat: joining, session, group epoch, assignment, partitions to initialize (KIP-932). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from broker.groups.consumer.assignments import TargetAssignment
from broker.groups.consumer.context import Client, Decision, member_of, refused, session_timer
from broker.groups.consumer.heartbeat import check_text
from broker.groups.consumer.member import LEAVE_EPOCH
from broker.groups.consumer.targets import Target
from broker.groups.consumer.topics import metadata_hash, topic_ids
from broker.groups.effects import Arm
from broker.groups.records import LogRecord
from broker.groups.share import records
from broker.groups.share.context import ShareContext, live_group
from broker.groups.share.fencing import fence
from broker.groups.share.group import ShareGroup
from broker.groups.share.initializing import initialize
from broker.groups.share.member import ShareGroupMember
from broker.groups.share.targets import update_target
from protocol.errors import ErrorCode
from protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from protocol.named_tuple import NamedTuple


def check_request(request: ShareGroupHeartbeatRequest) -> None:
    """Raise `Refused` if a request is invalid by itself (``throwIfShareGroupHeartbeatRequestIsInvalid``)."""
    check_text(request.member_id, "MemberId")
    check_text(request.group_id, "GroupId")
    check_text(request.rack_id, "RackId")
    if request.member_epoch == 0 and not request.subscribed_topic_names:
        raise refused(ErrorCode.invalid_request, "SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVE_EPOCH:
        raise refused(ErrorCode.invalid_request, "MemberEpoch is invalid.")


def heartbeat(
    context: ShareContext, found: object | None, request: ShareGroupHeartbeatRequest, client: Client
) -> Decision[ShareGroupHeartbeatResponse]:
    """Return the decision on a request. ``found`` is the group that the request names. Raises `Refused`."""
    if request.member_epoch == LEAVE_EPOCH:
        group = live_group(found, request.group_id)
        response = ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVE_EPOCH)
        return fence(context, group, member_of(group, request.member_id), response)
    group = _group(found, request)
    old = _member(context, group, request)
    new = _updated(old, request, client)
    decision = Decision(ShareGroupHeartbeatResponse())
    if new is not old:
        decision.records.append(records.member_subscription(group.group_id, new))
    epoch = _update_epoch(context, group, old, new, out=decision.records)
    decision.is_refreshed = epoch.is_refreshed
    target = update_target(
        context, group, epoch.epoch, new, homogeneous=epoch.is_homogeneous, out=decision.records
    )
    new = _reconcile(context, group, new, target, changed=epoch.is_new, out=decision.records)
    decision.timers.append(Arm(session_timer(new.member_id), context.session_timeout_ms))
    decision.response = _response(context, old, new, request)
    initialize(context, group, epoch.epoch, epoch.topics, decision)
    return decision


def _group(found: object | None, request: ShareGroupHeartbeatRequest) -> ShareGroup:
    if found is not None:
        return live_group(found, request.group_id)
    if request.member_epoch == 0:
        return ShareGroup(request.group_id)
    raise refused(ErrorCode.group_id_not_found, f"Share group {request.group_id} not found.")


def _member(
    context: ShareContext, group: ShareGroup, request: ShareGroupHeartbeatRequest
) -> ShareGroupMember:
    member_id, epoch, size_max = request.member_id, request.member_epoch, context.group_size_max
    if len(group.members) >= size_max and member_id not in group.members:
        raise refused(
            ErrorCode.group_max_size_reached,
            f"The share group has reached its maximum capacity of {size_max} members.",
        )
    if epoch == 0:
        return group.members.get(member_id) or ShareGroupMember(member_id=member_id)
    member = member_of(group, member_id)
    # The previous epoch is accepted, too: the response with the present epoch may have been lost.
    if epoch not in (member.member_epoch, member.previous_member_epoch):
        raise refused(ErrorCode.fenced_member_epoch, _wrong_epoch(member, epoch))
    return member


def _wrong_epoch(member: ShareGroupMember, epoch: int) -> str:
    known = f"the one known by the group coordinator ({member.member_epoch})"
    if epoch > member.member_epoch:
        wrong = f"greater member epoch ({epoch}) than {known}"
    else:
        previous = f"it does not match the previous member epoch ({member.previous_member_epoch})"
        wrong = f"smaller member epoch ({epoch}) than {known}, and {previous}"
    return f"The share group member has a {wrong}. The member must abandon all its partitions and rejoin."


def _updated(old: ShareGroupMember, request: ShareGroupHeartbeatRequest, client: Client) -> ShareGroupMember:
    changes: dict[str, object] = {"client_id": client.client_id, "client_host": client.client_host}
    if request.subscribed_topic_names is not None:
        changes["subscribed_topic_names"] = frozenset(request.subscribed_topic_names)
    if request.rack_id is not None:
        changes["rack_id"] = request.rack_id
    return old.evolve(**changes)


class _Epoch(NamedTuple):
    """The group epoch, the group's subscribed topics, and whether all members subscribe to the same topics."""

    epoch: int
    topics: Iterable[str]
    is_homogeneous: bool
    is_new: bool = False
    is_refreshed: bool = False


def _update_epoch(
    context: ShareContext,
    group: ShareGroup,
    old: ShareGroupMember,
    new: ShareGroupMember,
    *,
    out: list[LogRecord],
) -> _Epoch:
    """Return the group epoch after ``new`` has replaced ``old``.

    The epoch is incremented if the member has changed its subscription, the hash of the subscribed topics has changed,
    or initialized partitions are not assigned.
    """
    bump = new.subscribed_topic_names != old.subscribed_topic_names or (
        group.assignment_epoch >= group.epoch and _is_assignment_pending(group)
    )
    if not bump and group.compared_at == context.topics.changes:
        subscriptions = group.subscriptions
        return _Epoch(group.epoch, subscriptions.topics, subscriptions.are_homogeneous(len(group.members)))
    after = group.subscriptions.changed(old, new, {})
    homogeneous = after.are_homogeneous(len(group.members) + (new.member_id not in group.members))
    found_hash = metadata_hash(context.topics, after.topics)
    bump = bump or found_hash != group.metadata_hash
    if bump:
        out.append(records.group_epoch(group.group_id, group.epoch + 1, found_hash))
    return _Epoch(group.epoch + bump, after.topics, homogeneous, is_new=bump, is_refreshed=True)


def _is_assignment_pending(group: ShareGroup) -> bool:
    """Whether the assigned partitions of a subscribed topic differ from its initialized ones."""
    assigned: dict[object, frozenset[int]] = {}
    for target in group.targets.values():
        for topic_id, partitions in target.items():
            assigned[topic_id] = assigned.get(topic_id, frozenset()) | partitions
    return any(
        topic.name in group.subscriptions.topics and assigned.get(topic_id) != topic.partitions
        for topic_id, topic in group.partitions.initialized.items()
    )


def _reconcile(
    context: ShareContext,
    group: ShareGroup,
    member: ShareGroupMember,
    target: Target,
    *,
    changed: bool,
    out: list[LogRecord],
) -> ShareGroupMember:
    """Give the member its target assignment at once: members may share a partition, so that nothing is revoked first."""
    if member.member_epoch == target.epoch and not changed:
        return member
    after = member.evolve(assigned=_subscribed(context, member, target.partitions))
    if member.member_epoch != target.epoch:
        after = after.evolve(member_epoch=target.epoch, previous_member_epoch=member.member_epoch)
    if after is not member:
        out.append(records.current_assignment(group.group_id, after))
    return after


def _subscribed(
    context: ShareContext, member: ShareGroupMember, target: TargetAssignment
) -> TargetAssignment:
    subscribed = topic_ids(context.topics, member.subscribed_topic_names)
    return {topic_id: partitions for topic_id, partitions in target.items() if topic_id in subscribed}


def _response(
    context: ShareContext,
    old: ShareGroupMember,
    new: ShareGroupMember,
    request: ShareGroupHeartbeatRequest,
) -> ShareGroupHeartbeatResponse:
    """Build the response, with the assignment if it has changed, the member joins, or the request has topic names."""
    is_full = request.member_epoch == 0 or request.subscribed_topic_names is not None
    return ShareGroupHeartbeatResponse(
        member_id=new.member_id,
        member_epoch=new.member_epoch,
        heartbeat_interval_ms=context.heartbeat_interval_ms,
        assignment=_assignment(new.assigned) if is_full or old.assigned != new.assigned else None,
    )


def _assignment(assigned: TargetAssignment) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in assigned.items()
        ]
    )
