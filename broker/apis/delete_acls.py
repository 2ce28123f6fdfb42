"""DeleteAcls, without an authorizer: SECURITY_DISABLED for each filter."""

from __future__ import annotations

from broker.node.context import RequestContext
from broker.requests.api import api
from protocol.errors import ErrorCode
from protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


@api(key=31, versions=range(1, 4))
def delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_code=ErrorCode.security_disabled, error_message="No Authorizer is configured."
            )
            for _ in request.filters
        ]
    )
