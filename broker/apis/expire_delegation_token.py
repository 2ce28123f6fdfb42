"""ExpireDelegationToken: change the expiry of a delegation token, or expire it now (KIP-48). v2 is flexible."""

from __future__ import annotations

from broker.metadata import ApiError
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.token_requests import allows_token_requests
from protocol.errors import NONE, ErrorCode
from protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

NO_TIME = -1


@api(key=40, versions=range(1, 3))
async def expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    if not allows_token_requests(context):
        error = ErrorCode.delegation_token_request_not_allowed
        return ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=NO_TIME)
    try:
        expiry_ms = await context.node.metadata.token_control.expire(
            bytes(request.hmac), context.principal, request.expiry_time_period_ms
        )
    except ApiError as refusal:
        return ExpireDelegationTokenResponse(error_code=refusal.error)
    return ExpireDelegationTokenResponse(error_code=NONE, expiry_timestamp_ms=expiry_ms)
