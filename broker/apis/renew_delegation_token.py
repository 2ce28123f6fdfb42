"""RenewDelegationToken: extend the expiry of a delegation token, up to its maximum lifetime (KIP-48). v2 is flexible."""

from __future__ import annotations

from broker.metadata import ApiError
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.token_requests import allows_token_requests
from protocol.errors import NONE, ErrorCode
from protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

NO_TIME = -1


@api(key=39, versions=range(1, 3))
async def renew_delegation_token(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    if not allows_token_requests(context):
        error = ErrorCode.delegation_token_request_not_allowed
        return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=NO_TIME)
    try:
        expiry_ms = await context.node.metadata.token_control.renew(
            bytes(request.hmac), context.principal, request.renew_period_ms
        )
    except ApiError as refusal:
        return RenewDelegationTokenResponse(error_code=refusal.error)
    return RenewDelegationTokenResponse(error_code=NONE, expiry_timestamp_ms=expiry_ms)
