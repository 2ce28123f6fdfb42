"""PLAIN: the client sends its password (RFC 4616; ``PlainSaslServer``, ``PlainServerCallbackHandler``)."""

from __future__ import annotations

import hmac
from typing import Final

from broker.security.sasl.jaas import PLAIN_LOGIN_MODULE, JaasContext
from broker.security.sasl.mechanism import AuthenticationFailed

MECHANISM: Final = "PLAIN"
_TOKENS_MAX: Final = 4
"""Maximum number of parts into which Kafka splits a PLAIN message."""


class PlainUsers:
    """Users and passwords from the options `user_<name>="<password>"` of the login module."""

    def __init__(self, context: JaasContext) -> None:
        self._context = context

    def authenticate(self, user: str, password: str) -> bool:
        expected = self._context.option(f"user_{user}", PLAIN_LOGIN_MODULE)
        is_equal = hmac.compare_digest(_bytes(password), _bytes(expected or ""))
        return is_equal and expected is not None


class PlainServer:
    """The server side of one PLAIN exchange, which is a single message of the client."""

    def __init__(self, users: PlainUsers) -> None:
        self.mechanism = MECHANISM
        self.is_complete = False
        self.user = ""
        self.expires_ms: int | None = None
        self.by_token = False
        self.refused = ""
        self._users = users

    async def evaluate(self, token: bytes) -> bytes:
        authorization_id, user, password = _parts(token)
        if not user:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        if not self._users.authenticate(user, password):
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        if authorization_id and authorization_id != user:
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user, self.is_complete = user, True
        return b""


def _parts(token: bytes) -> tuple[str, str, str]:
    """Split the token `[authzid] NUL user NUL password` into (authorization id, user, password)."""
    parts = token.decode("utf-8", "replace").split("\0", _TOKENS_MAX)
    if len(parts) != 3:
        counted = min(len(parts), _TOKENS_MAX)
        raise AuthenticationFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {counted}")
    return parts[0], parts[1], parts[2]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
