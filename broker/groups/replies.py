"""Responses of a classic group to JoinGroup and SyncGroup. Pure."""

from __future__ import annotations

from broker.groups.group import ClassicGroup
from broker.groups.members import Member
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from protocol.messages.sync_group import SyncGroupResponse


def join_error(member_id: str, error: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(member_id=member_id, error_code=error)


def join_accepted(
    group: ClassicGroup, member_id: str, *, leader: str | None = None, skip_assignment: bool = False
) -> JoinGroupResponse:
    """Return the successful JoinGroup response for the current generation. Only the leader's response lists the members."""
    leader = group.leader if leader is None else leader
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=_members_for_leader(group) if leader == member_id else (),
    )


def _members_for_leader(group: ClassicGroup) -> tuple[JoinGroupResponseMember, ...]:
    assert group.protocol_name is not None
    return tuple(
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            metadata=member.metadata(group.protocol_name),
        )
        for member in group.members
    )


def sync_error(error: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error)


def sync_accepted(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )
