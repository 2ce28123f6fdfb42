"""SaslAuthenticate: a token of the client, and the broker's answer (KIP-152). v1 tells how long the session lasts."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import NoReturn

from broker.node.context import Authentication, RequestContext
from broker.requests.api import CloseConnection, api
from broker.security.sasl.authenticator import Evaluated
from broker.security.sasl.failures import Unanswered
from broker.security.sasl.mechanism import AUTHENTICATION_FAILED, AuthenticationFailed
from protocol.errors import NONE, ErrorCode
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


@api(key=36, versions=range(3), allow_before_authentication=True)
def sasl_authenticate(
    request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse | Awaitable[SaslAuthenticateResponse]:
    authentication = context.client.authentication
    if authentication is None or authentication.sasl.is_complete:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.illegal_sasl_state,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    try:
        evaluated = authentication.evaluate(bytes(request.auth_bytes))
    except AuthenticationFailed as failure:
        return _refuse(authentication, failure)
    return _response(evaluated) if isinstance(evaluated, Evaluated) else _respond(authentication, evaluated)


async def _respond(authentication: Authentication, later: Awaitable[Evaluated]) -> SaslAuthenticateResponse:
    try:
        return _response(await later)
    except AuthenticationFailed as failure:
        return await _refuse(authentication, failure)


def _response(evaluated: Evaluated) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=NONE,
        error_message="",
        auth_bytes=evaluated.answer,
        session_lifetime_ms=evaluated.session_lifetime_ms,
    )


async def _refuse(authentication: Authentication, failure: AuthenticationFailed) -> NoReturn:
    facts = {"mechanism": authentication.sasl.mechanism, "error": failure.reason}
    if isinstance(failure, Unanswered):
        raise CloseConnection(AUTHENTICATION_FAILED, **facts) from None
    await authentication.delay_failure()
    refusal = SaslAuthenticateResponse(
        error_code=ErrorCode.sasl_authentication_failed, error_message=str(failure)
    )
    raise CloseConnection(AUTHENTICATION_FAILED, refusal, **facts) from None
