"""DescribeDelegationToken: the delegation tokens that the client may see, with their HMACs (KIP-48, KIP-373).

v2 is flexible; v3 has the requester of each token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.node.context import RequestContext
from broker.requests.api import api
from broker.requests.token_requests import allows_token_requests
from protocol.errors import NONE, ErrorCode
from protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

if TYPE_CHECKING:
    from broker.metadata.delegation_tokens import Token


@api(key=41, versions=range(1, 4))
def describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    control = context.node.metadata.token_control
    if not allows_token_requests(context):
        return DescribeDelegationTokenResponse(error_code=ErrorCode.delegation_token_request_not_allowed)
    if not control.is_enabled:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.delegation_token_auth_disabled)
    owners = None
    if request.owners is not None:
        owners = {f"{each.principal_type}:{each.principal_name}" for each in request.owners}
    found = control.describe(context.principal, owners, context.authorize)
    tokens = [_described(token, control.hmac_of(token.token_id)) for token in found]
    return DescribeDelegationTokenResponse(error_code=NONE, tokens=tokens)


def _described(token: Token, hmac: bytes) -> DescribedDelegationToken:
    owner_type, _, owner_name = token.owner.partition(":")
    requester_type, _, requester_name = token.requester.partition(":")
    renewers = []
    for renewer in token.renewers:
        kind, _, name = renewer.partition(":")
        renewers.append(DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name))
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issue_timestamp_ms,
        expiry_timestamp=token.expiration_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        token_id=token.token_id,
        hmac=hmac,
        renewers=renewers,
    )
