"""Which clients may ask about delegation tokens: those that have proved who they are, and not by a token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.security.principals import ANONYMOUS

if TYPE_CHECKING:
    from broker.node.context import RequestContext


def allows_token_requests(context: RequestContext) -> bool:
    """As ``KafkaApis.allowTokenRequests``: TLS alone proves the identity of a client only if it has a certificate."""
    match context.listener.security_protocol:
        case "PLAINTEXT":
            return False
        case "SSL" if context.principal == ANONYMOUS:
            return False
    return not context.client.by_token
