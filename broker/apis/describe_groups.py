"""DescribeGroups: classic groups and their members.

v3 can include the operations that the client is authorized to do; KIP-345 (v4) shows static members; KIP-1043 (v6) returns
GROUP_ID_NOT_FOUND where older versions return a group in state Dead.
"""

from __future__ import annotations

from typing import Final

from broker.groups.group import ClassicGroup, ClassicGroupState
from broker.groups.members import Member
from broker.node.context import RequestContext
from broker.requests import described_groups
from broker.requests.api import api
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from storage.steps import Steps

GROUP_ID_NOT_FOUND_SINCE: Final = 6


@api(key=15, versions=range(7))
async def describe_groups(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    return await context.node.slices.run(_answer(request, context))


def _answer(request: DescribeGroupsRequest, context: RequestContext) -> Steps[DescribeGroupsResponse]:
    groups = yield from described_groups.describe_groups(
        request.groups, context, _describe, _refused, with_operations=request.include_authorized_operations
    )
    return DescribeGroupsResponse(groups=groups)


def _refused(group_id: str, error: ErrorCode) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error)


def _describe(group_id: str, context: RequestContext) -> DescribedGroup:
    group = context.node.groups.find(group_id)
    if isinstance(group, ClassicGroup):
        return _described(group)
    if isinstance(group, ErrorCode) and group is not ErrorCode.group_id_not_found:
        return DescribedGroup(group_id=group_id, error_code=group)
    missing = DescribedGroup(group_id=group_id, group_state=ClassicGroupState.DEAD.value)
    if context.api_version >= GROUP_ID_NOT_FOUND_SINCE:
        missing.error_code = ErrorCode.group_id_not_found
        is_unknown = isinstance(group, ErrorCode)
        missing.error_message = f"Group {group_id} {'not found' if is_unknown else 'is not a classic group'}."
    return missing


def _described(group: ClassicGroup) -> DescribedGroup:
    """The response entry of a group. It has the protocol and the members' metadata only if the group is Stable."""
    protocol = group.protocol_name if group.state is ClassicGroupState.STABLE else None
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[_member(member, protocol) for member in group.members],
    )


def _member(member: Member, protocol: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol is None else member.metadata(protocol),
        member_assignment=member.assignment,
    )
