"""Handling of ConsumerGroupHeartbeat: joining, session, reported partitions, assignment (KIP-848). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.groups.consumer import records
from broker.groups.consumer.assignments import AssignedPartitions, TopicPartitions
from broker.groups.consumer.context import Client, Context, Decision, R, live_group, refused, session_timer
from broker.groups.consumer.fencing import leave
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import (
    LEAVE_EPOCH,
    NO_REBALANCE_TIMEOUT,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupMember,
    MemberState,
)
from broker.groups.consumer.membership import (
    check_epoch,
    check_size,
    group_to_join,
    joining_member,
    known_member,
)
from broker.groups.consumer.reconciliation import Goal, reconcile
from broker.groups.consumer.subscribing import (
    RegexStatus,
    subscribed_topic_ids,
    update_epoch,
    update_regex,
)
from broker.groups.consumer.targets import Target, update_target
from broker.groups.consumer.timeouts import revoke_by
from broker.groups.effects import Arm, Cancel
from broker.groups.group import ClassicGroupConfig
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)

CLIENT_MEMBER_ID_SINCE: Final = 1
"""First version in which the client chooses its member id (KIP-1082)."""


def check_request(
    request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: tuple[str, ...]
) -> None:
    """Raise `Refused` if a request is invalid by itself (``throwIfConsumerGroupHeartbeatRequestIsInvalid``)."""
    epoch = request.member_epoch
    if api_version >= CLIENT_MEMBER_ID_SINCE or epoch > 0 or epoch == LEAVE_EPOCH:
        check_text(request.member_id, "MemberId")
    check_text(request.group_id, "GroupId")
    check_text(request.instance_id, "InstanceId")
    check_text(request.rack_id, "RackId")
    if epoch == 0:
        _check_join(request)
    elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise refused(ErrorCode.invalid_request, "InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise refused(ErrorCode.invalid_request, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        # Kafka lists the names in the order of a hash set.
        names = ", ".join(sorted(assignors, reverse=True))
        raise refused(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {names}.",
        )


def check_text(text: str | None, name: str) -> None:
    if text is not None and not text.strip():
        raise refused(ErrorCode.invalid_request, f"{name} can't be empty.")


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    message = None
    if request.rebalance_timeout_ms == NO_REBALANCE_TIMEOUT:
        message = "RebalanceTimeoutMs must be provided in first request."
    elif request.topic_partitions is None or request.topic_partitions:
        message = "TopicPartitions must be empty when (re-)joining."
    elif request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        message = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    if message is not None:
        raise refused(ErrorCode.invalid_request, message)


def heartbeat(
    context: Context,
    found: object | None,
    request: ConsumerGroupHeartbeatRequest,
    client: Client,
    config: ClassicGroupConfig,
    *,
    resolving: bool,
) -> Decision[ConsumerGroupHeartbeatResponse]:
    """Return the decision on a request. Raises `Refused`.

    If the client sent no member id, the caller has set a new one in the request. ``found`` is the group that the
    request names. ``resolving``: whether a resolution of the group's regular expressions is already scheduled.
    """
    if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
        return leave(context, live_group(found, request.group_id), config, request)
    decision = Decision(ConsumerGroupHeartbeatResponse())
    if request.member_epoch == 0:
        group = group_to_join(context, request.group_id, found, decision)
        check_size(context, group, request.member_id, request.instance_id)
        old = joining_member(
            group,
            request.member_id,
            request.instance_id,
            decision,
            classic=False,
        )
    else:
        group = _group_of_member(found, request.group_id)
        check_size(context, group, request.member_id, request.instance_id)
        old = known_member(group, request.member_id, request.instance_id)
        check_epoch(old, request.member_epoch, request.topic_partitions)
    new = advance(
        context, group, old, updated_member(old, request, client), request, decision, resolving=resolving
    )
    decision.timers.append(Arm(session_timer(new.member_id), context.settings.session_timeout_ms))
    decision.response = _response(context, old, new, request)
    return decision


def _group_of_member(found: object | None, group_id: str) -> ConsumerGroup:
    if found is None:
        raise refused(ErrorCode.group_id_not_found, f"Consumer group {group_id} not found.")
    return live_group(found, group_id)


def updated_member(
    old: ConsumerGroupMember, request: ConsumerGroupHeartbeatRequest, client: Client
) -> ConsumerGroupMember:
    """Return the member with the fields of the request. Fields that are not set in the request do not change."""
    changes: dict[str, object] = {
        "client_id": client.client_id,
        "client_host": client.client_host,
        "classic": None,
    }
    if request.subscribed_topic_names is not None:
        changes["subscribed_topic_names"] = frozenset(request.subscribed_topic_names)
    if request.rebalance_timeout_ms != NO_REBALANCE_TIMEOUT:
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    for name in ("instance_id", "rack_id", "server_assignor", "subscribed_topic_regex"):
        value = getattr(request, name)
        if value is not None:
            changes[name] = value
    return old.evolve(**changes)


def advance(
    context: Context,
    group: ConsumerGroup,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    request: ConsumerGroupHeartbeatRequest,
    decision: Decision[R],
    *,
    resolving: bool,
) -> ConsumerGroupMember:
    """Add the effects of a member's request to the decision: group epoch, target assignment, reconciliation of the member.

    Returns the member after these effects.
    """
    out = decision.records
    if new is not old:
        out.append(records.member_subscription(group.group_id, new))
    names_changed = new.subscribed_topic_names != old.subscribed_topic_names
    regex = update_regex(context, group, old, new, resolving=resolving, out=out)
    decision.regexes = regex.to_resolve
    bump = (
        names_changed
        or regex.status is RegexStatus.UPDATED_AND_RESOLVED
        or _changes_assignor(context, group, old, new)
    )
    epoch = update_epoch(context, group, old, new, bump=bump, out=out)
    decision.is_refreshed = epoch.is_refreshed
    target = update_target(context, group, epoch.epoch, old, new, homogeneous=epoch.is_homogeneous, out=out)
    changed = names_changed or regex.status is not RegexStatus.UNCHANGED
    return step(context, group, new, target, request.topic_partitions, decision, subscription_changed=changed)


def _changes_assignor(
    context: Context, group: ConsumerGroup, old: ConsumerGroupMember, new: ConsumerGroupMember
) -> bool:
    """Whether the group's assignor changes when the member ``new`` replaces ``old``."""
    if new.server_assignor == old.server_assignor:
        return False
    default = context.settings.assignors[0]
    return (group.preferred_assignor() or default) != (group.preferred_assignor(old, new) or default)


def step(
    context: Context,
    group: ConsumerGroup,
    member: ConsumerGroupMember,
    target: Target,
    owned: Iterable[TopicPartitions] | None,
    decision: Decision[R],
    *,
    subscription_changed: bool,
) -> ConsumerGroupMember:
    """Reconcile a member with its target assignment; a timer limits the time that the member has to revoke partitions.

    Adds records and timers to the decision and returns the changed member.
    """
    if not subscription_changed and member.is_reconciled_to(target.epoch):
        return member
    goal = Goal(
        target.epoch,
        target.partitions,
        subscribed_topic_ids(context, group, member),
        group.owner_epoch,
        owned,
    )
    after = reconcile(member, goal, subscription_changed=subscription_changed)
    if after == member:
        return member
    decision.records.append(records.current_assignment(group.group_id, after))
    if not after.uses_classic_protocol:
        revokes = after.state is MemberState.UNREVOKED_PARTITIONS
        timer = revoke_by(after)
        decision.timers.append(timer if revokes else Cancel(timer.timer))
    return after


def _response(
    context: Context,
    old: ConsumerGroupMember,
    new: ConsumerGroupMember,
    request: ConsumerGroupHeartbeatRequest,
) -> ConsumerGroupHeartbeatResponse:
    """Build the response, with the assignment if it has changed, the member joins, or the request sets all fields."""
    is_full = (
        request.rebalance_timeout_ms != NO_REBALANCE_TIMEOUT
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
    is_told = request.member_epoch == 0 or is_full or old.assigned != new.assigned
    return ConsumerGroupHeartbeatResponse(
        member_id=new.member_id,
        member_epoch=new.member_epoch,
        heartbeat_interval_ms=context.settings.heartbeat_interval_ms,
        assignment=_assignment(new.assigned) if is_told else None,
    )


def _assignment(assigned: AssignedPartitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            ResponseTopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
            for topic_id, epochs in assigned.items()
        ]
    )
