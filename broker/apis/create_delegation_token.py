"""CreateDelegationToken: create a delegation token for the requesting user, or for another one (KIP-48, KIP-373).

v2 is flexible; the v3 request can name the owner, and the v3 response has the requester.
"""

from __future__ import annotations

from broker.metadata import ApiError
from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.token_requests import allows_token_requests
from broker.security.principals import ANONYMOUS, USER
from protocol.errors import NONE, ErrorCode
from protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

NO_TIME = -1


@api(key=38, versions=range(1, 4))
async def create_delegation_token(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    requester, control = context.principal, context.node.metadata.token_control
    owner = _owner(request, requester)
    if owner is None:
        # Kafka throws NullPointerException here.
        return _refused(ErrorCode.unknown_server_error, ANONYMOUS, ANONYMOUS)
    if not allows_token_requests(context):
        return _refused(ErrorCode.delegation_token_request_not_allowed, owner, requester)
    if owner != requester and not context.authorize("CREATE_TOKENS", "USER", owner):
        return _refused(ErrorCode.delegation_token_authorization_failed, owner, requester)
    if any(renewer.principal_type != USER for renewer in request.renewers):
        return _refused(ErrorCode.invalid_principal_type, owner, requester)
    renewers = [f"{each.principal_type}:{each.principal_name}" for each in request.renewers]
    response = _of(owner, requester)
    try:
        token = await control.create(owner, requester, renewers, request.max_lifetime_ms)
    except ApiError as refusal:
        response.error_code = refusal.error  # the timestamps stay 0, as in the controller's error response
        return response
    response.error_code = NONE
    response.issue_timestamp_ms = token.issue_timestamp_ms
    response.expiry_timestamp_ms = token.expiration_timestamp_ms
    response.max_timestamp_ms = token.max_timestamp_ms
    response.token_id = token.token_id
    response.hmac = control.hmac_of(token.token_id)
    return response


def _owner(request: CreateDelegationTokenRequest, requester: str) -> str | None:
    """Principal of the token's owner. None if the request has an owner without a principal type."""
    if not request.owner_principal_name:
        return requester
    if request.owner_principal_type is None:
        return None
    return f"{request.owner_principal_type}:{request.owner_principal_name}"


def _of(owner: str, requester: str) -> CreateDelegationTokenResponse:
    owner_type, _, owner_name = owner.partition(":")
    requester_type, _, requester_name = requester.partition(":")
    return CreateDelegationTokenResponse(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
    )


def _refused(error: ErrorCode, owner: str, requester: str) -> CreateDelegationTokenResponse:
    response = _of(owner, requester)
    response.error_code = error
    response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = NO_TIME
    return response
