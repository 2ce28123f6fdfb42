"""JoinGroup: join the next generation of a classic group. The response waits until all members have joined.

KIP-62 (v1) adds the rebalance timeout; KIP-394 (v4) makes new members join twice, the second time with the id that they got;
KIP-345 (v5) adds static members; KIP-559 (v7) the protocol type in the response, where the protocol name may be null;
KIP-800 (v8) a reason; KIP-814 (v9) lets a static leader that rejoins skip the assignment.
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
