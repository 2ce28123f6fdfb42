"""ExpireDelegationToken: a PLAINTEXT listener takes no such request (KIP-48)."""

from __future__ import annotations

from broker.node.context import RequestContext
from broker.requests.api import api
from protocol.errors import ErrorCode
from protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

NO_TIME = -1


@api(key=40, versions=range(1, 3))
def expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    error = ErrorCode.delegation_token_request_not_allowed
    return ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=NO_TIME)
