"""SaslHandshake: the client chooses a mechanism. After version 0 its tokens come without a request around them (KIP-43)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import NoReturn

from broker.node.context import Authentication, RequestContext
from broker.requests.api import CloseConnection, api
from broker.security.sasl.authenticator import NAME_CHARACTERS_MAX, NotAuthenticated
from broker.security.sasl.mechanism import NOT_AUTHENTICATED
from protocol.errors import NONE, ErrorCode
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@api(key=17, versions=range(2), allow_before_authentication=True)
def sasl_handshake(
    request: SaslHandshakeRequest, context: RequestContext
) -> SaslHandshakeResponse | Awaitable[SaslHandshakeResponse]:
    authentication = context.client.authentication
    if authentication is None or authentication.sasl.is_complete:
        return SaslHandshakeResponse(error_code=ErrorCode.illegal_sasl_state, mechanisms=[])
    sasl = authentication.sasl
    try:
        is_enabled = sasl.handshake(request.mechanism, context.api_version)
    except NotAuthenticated as error:
        raise CloseConnection(NOT_AUTHENTICATED, error=str(error)) from None
    if is_enabled:
        return SaslHandshakeResponse(error_code=NONE, mechanisms=sasl.enabled)
    return _refuse(authentication, request.mechanism)


async def _refuse(authentication: Authentication, mechanism: str) -> NoReturn:
    await authentication.delay_failure()
    refusal = SaslHandshakeResponse(
        error_code=ErrorCode.unsupported_sasl_mechanism, mechanisms=authentication.sasl.enabled
    )
    told = f"Unsupported SASL mechanism {mechanism[:NAME_CHARACTERS_MAX]}"
    raise CloseConnection(NOT_AUTHENTICATED, refusal, error=told)
