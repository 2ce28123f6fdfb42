"""DescribeDelegationToken: a PLAINTEXT listener takes no such request (KIP-48)."""

from __future__ import annotations

from broker.node.context import RequestContext
from broker.requests.api import api
from protocol.errors import ErrorCode
from protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


@api(key=41, versions=range(1, 4))
def describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=ErrorCode.delegation_token_request_not_allowed)
