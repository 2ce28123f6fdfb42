"""Heartbeat: keep a member of a classic group alive, and return whether the group rebalances.

KIP-345 (v3) adds static members.
"""

from __future__ import annotations

from broker.node.context import RequestContext
from broker.requests.api import api
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@api(key=12, versions=range(5))
async def heartbeat(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    if not context.authorize("READ", "GROUP", request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.group_authorization_failed)
    error = await context.node.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=error)
