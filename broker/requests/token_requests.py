"""Which clients may send requests about delegation tokens: those that authenticated, and not with a delegation token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.principals import ANONYMOUS

if TYPE_CHECKING:
    from broker.node.context import RequestContext


def allows_token_requests(context: RequestContext) -> bool:
    """Whether the client may send token requests (``KafkaApis.allowTokenRequests``): not on a PLAINTEXT listener, not over
    SSL without a client certificate, and not after authentication by token."""
    match context.listener.security_protocol:
        case "PLAINTEXT":
            return False
        case "SSL" if context.principal == ANONYMOUS:
            return False
    return not context.client.by_token
