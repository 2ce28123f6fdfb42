"""How an exchange fails, in the words that Kafka's ``SaslServerAuthenticator`` has for the client."""

from __future__ import annotations

from broker.security.sasl.mechanism import AuthenticationFailed


class InvalidCredentials(AuthenticationFailed):
    """Where Kafka throws a ``SaslException``: the client learns no more than this, least of all whether the user exists."""

    def __init__(self, mechanism: str, reason: str) -> None:
        super().__init__(invalid_credentials(mechanism), reason)
        self.mechanism = mechanism


class Unanswered(InvalidCredentials):
    """Where Kafka's server throws anything else: the connection closes, and the client is told nothing."""


def invalid_credentials(mechanism: str, during: str = "authentication") -> str:
    """
    >>> invalid_credentials("PLAIN", during="re-authentication")
    'Authentication failed during re-authentication due to invalid credentials with SASL mechanism PLAIN'
    """
    return f"Authentication failed during {during} due to invalid credentials with SASL mechanism {mechanism}"
