"""DeleteGroups: delete groups without members, with all their offsets (KIP-229).

v3 adds error messages (KIP-1331), which Apache Kafka sets for streams groups only.
"""

from __future__ import annotations

from broker.loop.coroutines import fork
from broker.node.context import RequestContext
from broker.requests.api import api
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


@api(key=42, versions=range(4))
async def delete_groups(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    names = list(dict.fromkeys(request.groups_names))
    allowed: list[str] = []
    refused: list[str] = []
    for name in names:
        (allowed if context.authorize("DELETE", "GROUP", name) else refused).append(name)
    groups, life = context.node.groups, context.node.life
    deleting = [(name, fork(groups.delete(name), life)) for name in allowed]
    results = [DeletableGroupResult(group_id=name, error_code=await error) for name, error in deleting]
    results += [
        DeletableGroupResult(group_id=name, error_code=ErrorCode.group_authorization_failed)
        for name in refused
    ]
    return DeleteGroupsResponse(results=results)
