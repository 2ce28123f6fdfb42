"""The rebalance of a classic group: join phase, sync phase, and the removal of members. Pure.

Each function changes the group and adds effects to ``out``. The steps of one rebalance:

    prepare -> (all joined, or the timeout has passed) -> complete_join -> SyncGroup of the leader -> Append -> Stable
"""

from __future__ import annotations

from broker.groups.effects import (
    JOIN_TIMER,
    SYNC_TIMER,
    Answer,
    Append,
    Arm,
    Cancel,
    Effect,
    Emptied,
    Timed,
    Timer,
)
from broker.groups.group import ClassicGroup, ClassicGroupState
from broker.groups.members import NO_ASSIGNMENT, Member
from broker.groups.replies import join_accepted, join_error, sync_accepted, sync_error
from protocol.errors import NONE, ErrorCode
from protocol.messages.join_group import JoinGroupResponse

Out = list[Effect]


def session(member_id: str) -> Timer:
    return Timer(Timed.SESSION, member_id)


def rearm_session(member: Member, out: Out) -> None:
    out.append(Arm(session(member.member_id), member.session_timeout_ms))


def rebalance_or_complete_join(group: ClassicGroup, now_ms: int, out: Out) -> None:
    """Start a rebalance, or complete the join phase if all have joined, after a member was added, changed or removed."""
    if group.can_rebalance:
        prepare_rebalance(group, now_ms, out)
    else:
        maybe_complete_join(group, now_ms, out)


def prepare_rebalance(group: ClassicGroup, now_ms: int, out: Out) -> None:
    """Start a rebalance, in which all members must join again."""
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        drop_assignments(group, ErrorCode.rebalance_in_progress, out)
    group.pending_syncs.clear()
    out.append(Cancel(SYNC_TIMER))
    is_initial = group.state is ClassicGroupState.EMPTY
    group.move_to(ClassicGroupState.PREPARING_REBALANCE, now_ms)
    if is_initial:
        # It is unknown how many members a new group will have, so further members get time to join (KIP-134).
        delay_ms = group.config.initial_rebalance_delay_ms
        group.new_member_added = False
        group.initial_delay_ms = delay_ms
        group.initial_remaining_ms = max(group.members.rebalance_timeout_ms - delay_ms, 0)
        out.append(Arm(JOIN_TIMER, delay_ms))
    elif group.all_have_joined:
        complete_join(group, now_ms, out)
    else:
        out.append(Arm(JOIN_TIMER, group.members.rebalance_timeout_ms))


def maybe_complete_join(group: ClassicGroup, now_ms: int, out: Out) -> None:
    if (
        group.state is not ClassicGroupState.PREPARING_REBALANCE
        or group.previous_state is ClassicGroupState.EMPTY
    ):
        return
    if group.all_have_joined:
        complete_join(group, now_ms, out)


def complete_join(group: ClassicGroup, now_ms: int, out: Out) -> None:
    """End the join phase and remove members that have not joined, except for static members (KIP-345)."""
    out.append(Cancel(JOIN_TIMER))
    for member in group.members:
        if member.joining is None and not member.is_static:
            group.remove(member.member_id)
            out.append(Cancel(session(member.member_id)))
    if not _elect_joined_leader(group):
        if group.members:
            # No member has joined, but static members remain: wait until they join or their sessions time out.
            out.append(Arm(JOIN_TIMER, group.members.rebalance_timeout_ms))
            return
        group.start_generation(now_ms)
        out.append(Append(group.record(), Emptied()))
        return
    group.start_generation(now_ms)
    for member in group.members:
        answer_join(group, member, join_accepted(group, member.member_id), out)
        rearm_session(member, out)
        member.is_new = False
        group.pending_syncs.add(member.member_id)
    out.append(Arm(SYNC_TIMER, group.members.rebalance_timeout_ms))


def _elect_joined_leader(group: ClassicGroup) -> bool:
    """If the leader has not joined, elect the first member that has joined. Returns False if no member has joined."""
    if group.leader is None:
        return False
    if group.members[group.leader].joining is not None:
        return True
    joined = next((member.member_id for member in group.members if member.joining is not None), None)
    if joined is None:
        return False
    group.leader = joined
    return True


def remove_member(group: ClassicGroup, member: Member, out: Out) -> None:
    """Remove a member and fail its waiting requests, so that its client, if it is still alive, joins again."""
    answer_join(group, member, join_error("", ErrorCode.unknown_member_id), out)
    if member.syncing is not None:
        out.append(Answer(member.syncing, sync_error(ErrorCode.unknown_member_id)))
        member.syncing = None
    group.remove(member.member_id)
    out.append(Cancel(session(member.member_id)))


def answer_join(group: ClassicGroup, member: Member, response: JoinGroupResponse, out: Out) -> None:
    token = group.members.await_join(member, None)
    if token is not None:
        out.append(Answer(token, response))


def drop_assignments(group: ClassicGroup, error: ErrorCode, out: Out) -> None:
    for member in group.members:
        member.assignment = NO_ASSIGNMENT
    _answer_syncs(group, error, out)


def give_assignments(group: ClassicGroup, out: Out) -> None:
    _answer_syncs(group, NONE, out)


def _answer_syncs(group: ClassicGroup, error: ErrorCode, out: Out) -> None:
    for member in group.members:
        if member.syncing is None:
            continue
        response = sync_error(error) if error is not NONE else sync_accepted(group, member)
        out.append(Answer(member.syncing, response))
        member.syncing = None
        # The session did not run while the member waited.
        rearm_session(member, out)
