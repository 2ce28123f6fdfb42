"""DeleteGroups: groups without members, and all their offsets (KIP-229).

No version has changed anything but the encoding.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence

from broker.groups.waiting import all_of
from broker.node.context import RequestContext
from broker.requests.api import api
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


@api(key=42, versions=range(3))
def delete_groups(
    request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse | Future[DeleteGroupsResponse]:
    names = list(dict.fromkeys(request.groups_names))
    allowed: list[str] = []
    refused: list[str] = []
    for name in names:
        (allowed if context.authorize("DELETE", "GROUP", name) else refused).append(name)

    def finish(errors: Sequence[ErrorCode]) -> DeleteGroupsResponse:
        results = [
            DeletableGroupResult(group_id=name, error_code=error)
            for name, error in zip(allowed, errors, strict=True)
        ]
        results += [
            DeletableGroupResult(group_id=name, error_code=ErrorCode.group_authorization_failed)
            for name in refused
        ]
        return DeleteGroupsResponse(results=results)

    return all_of([context.node.groups.delete(name) for name in allowed], finish)
