"""The interface of a SASL mechanism: one exchange of tokens, which ends with the authenticated user.

Pure: a mechanism has no access to the connection, and uses only the clock that is passed to it.
"""

from __future__ import annotations

from typing import Final, Protocol

AUTHENTICATION_FAILED: Final = "authentication failed"
NOT_AUTHENTICATED: Final = "not authenticated"
"""Reason in the log for closing a connection, like ``AUTHENTICATION_FAILED``."""


class AuthenticationFailed(Exception):
    """Authentication failed. The exception's text is sent to the client; ``reason`` is logged.

    Neither contains a password, token or key.
    """

    def __init__(self, told: str, reason: str = "") -> None:
        super().__init__(told)
        self.reason = reason or told


class SaslServer(Protocol):
    """The server side of one SASL exchange (``javax.security.sasl.SaslServer``)."""

    mechanism: str
    """Name of the mechanism, such as `SCRAM-SHA-256`."""
    is_complete: bool
    user: str
    """The authorization id, when the exchange is complete."""
    expires_ms: int | None
    """Expiry of the credential in ms by the node's clock; None if it does not expire."""
    by_token: bool
    """Whether the client authenticated with a delegation token."""

    @property
    def refused(self) -> str:
        """Reason in the log for a refused token, until the client confirms the refusal; otherwise empty."""
        ...

    async def evaluate(self, token: bytes) -> bytes:
        """Return the response to the client's token. Raises AuthenticationFailed. Suspends only to look up keys."""
        ...
