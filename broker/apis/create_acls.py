"""CreateAcls, without an authorizer: SECURITY_DISABLED for each."""

from __future__ import annotations

from broker.node.context import RequestContext
from broker.requests.api import api
from protocol.errors import ErrorCode
from protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


@api(key=30, versions=range(1, 4))
def create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[
            AclCreationResult(
                error_code=ErrorCode.security_disabled, error_message="No Authorizer is configured."
            )
            for _ in request.creations
        ]
    )
