"""Rules on logins: SaslHandshake and SaslAuthenticate.

A broker responds to a failed login after connection.failed.authentication.delay.ms and closes the connection. A rule
with the action `error` does the same. A login can be handled only on its connection: a login that a rule has detached
fails.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from broker.requests.api import CloseConnection
from broker.requests.error_answers import error_answer
from lab.faults.fields import LOGINS, SASL_HANDSHAKE
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.net.calls import Call
    from broker.node.context import RequestContext
    from broker.security.sasl.authenticator import SaslServerAuthenticator


_TOLD: Final = {
    "PLAIN": "Authentication failed: Invalid username or password",
    "OAUTHBEARER": '{"status":"invalid_token"}',
}
"""Kafka's error message for wrong credentials, by mechanism. The other mechanisms share one message."""


def mechanism_of(call: Call) -> str | None:
    """The mechanism of a SaslHandshake, or of the connection of a SaslAuthenticate; None for other requests."""
    key, authentication = call.context.api_key, call.context.client.authentication
    if key == SASL_HANDSHAKE:
        return str(call.request.mechanism)
    if key not in LOGINS or authentication is None:
        return None
    return authentication.mechanism


def is_login(call: Call) -> bool:
    """Whether the request is part of a SASL login: the listener uses SASL, and the client has not logged in yet."""
    authentication = call.context.client.authentication
    return call.context.api_key in LOGINS and authentication is not None and not authentication.is_complete


def refuse(call: Call, code: ErrorCode) -> None:
    """Make the login fail with ``code``, with the response, the delay and the close of a real failure."""
    call.route = call.route.handled_by(partial(_refuse, code))
    call.proceed()


async def _refuse(code: ErrorCode, request: Any, context: RequestContext) -> NoReturn:
    authentication = context.client.authentication
    assert authentication is not None, "the request is part of a login"
    authentication.fail()
    answer = error_answer(context.api_key, context.api_version, request, code)
    if code is ErrorCode.unsupported_sasl_mechanism and context.api_key == SASL_HANDSHAKE:
        answer.mechanisms = authentication.enabled
    if code is ErrorCode.sasl_authentication_failed and context.api_key != SASL_HANDSHAKE:
        answer.error_message = failure_message(authentication)
    await authentication.delay_failure()
    raise CloseConnection(f"a rule has refused the login: {code.name.upper()}", answer)


def failure_message(authentication: SaslServerAuthenticator) -> str:
    """Kafka's error message for a client with wrong credentials."""
    from broker.security.sasl.failures import invalid_credentials

    if authentication.mechanism in _TOLD:
        return _TOLD[authentication.mechanism]
    return invalid_credentials(
        authentication.mechanism, "re-authentication" if authentication.is_again else "authentication"
    )
