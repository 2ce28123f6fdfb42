"""SyncGroup: distribute the assignments of a classic group. The leader sends all of them, and each member receives its own.

KIP-345 (v3) adds static members; KIP-559 (v5) the protocol type and name, which must be those of the group. The
response waits until the leader has sent the assignments.
"""

from __future__ import annotations

from typing import Final

from broker.node.context import RequestContext
from broker.requests.api import api
from protocol.errors import ErrorCode
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_SINCE: Final = 5


@api(key=14, versions=range(6))
async def sync_group(request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= PROTOCOL_SINCE and not names_protocol:
        return SyncGroupResponse(error_code=ErrorCode.inconsistent_group_protocol)
    if not context.authorize("READ", "GROUP", request.group_id):
        return SyncGroupResponse(error_code=ErrorCode.group_authorization_failed)
    return await context.node.groups.sync(request)
