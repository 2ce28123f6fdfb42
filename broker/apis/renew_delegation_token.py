"""RenewDelegationToken: a PLAINTEXT listener takes no such request (KIP-48)."""

from __future__ import annotations

from broker.node.context import RequestContext
from broker.requests.api import api
from protocol.errors import ErrorCode
from protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

NO_TIME = -1


@api(key=39, versions=range(1, 3))
def renew_delegation_token(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    error = ErrorCode.delegation_token_request_not_allowed
    return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=NO_TIME)
