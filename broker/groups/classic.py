"""The state machine of a classic group. Its events are requests and finished appends; its effects are responses and appends.

Pure: the group is changed in place, time is an argument, and the required actions are returned as a list of effects, which
``broker.groups.shard`` carries out in order. The rules are those of Kafka's ``GroupMetadataManager`` for classic groups:
KIP-62 (session and rebalance timeouts), KIP-134 (initial delay), KIP-345 and KIP-814 (static members), KIP-394 (a client
gets a member id before it becomes a member), KIP-800 (reasons).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.groups import joining, rebalance
from broker.groups.effects import (
    JOIN_TIMER,
    SYNC_TIMER,
    Answer,
    Append,
    Assigned,
    Cancel,
    Created,
    Effect,
    Emptied,
    Replaced,
)
from broker.groups.group import ClassicGroup, ClassicGroupConfig, ClassicGroupState
from broker.groups.members import NO_ASSIGNMENT
from broker.groups.rebalance import Out, rearm_session, session
from broker.groups.replies import join_error, sync_accepted, sync_error
from protocol.errors import NONE, ErrorCode
from protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from protocol.messages.sync_group import SyncGroupRequest

Joiner = joining.Joiner
join = joining.join

NO_MEMBER_ID: Final = ""


def create(group_id: str, config: ClassicGroupConfig, now_ms: int) -> tuple[ClassicGroup, list[Effect]]:
    """Create an empty group; the returned effect appends the group's first record, which has no protocol type."""
    group = ClassicGroup(group_id, config, state_since_ms=now_ms)
    return group, [Append(group.record(), Created())]


# -- SyncGroup ----------------------------------------------------------------------------------------------------


def sync(group: ClassicGroup, request: SyncGroupRequest, token: object, now_ms: int) -> list[Effect]:
    """Process a SyncGroup: a member requests its assignment, the leader also sends the assignments of all members."""
    error = _sync_refusal(group, request)
    if error is not NONE:
        return [Answer(token, sync_error(error))]
    out: Out = []
    member = group.members[request.member_id]
    group.pending_syncs.discard(member.member_id)
    if not group.pending_syncs:
        out.append(Cancel(SYNC_TIMER))
    if group.state is ClassicGroupState.STABLE:
        out.append(Answer(token, sync_accepted(group, member)))
        return out
    if member.syncing is not None:
        out.append(Answer(member.syncing, sync_error(ErrorCode.rebalance_in_progress)))
    member.syncing = token
    if member.member_id == group.leader and group.assigned_generation != group.generation:
        group.assigned_generation = group.generation
        given = {each.member_id: bytes(each.assignment) for each in request.assignments}
        # A member that is missing in the leader's assignments gets an empty one, without an error.
        assignments = {each.member_id: given.get(each.member_id, NO_ASSIGNMENT) for each in group.members}
        out.append(Append(group.record(assignments), Assigned(group.generation, assignments)))
    return out


def _sync_refusal(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    if group.state is ClassicGroupState.EMPTY:
        return ErrorCode.unknown_member_id
    error = _check_member(group, request.member_id, request.group_instance_id, request.generation_id)
    if error is not NONE:
        return error
    if _differs(request.protocol_type, group.protocol_type) or _differs(
        request.protocol_name, group.protocol_name
    ):
        return ErrorCode.inconsistent_group_protocol
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return ErrorCode.rebalance_in_progress
    return NONE


def _differs(asked: str | None, actual: str | None) -> bool:
    return asked is not None and actual is not None and asked != actual


def _check_member(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """Check member id, instance id and generation of a member's request, in Kafka's order. Returns NONE or the error."""
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.coordinator_not_available
    error = group.members.check(member_id, instance_id)
    if error is NONE and generation != group.generation:
        return ErrorCode.illegal_generation
    return error


# -- Heartbeat and LeaveGroup -------------------------------------------------------------------------------------


def heartbeat(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ErrorCode, list[Effect]]:
    """Process a Heartbeat: check the member and restart its session.

    Returns (error, effects). The error is REBALANCE_IN_PROGRESS in PreparingRebalance, but NONE in CompletingRebalance,
    in which clients already send heartbeats while they wait for the SyncGroup response.
    """
    error = _check_member(group, member_id, instance_id, generation)
    if error is not NONE:
        return error, []
    out: Out = []
    rearm_session(group.members[member_id], out)
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return ErrorCode.rebalance_in_progress, out
    return NONE, out


def leave(group: ClassicGroup, leaving: Sequence[MemberIdentity], token: object, now_ms: int) -> list[Effect]:
    """Process a LeaveGroup that a member or an administrator has sent.

    If the group becomes empty, the response is sent once the record of the empty group is committed.
    """
    if group.state is ClassicGroupState.DEAD:
        return [Answer(token, LeaveGroupResponse(error_code=ErrorCode.coordinator_not_available))]
    out: Out = []
    results = [
        MemberResponse(
            member_id=identity.member_id,
            group_instance_id=identity.group_instance_id,
            error_code=_leave_one(group, identity, out),
        )
        for identity in leaving
    ]
    if any(result.error_code == NONE for result in results):
        if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
            rebalance.prepare_rebalance(group, now_ms, out)
        else:
            rebalance.maybe_complete_join(group, now_ms, out)
    out.append(Answer(token, LeaveGroupResponse(members=results)))
    return out


def _leave_one(group: ClassicGroup, identity: MemberIdentity, out: Out) -> ErrorCode:
    member_id = identity.member_id
    if not member_id and identity.group_instance_id is not None:
        # A request of an administrator has only the instance id.
        member_id = group.members.static_id(identity.group_instance_id) or NO_MEMBER_ID
    if member_id in group.pending_joins:
        group.remove(member_id)
        out.append(Cancel(session(member_id)))
        return NONE
    error = group.members.check(member_id, identity.group_instance_id)
    if error is NONE:
        rebalance.remove_member(group, group.members[member_id], out)
    return error


# -- Offsets ------------------------------------------------------------------------------------------------------


def commit(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, *, transactional: bool
) -> tuple[ErrorCode, list[Effect]]:
    """Check whether a client may commit offsets. Returns (NONE or the error, effects).

    A commit of a member outside of a transaction also restarts the session of the member.
    """
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.coordinator_not_available, []
    if generation < 0 and group.state is ClassicGroupState.EMPTY:
        # A consumer with manual partition assignment, or an administrator.
        return NONE, []
    if generation >= 0 or member_id or instance_id is not None:
        error = _check_member(group, member_id, instance_id, generation)
        if error is not NONE:
            return error, []
    elif not transactional:
        return ErrorCode.unknown_member_id, []
    if transactional:
        # Older TxnOffsetCommits have no member; the group's state does not refuse a transactional commit (KIP-447).
        return NONE, []
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        return ErrorCode.rebalance_in_progress, []
    out: Out = []
    rearm_session(group.members[member_id], out)
    return NONE, out


# -- Deletion -----------------------------------------------------------------------------------------------------


def deletable(group: ClassicGroup) -> ErrorCode:
    """Check whether DeleteGroups may remove the group. Returns NONE or the error."""
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.group_id_not_found
    return NONE if group.state is ClassicGroupState.EMPTY else ErrorCode.non_empty_group


def offsets_deletable(group: ClassicGroup) -> ErrorCode:
    """Check if OffsetDelete may remove offsets: members must use protocol type "consumer". Returns NONE or the error."""
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.group_id_not_found
    if group.state is not ClassicGroupState.EMPTY and not group.speaks_consumer_protocol:
        return ErrorCode.non_empty_group
    return NONE


def fail_and_unload(group: ClassicGroup, error: ErrorCode, now_ms: int) -> list[Effect]:
    """Move the group to Dead and fail its waiting requests with ``error``.

    Called when the group is deleted, its first record is not committed, or this node stops leading its partition.
    """
    out: Out = [Cancel(session(pending)) for pending in group.pending_joins]
    for member in group.members:
        rebalance.answer_join(group, member, join_error(member.member_id, error), out)
        if member.syncing is not None:
            out.append(Answer(member.syncing, sync_error(error)))
            member.syncing = None
        out.append(Cancel(session(member.member_id)))
    out += (Cancel(JOIN_TIMER), Cancel(SYNC_TIMER))
    group.last_append = None
    group.move_to(ClassicGroupState.DEAD, now_ms)
    return out


def begin_rebalance(group: ClassicGroup, now_ms: int) -> list[Effect]:
    """Start a rebalance of a group that was a consumer group until now, so that its members join again."""
    out: Out = []
    rebalance.prepare_rebalance(group, now_ms, out)
    return out


# -- Appends ------------------------------------------------------------------------------------------------------


def on_append_committed(group: ClassicGroup, append: Append, error: ErrorCode, now_ms: int) -> list[Effect]:
    """Process an append that was committed (``error`` is NONE) or has failed (``error`` is the error for clients)."""
    if error is NONE:
        group.written = append.value
        # An older append may be committed after a newer one has failed.
        group.unwritten = group.unwritten and append.value.generation != group.generation
    if group.state is ClassicGroupState.DEAD:
        return []
    out: Out = []
    match append.purpose:
        case Created() if error is not NONE:
            # The group does not exist, so the members that wait in it have to join again.
            return fail_and_unload(group, error, now_ms)
        case Emptied() if error is not NONE:
            # A restart restores the last generation from the log without live members; their sessions time out.
            group.unwritten = True
        case Assigned() as assigned:
            _assigned(group, assigned, error, now_ms, out)
        case Replaced() as replaced:
            joining.replacement_stored(group, replaced, error, out)
        case Created() | Emptied():
            pass
    return out


def on_append_late(group: ClassicGroup, append: Append, error: ErrorCode, now_ms: int) -> list[Effect]:
    """Fail the requests that wait for an append that was not committed in time. The record may still be committed later."""
    out: Out = []
    match append.purpose:
        case Assigned() as assigned if group.state is not ClassicGroupState.DEAD:
            _assigned(group, assigned, error, now_ms, out)
        case Replaced() as replaced if group.state is not ClassicGroupState.DEAD:
            joining.replacement_stored(group, replaced, error, out)
        case _:
            pass
    return out


def _assigned(group: ClassicGroup, assigned: Assigned, error: ErrorCode, now_ms: int, out: Out) -> None:
    if group.state is not ClassicGroupState.COMPLETING_REBALANCE or group.generation != assigned.generation:
        return  # the next rebalance has begun in the meantime, and has responded to the waiting requests
    if error is not NONE:
        rebalance.drop_assignments(group, error, out)
        rebalance.prepare_rebalance(group, now_ms, out)
        return
    for member in group.members:
        member.assignment = assigned.assignments.get(member.member_id, NO_ASSIGNMENT)
    rebalance.give_assignments(group, out)
    group.move_to(ClassicGroupState.STABLE, now_ms)
