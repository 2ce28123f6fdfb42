"""What a SASL mechanism is to the rest of the broker: one exchange of tokens, at whose end there is a user.

Pure: a mechanism knows no connection and no clock but the one that it is given.
"""

from __future__ import annotations

from typing import Final, Protocol

AUTHENTICATION_FAILED: Final = "authentication failed"
NOT_AUTHENTICATED: Final = "not authenticated"
"""Why a connection ends, as the log says it."""


class AuthenticationFailed(Exception):
    """The client is not who it says it is. The text is what the client is told, ``reason`` what the log says of it.

    Neither has a password, a token or a key in it.
    """

    def __init__(self, told: str, reason: str = "") -> None:
        super().__init__(told)
        self.reason = reason or told


class SaslServer(Protocol):
    """The server's side of one exchange (``javax.security.sasl.SaslServer``)."""

    mechanism: str
    """`SCRAM-SHA-256`"""
    is_complete: bool
    user: str
    """The authorization id, once it is complete."""
    expires_ms: int | None
    """When the credential runs out, by the clock of the node; None: never."""
    by_token: bool
    """By a delegation token."""

    @property
    def refused(self) -> str:
        """Why the client's token is refused, while the client has still to confirm that; for the log. Empty: it is not."""
        ...

    async def evaluate(self, token: bytes) -> bytes:
        """The response to the client's token; AuthenticationFailed ends the exchange. Waits only where it has to ask."""
        ...
