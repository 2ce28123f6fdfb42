"""Handling of JoinGroup for a classic group. Pure; part of the state machine in ``broker.groups.classic``."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from broker.groups import rebalance
from broker.groups.effects import Answer, Append, Arm, Cancel, Effect, Replaced
from broker.groups.group import ClassicGroup, ClassicGroupState
from broker.groups.members import Member, Protocols, protocols_of
from broker.groups.rebalance import Out, rearm_session, session
from broker.groups.replies import join_accepted, join_error, sync_error
from protocol.errors import NONE, ErrorCode
from protocol.messages.join_group import JoinGroupRequest
from protocol.slotted import slotted

NO_MEMBER_ID: Final = ""
REBALANCE_TIMEOUT_SINCE: Final = 1
MEMBER_ID_REQUIRED_SINCE: Final = 4
SKIP_ASSIGNMENT_SINCE: Final = 9


@slotted(frozen=True, kw_only=True)
class Joiner:
    """A JoinGroup with its client, and a new uuid in case a member id must be assigned."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    api_version: int
    uuid: str

    @classmethod
    def of(
        cls, request: JoinGroupRequest, client_id: str | None, client_host: str, api_version: int, uuid: str
    ) -> Joiner:
        # Before KIP-62 the session timeout was also the rebalance timeout.
        one_timeout = api_version < REBALANCE_TIMEOUT_SINCE
        return cls(
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            client_id=client_id or "",
            client_host=client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.session_timeout_ms if one_timeout else request.rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=protocols_of(request.protocols),
            api_version=api_version,
            uuid=uuid,
        )


def join(group: ClassicGroup, joiner: Joiner, token: object, now_ms: int) -> list[Effect]:
    """Process a JoinGroup; ``token`` identifies the waiting request."""
    out: Out = []
    error = _refusal(group, joiner)
    if error is ErrorCode.group_max_size_reached:
        group.remove(joiner.member_id)
        out.append(Cancel(session(joiner.member_id)))
        out.append(Answer(token, join_error(NO_MEMBER_ID, error)))
    elif error is not NONE:
        out.append(Answer(token, join_error(joiner.member_id, error)))
    elif joiner.member_id:
        _join_known(group, joiner, token, now_ms, out)
    else:
        _join_new(group, joiner, token, now_ms, out)
    return out


def _refusal(group: ClassicGroup, joiner: Joiner) -> ErrorCode:
    """Check the group's size, its state and the protocols of the JoinGroup. Returns NONE or the error."""
    if not _has_room(group, joiner.member_id):
        return ErrorCode.group_max_size_reached
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.coordinator_not_available
    if not group.supports(joiner.protocol_type, frozenset(name for name, _ in joiner.protocols)):
        return ErrorCode.inconsistent_group_protocol
    return NONE


def _has_room(group: ClassicGroup, member_id: str) -> bool:
    """Whether ``group.max.size`` admits the member.

    In PreparingRebalance only members that have joined count, so the members that join last are refused.
    """
    room = group.config.group_size_max
    known = group.members.get(member_id)
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return (known is not None and known.joining is not None) or group.members.awaiting_join < room
    if group.state in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE):
        return known is not None or len(group.members) < room
    return True


def _join_new(group: ClassicGroup, joiner: Joiner, token: object, now_ms: int, out: Out) -> None:
    instance_id = joiner.group_instance_id
    member_id = f"{joiner.client_id if instance_id is None else instance_id}-{joiner.uuid}"
    if instance_id is not None:
        old_id = group.members.static_id(instance_id)
        if old_id is not None:
            _replace_static(group, joiner, token, old_id, member_id, now_ms, out)
            return
    elif joiner.api_version >= MEMBER_ID_REQUIRED_SINCE:
        _give_member_id(group, joiner, token, member_id, out)
        return
    _add_member(group, joiner, token, member_id, now_ms, out)


def _give_member_id(group: ClassicGroup, joiner: Joiner, token: object, member_id: str, out: Out) -> None:
    """Assign a member id and require a second JoinGroup with it (KIP-394).

    Without this second request, a client that disconnects before it gets its id would become a member that never sends
    a heartbeat.
    """
    if len(group.pending_joins) >= group.config.pending_members_max:
        out.append(Answer(token, join_error(NO_MEMBER_ID, ErrorCode.group_max_size_reached)))
        return
    group.pending_joins[member_id] = None
    out.append(Arm(session(member_id), joiner.session_timeout_ms))
    out.append(Answer(token, join_error(member_id, ErrorCode.member_id_required)))


def _add_member(
    group: ClassicGroup,
    joiner: Joiner,
    token: object,
    member_id: str,
    now_ms: int,
    out: Out,
) -> None:
    if (
        group.state is ClassicGroupState.PREPARING_REBALANCE
        and group.previous_state is ClassicGroupState.EMPTY
    ):
        group.new_member_added = True
    if not group.members:
        group.protocol_type = joiner.protocol_type
    group.members.add(
        Member(
            member_id=member_id,
            group_instance_id=joiner.group_instance_id,
            client_id=joiner.client_id,
            client_host=joiner.client_host,
            rebalance_timeout_ms=joiner.rebalance_timeout_ms,
            session_timeout_ms=joiner.session_timeout_ms,
            protocols=joiner.protocols,
            joining=token,
            is_new=True,
        )
    )
    if group.leader is None:
        group.leader = member_id
    group.pending_joins.pop(member_id, None)
    out.append(Arm(session(member_id), group.config.new_member_join_timeout_ms))
    rebalance.rebalance_or_complete_join(group, now_ms, out)


def _join_known(group: ClassicGroup, joiner: Joiner, token: object, now_ms: int, out: Out) -> None:
    member_id = joiner.member_id
    if member_id in group.pending_joins:
        if joiner.group_instance_id is not None:
            # Only dynamic members get pending ids; Kafka fails in the same way.
            out.append(Answer(token, join_error(NO_MEMBER_ID, ErrorCode.unknown_server_error)))
            return
        _add_member(group, joiner, token, member_id, now_ms, out)
        return
    error = group.members.check(member_id, joiner.group_instance_id)
    if error is not NONE:
        out.append(Answer(token, join_error(member_id, error)))
    elif _needs_rebalance(group, joiner):
        _update_member(group, group.members[member_id], joiner, token, out)
        rebalance.rebalance_or_complete_join(group, now_ms, out)
    else:
        # Repeat the response of this generation: the first one may have been lost.
        out.append(Answer(token, join_accepted(group, member_id)))


def _needs_rebalance(group: ClassicGroup, joiner: Joiner) -> bool:
    """Whether the JoinGroup of a known member starts a rebalance.

    In a Stable group every JoinGroup of the leader starts a rebalance, because the leader may have seen new
    partitions.
    """
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return True
    if group.state is ClassicGroupState.STABLE and joiner.member_id == group.leader:
        return True
    return group.members[joiner.member_id].protocols != joiner.protocols


def _update_member(group: ClassicGroup, member: Member, joiner: Joiner, token: object, out: Out) -> None:
    group.members.update(member, joiner.protocols, joiner.rebalance_timeout_ms, joiner.session_timeout_ms)
    superseded = group.members.await_join(member, token)
    if superseded is not None:
        # The client has closed the connection of the earlier request, to which Kafka never responds.
        out.append(Answer(superseded, join_error(member.member_id, ErrorCode.rebalance_in_progress)))


def _replace_static(
    group: ClassicGroup,
    joiner: Joiner,
    token: object,
    old_id: str,
    new_id: str,
    now_ms: int,
    out: Out,
) -> None:
    """Assign a new member id to a static member that has restarted, and fence the old member id (KIP-345)."""
    old = group.members[old_id]
    old_leader = group.leader
    _fence(group, old, out)
    new = replace(old, member_id=new_id, is_new=False)
    _swap_member(group, old_id, new, out)
    _update_member(group, new, joiner, token, out)
    rearm_session(new, out)
    if group.state is ClassicGroupState.STABLE and group.members.select_protocol() == group.protocol_name:
        group.note_subscriptions()
        purpose = Replaced(old, new_id, old_leader, joiner.api_version)
        out.append(Append(group.record(), purpose))
    elif group.state is ClassicGroupState.PREPARING_REBALANCE:
        rebalance.maybe_complete_join(group, now_ms, out)
    else:
        # In CompletingRebalance the leader may be computing an assignment for the old id.
        rebalance.prepare_rebalance(group, now_ms, out)


def _fence(group: ClassicGroup, old: Member, out: Out) -> None:
    rebalance.answer_join(group, old, join_error(old.member_id, ErrorCode.fenced_instance_id), out)
    if old.syncing is not None:
        out.append(Answer(old.syncing, sync_error(ErrorCode.fenced_instance_id)))
        old.syncing = None


def _swap_member(group: ClassicGroup, old_id: str, new: Member, out: Out) -> None:
    group.members.replace(old_id, new)
    if group.leader == old_id:
        group.leader = new.member_id
    if old_id in group.pending_syncs:
        group.pending_syncs.remove(old_id)
        group.pending_syncs.add(new.member_id)
    out.append(Cancel(session(old_id)))


def replacement_stored(group: ClassicGroup, replaced: Replaced, error: ErrorCode, out: Out) -> None:
    """Respond to the JoinGroup of a static member that has returned under a new member id.

    Called when the record with the new id is committed (``error`` is NONE), or when its append has failed.
    """
    member = group.members.get(replaced.new_id)
    if member is None or member.joining is None or group.state is not ClassicGroupState.STABLE:
        return  # a rebalance has begun in the meantime and includes the member
    if error is not NONE:
        response = join_accepted(group, NO_MEMBER_ID, leader=replaced.old_leader)
        response.error_code = error
        rebalance.answer_join(group, member, response, out)
        _swap_member(group, replaced.new_id, replaced.old, out)
        group.note_subscriptions()
        rearm_session(replaced.old, out)
        return
    if replaced.api_version >= SKIP_ASSIGNMENT_SINCE:
        # A leader that came back remains the leader, gets the list of members, and does not compute an assignment.
        skip = group.leader == replaced.new_id
        response = join_accepted(group, replaced.new_id, skip_assignment=skip)
    else:
        # The response names the old id as leader, so the member acts as a follower and computes no assignment.
        response = join_accepted(group, replaced.new_id, leader=replaced.old_leader)
    rebalance.answer_join(group, member, response, out)
