"""Failures of a SASL exchange, with the messages that Kafka's ``SaslServerAuthenticator`` sends to the client."""

from __future__ import annotations

from broker.security.sasl.mechanism import AuthenticationFailed


class InvalidCredentials(AuthenticationFailed):
    """A failure for which Kafka throws a ``SaslException``: the client gets only this message, which does not say whether
    the user exists."""

    def __init__(self, mechanism: str, reason: str) -> None:
        super().__init__(invalid_credentials(mechanism), reason)
        self.mechanism = mechanism


class Unanswered(InvalidCredentials):
    """A failure for which Kafka throws another exception than ``SaslException``. The connection then closes without a
    response to the client."""


def invalid_credentials(mechanism: str, during: str = "authentication") -> str:
    """Message for an authentication with a wrong password or an unknown user.

    >>> invalid_credentials("PLAIN", during="re-authentication")
    'Authentication failed during re-authentication due to invalid credentials with SASL mechanism PLAIN'
    """
    return f"Authentication failed during {during} due to invalid credentials with SASL mechanism {mechanism}"
