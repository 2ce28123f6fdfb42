"""SaslHandshake: the client selects a SASL mechanism (KIP-43). After v0, SASL tokens follow without request headers."""

from __future__ import annotations

from broker.node.context import RequestContext
from broker.requests.api import CloseConnection, api
from broker.security.sasl.authenticator import NAME_CHARACTERS_MAX, NotAuthenticated
from broker.security.sasl.mechanism import NOT_AUTHENTICATED
from protocol.errors import NONE, ErrorCode
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@api(key=17, versions=range(2), allow_before_authentication=True)
async def sasl_handshake(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    authentication = context.client.authentication
    if authentication is None or authentication.is_complete:
        return SaslHandshakeResponse(error_code=ErrorCode.illegal_sasl_state, mechanisms=[])
    try:
        is_enabled = authentication.handshake(request.mechanism, context.api_version)
    except NotAuthenticated as error:
        raise CloseConnection(NOT_AUTHENTICATED, error=str(error)) from None
    if is_enabled:
        return SaslHandshakeResponse(error_code=NONE, mechanisms=authentication.enabled)
    await authentication.delay_failure()
    refusal = SaslHandshakeResponse(
        error_code=ErrorCode.unsupported_sasl_mechanism, mechanisms=authentication.enabled
    )
    told = f"Unsupported SASL mechanism {request.mechanism[:NAME_CHARACTERS_MAX]}"
    raise CloseConnection(NOT_AUTHENTICATED, refusal, error=told)
