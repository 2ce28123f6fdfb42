"""SaslAuthenticate: exchange SASL tokens of client and broker (KIP-152). v1 returns the lifetime of the session."""

from __future__ import annotations

from broker.node.context import RequestContext
from broker.requests.api import CloseConnection, api
from broker.security.sasl.failures import Unanswered
from broker.security.sasl.mechanism import AUTHENTICATION_FAILED, AuthenticationFailed
from protocol.errors import NONE, ErrorCode
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


@api(key=36, versions=range(3), allow_before_authentication=True)
async def sasl_authenticate(
    request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    authentication = context.client.authentication
    if authentication is None or authentication.is_complete:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.illegal_sasl_state,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    try:
        evaluated = await authentication.evaluate(bytes(request.auth_bytes))
    except AuthenticationFailed as failure:
        facts = {"mechanism": authentication.mechanism, "error": failure.reason}
        if isinstance(failure, Unanswered):
            raise CloseConnection(AUTHENTICATION_FAILED, **facts) from None
        await authentication.delay_failure()
        refusal = SaslAuthenticateResponse(
            error_code=ErrorCode.sasl_authentication_failed, error_message=str(failure)
        )
        raise CloseConnection(AUTHENTICATION_FAILED, refusal, **facts) from None
    context.client.authenticated(evaluated)
    return SaslAuthenticateResponse(
        error_code=NONE,
        error_message="",
        auth_bytes=evaluated.response,
        session_lifetime_ms=evaluated.session_lifetime_ms,
    )
