"""Which clients may send requests about delegation tokens: authenticated ones that did not use a token to authenticate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.principals import ANONYMOUS

if TYPE_CHECKING:
    from broker.node.context import RequestContext


def allows_token_requests(context: RequestContext) -> bool:
    """Whether the client may send token requests (``KafkaApis.allowTokenRequests``): over SSL with a certificate only."""
    match context.listener.security_protocol:
        case "PLAINTEXT":
            return False
        case "SSL" if context.principal == ANONYMOUS:
            return False
    return not context.client.by_token
