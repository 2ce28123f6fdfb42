"""CreateDelegationToken: a PLAINTEXT listener takes no such request (KIP-48).

v2 is flexible; v3 tells who asked for the token of another (KIP-373).
"""

from __future__ import annotations

from broker.node.context import RequestContext
from broker.requests.api import api
from protocol.errors import ErrorCode
from protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

NO_TIME = -1


@api(key=38, versions=range(1, 4))
def create_delegation_token(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    kind, _, name = context.principal.partition(":")
    owner = (kind, name)
    if request.owner_principal_name:
        owner = (request.owner_principal_type or "", request.owner_principal_name)
    return CreateDelegationTokenResponse(
        error_code=ErrorCode.delegation_token_request_not_allowed,
        principal_type=owner[0],
        principal_name=owner[1],
        token_requester_principal_type=kind,
        token_requester_principal_name=name,
        issue_timestamp_ms=NO_TIME,
        expiry_timestamp_ms=NO_TIME,
        max_timestamp_ms=NO_TIME,
    )
