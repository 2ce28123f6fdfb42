"""LeaveGroup: remove members from a group, at their own request or an administrator's.

From KIP-345 (v3) on, a request has several members, by member id or instance id, and the response a result for each; KIP-800
(v5) adds a reason. Before v3 a request has one member, whose result is the top-level error.
"""

from __future__ import annotations

from typing import Final

from broker.node.context import RequestContext
from broker.requests.api import api
from protocol.errors import NONE, ErrorCode
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

MANY_MEMBERS_SINCE: Final = 3


@api(key=13, versions=range(6))
async def leave_group(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    if not context.authorize("READ", "GROUP", request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.group_authorization_failed)
    if context.api_version >= MANY_MEMBERS_SINCE:
        return await context.node.groups.leave(request.group_id, request.members)
    leaving = [MemberIdentity(member_id=request.member_id)]
    response = await context.node.groups.leave(request.group_id, leaving)
    if response.error_code == NONE and response.members:
        return LeaveGroupResponse(error_code=response.members[0].error_code)
    return response
