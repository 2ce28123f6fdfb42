"""JoinGroup: a member wants to be in the next generation of a group.

KIP-62 (v1) adds the rebalance timeout; KIP-394 (v4) has new members come twice, with an id the second time; KIP-345 (v5)
static members; KIP-559 (v7) tells the protocol's type, and its name may be null; KIP-800 (v8) carries a reason; KIP-814
(v9) lets a static leader that came back skip the assignment. The response waits until all members have joined.
"""

from __future__ import annotations

from typing import Final

from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.authorization import describable_topics
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

NULL_PROTOCOL_NAME_SINCE: Final = 7


@api(key=11, versions=range(10))
async def join_group(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    if context.authorize("READ", "GROUP", request.group_id):
        response = await context.node.groups.join(
            request, context.client_id, context.peer, context.api_version, describable_topics(context)
        )
    else:
        response = JoinGroupResponse(error_code=ErrorCode.group_authorization_failed)
    if response.protocol_name is None and context.api_version < NULL_PROTOCOL_NAME_SINCE:
        response.protocol_name = ""
    return response
