"""Expiry of a classic group's timers: the session of a member, the join phase, the sync phase. Pure."""

from __future__ import annotations

from broker.groups.effects import JOIN_TIMER, Arm, Cancel, Effect, Timed, Timer
from broker.groups.group import ClassicGroup, ClassicGroupState
from broker.groups.rebalance import (
    Out,
    complete_join,
    prepare_rebalance,
    rearm_session,
    rebalance_or_complete_join,
    remove_member,
    session,
)


def loaded(group: ClassicGroup, now_ms: int) -> list[Effect]:
    """Start a full session for each member of a group that was just loaded, and a rebalance if the group is too large."""
    out: Out = []
    for member in group.members:
        rearm_session(member, out)
    if len(group.members) > group.config.group_size_max:
        prepare_rebalance(group, now_ms, out)
    return out


def expired(group: ClassicGroup, timer: Timer, now_ms: int) -> list[Effect]:
    """Process a timer that has fired."""
    out: Out = []
    if group.state is ClassicGroupState.DEAD:
        return out
    if timer.what is Timed.JOIN:
        _join_time_over(group, now_ms, out)
    elif timer.what is Timed.SYNC:
        _sync_time_over(group, now_ms, out)
    else:
        _session_over(group, timer.member_id, now_ms, out)
    return out


def _session_over(group: ClassicGroup, member_id: str, now_ms: int, out: Out) -> None:
    """Remove a member that sent no heartbeat within its session timeout, and start a rebalance of the others."""
    if member_id in group.pending_joins:
        group.remove(member_id)
        _complete_join_if_all_are_there(group, now_ms, out)
        return
    member = group.members.get(member_id)
    if member is None or member.may_be_silent:
        # The member waits for a response, which will restart its session.
        return
    remove_member(group, member, out)
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        _complete_join_if_all_are_there(group, now_ms, out)
    else:
        rebalance_or_complete_join(group, now_ms, out)


def _sync_time_over(group: ClassicGroup, now_ms: int, out: Out) -> None:
    """Remove members that joined but sent no SyncGroup in time, so that no idle member stays (``expirePendingSync``)."""
    if (
        group.state not in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE)
        or not group.pending_syncs
    ):
        return
    for member_id in sorted(group.pending_syncs):
        group.remove(member_id)
        out.append(Cancel(session(member_id)))
    prepare_rebalance(group, now_ms, out)


def _join_time_over(group: ClassicGroup, now_ms: int, out: Out) -> None:
    """End the join phase after the join timer, or extend the initial delay while new members keep joining."""
    if group.state is not ClassicGroupState.PREPARING_REBALANCE:
        return
    if (
        group.previous_state is ClassicGroupState.EMPTY
        and group.new_member_added
        and group.initial_remaining_ms
    ):
        group.new_member_added = False
        remaining_ms = group.initial_remaining_ms
        next_delay_ms = min(group.config.initial_rebalance_delay_ms, remaining_ms)
        group.initial_remaining_ms = max(remaining_ms - group.initial_delay_ms, 0)
        group.initial_delay_ms = next_delay_ms
        out.append(Arm(JOIN_TIMER, next_delay_ms))
    else:
        complete_join(group, now_ms, out)


def _complete_join_if_all_are_there(group: ClassicGroup, now_ms: int, out: Out) -> None:
    if group.state is ClassicGroupState.PREPARING_REBALANCE and group.all_have_joined:
        complete_join(group, now_ms, out)
