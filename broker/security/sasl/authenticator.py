"""SASL authentication and re-authentication of a connection (``SaslServerAuthenticator``, KIP-368).

    authenticator = SaslServerAuthenticator(mechanisms, now_ms, turn=turn, delay=delay)
    authenticator.check(api_key, api_name)           # before each request
    authenticator.handshake("SCRAM-SHA-256", 1)
    evaluated = await authenticator.evaluate(token)  # the response, and finally the principal

Pure: the caller provides the clock, the delay and the turns of the event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from enum import Enum
from typing import Final, Protocol

from broker.security.principals import user
from broker.security.sasl.failures import Unanswered
from broker.security.sasl.mechanism import AuthenticationFailed, SaslServer
from protocol.named_tuple import NamedTuple

SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
NAME_CHARACTERS_MAX: Final = 100
REAUTHENTICATION_INTERVAL_MS_MIN: Final = 1000
"""Minimum time in ms between two re-authentications of a connection (``KafkaChannel``)."""
TOKEN_BYTES_MAX: Final = 524_288
"""Default of sasl.server.max.receive.size."""
TOKEN_BYTES_AT_ONCE: Final = 16 * 1024
"""A token above this size takes milliseconds to evaluate: half a megabyte takes about five. At most one such token is
evaluated in a turn of the event loop, and the next turn is left to other work. Identity providers issue tokens of one or two
KiB."""


class AuthenticationState(Enum):
    INITIAL = "initial"
    """ApiVersions or SaslHandshake is expected."""
    HANDSHAKE = "handshake"
    """Only SaslHandshake is expected."""
    AUTHENTICATE = "authenticate"
    COMPLETE = "complete"
    FAILED = "failed"


class NotAuthenticated(Exception):
    """The request may not be handled: the connection closes without a response."""


class Mechanism(NamedTuple):
    """A mechanism that a listener has enabled."""

    name: str
    server: Callable[[], SaslServer]
    """Function that creates the server side of a new SASL exchange."""
    reauth_ms_max: int = 0
    """connections.max.reauth.ms; 0 means that sessions do not expire."""


Mechanisms = Mapping[str, Mechanism]


class Evaluated(NamedTuple):
    """The broker's response to a token, and the result of the exchange."""

    response: bytes
    principal: str | None = None
    """`User:alice` when the exchange is complete, else None."""
    by_token: bool = False
    """Whether the client authenticated with a delegation token (KIP-48)."""
    session_lifetime_ms: int = 0
    """Lifetime of the session; 0 if the session does not expire, or the exchange is not complete."""


GONE: Final = Evaluated(b"")
"""Result of `SaslServerAuthenticator.evaluate` if the connection has closed in the meantime."""


class FailureDelay(Protocol):
    """The running delay of connection.failed.authentication.delay.ms. At most one coroutine may await it."""

    def __await__(self) -> Generator[object, None, None]: ...

    def cut(self) -> None:
        """End the delay at once: the coroutine that awaits it continues."""
        ...


class _Session(NamedTuple):
    """The result of the last successful authentication."""

    mechanism: str
    principal: str
    expires_ms: int | None


class SaslServerAuthenticator:
    """The SASL state of one connection, for its whole lifetime (KIP-368)."""

    def __init__(
        self,
        mechanisms: Mechanisms,
        now_ms: Callable[[], int],
        *,
        turn: Callable[[], Awaitable[None]],
        delay: Callable[[], FailureDelay],
        token_bytes_max: int = TOKEN_BYTES_MAX,
    ) -> None:
        """``turn`` waits for a turn of the event loop in which no other large token is evaluated. ``delay`` starts the delay
        after a failed authentication.
        """
        self._mechanisms = mechanisms
        self._now_ms = now_ms
        self._turn = turn
        self._begin_delay = delay
        self._delay: FailureDelay | None = None
        self._has_ended = False
        self._token_bytes_max = token_bytes_max
        self._state = AuthenticationState.INITIAL
        self._server: SaslServer | None = None
        self._bad_mechanism = ""
        self._session: _Session | None = None
        self._began_again_ms: int | None = None
        self.mechanism = ""
        """The mechanism that the client has selected."""
        self.takes_raw_tokens = False
        """Whether the client sent SaslHandshake v0, so that tokens come without a request header."""

    @property
    def is_complete(self) -> bool:
        return self._state is AuthenticationState.COMPLETE

    @property
    def frame_bytes_max(self) -> int | None:
        """Maximum size of a frame in bytes; None after authentication, when the limit of all clients applies."""
        return None if self.is_complete else self._token_bytes_max

    @property
    def is_again(self) -> bool:
        """Whether the client has authenticated before on this connection, so that a further exchange is a re-authentication
        (KIP-368).
        """
        return self._session is not None

    @property
    def refused(self) -> str:
        """Reason for which the token was refused, until the client confirms the refusal; otherwise empty."""
        return "" if self._server is None else self._server.refused

    @property
    def enabled(self) -> list[str]:
        return list(self._mechanisms)

    # -- before each request -------------------------------------------------------------------------------------

    def check(self, api_key: int, name: str) -> bool:
        """Whether the request may be handled. If not, respond with ILLEGAL_SASL_STATE, and close the connection.

        Raises `NotAuthenticated` if the connection must close without a response.
        """
        if self._state is AuthenticationState.COMPLETE:
            self._check_session(api_key)
            return True
        if self._state is AuthenticationState.AUTHENTICATE:
            return api_key == SASL_AUTHENTICATE
        may_ask = api_key == SASL_HANDSHAKE or (
            self._state is AuthenticationState.INITIAL and api_key == API_VERSIONS
        )
        if not may_ask:
            raise NotAuthenticated(f"Unexpected Kafka request of type {name} during SASL handshake.")
        return True

    def _check_session(self, api_key: int) -> None:
        expires_ms = None if self._session is None else self._session.expires_ms
        if expires_ms is None:
            return
        now_ms = self._now_ms()
        if api_key == SASL_HANDSHAKE and self._may_begin_again(now_ms):
            self._began_again_ms = now_ms
            self._state = AuthenticationState.HANDSHAKE
        elif now_ms > expires_ms:
            raise NotAuthenticated("the session has expired, and the client has not authenticated again")

    def _may_begin_again(self, now_ms: int) -> bool:
        began_ms = self._began_again_ms
        return began_ms is None or now_ms - began_ms >= REAUTHENTICATION_INTERVAL_MS_MIN

    # -- the exchange --------------------------------------------------------------------------------------------

    def note_api_versions(self) -> None:
        """Note that ApiVersions was handled, which is allowed only once before authentication."""
        if self._state is AuthenticationState.INITIAL:
            self._state = AuthenticationState.HANDSHAKE

    def handshake(self, mechanism: str, version: int) -> bool:
        """Start an exchange. Returns False if the mechanism is not enabled; the connection then closes after the response.

        During re-authentication, raises `NotAuthenticated` instead: Kafka closes the connection without a response.
        """
        chosen = self._mechanisms.get(mechanism)
        if chosen is None:
            self._state = AuthenticationState.FAILED
            if self._session is not None:
                raise NotAuthenticated(f"Unsupported SASL mechanism {mechanism[:NAME_CHARACTERS_MAX]}")
            return False
        self.takes_raw_tokens = version == 0
        self._state = AuthenticationState.AUTHENTICATE
        previous = self._session
        if previous is not None and previous.mechanism != mechanism:
            # As in Kafka, the connection closes only after the first token.
            self._bad_mechanism = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication"
                f" of mechanism '{previous.mechanism}'"
            )
        self.mechanism, self._server = mechanism, chosen.server()
        return True

    def fail(self) -> None:
        """Fail the authentication. No further token is evaluated."""
        self._state = AuthenticationState.FAILED

    async def evaluate(self, token: bytes) -> Evaluated:
        """Evaluate a token of the client. After `AuthenticationFailed` call `delay_failure` and close the connection."""
        if len(token) > TOKEN_BYTES_AT_ONCE:
            # Several large tokens in one turn would delay the requests of all other clients.
            await self._turn()
            if self._has_ended:
                return GONE
        try:
            return self._after(await self._exchange().evaluate(token))
        except AuthenticationFailed as failure:
            if self._has_ended:
                return GONE
            raise self._failed(failure) from None

    def _exchange(self) -> SaslServer:
        assert self._server is not None, "SaslHandshake has chosen a mechanism"
        if self._bad_mechanism:
            raise Unanswered(self.mechanism, self._bad_mechanism)
        return self._server

    def _after(self, response: bytes) -> Evaluated:
        server = self._exchange()
        if not server.is_complete:
            return Evaluated(response)
        principal = user(server.user)
        self._ensure_unchanged(principal)
        lifetime_ms = self._lifetime_ms(server)
        expires_ms = None if lifetime_ms is None else self._now_ms() + lifetime_ms
        self._session = _Session(self.mechanism, principal, expires_ms)
        self._state, self._server, self.takes_raw_tokens = AuthenticationState.COMPLETE, None, False
        return Evaluated(response, principal, server.by_token, lifetime_ms or 0)

    def _failed(self, failure: AuthenticationFailed) -> AuthenticationFailed:
        """Set the state to failed, and return the failure with the message for the client."""
        self.fail()
        if self._session is None or isinstance(failure, Unanswered):
            return failure
        told = str(failure).replace("during authentication", "during re-authentication")
        return AuthenticationFailed(told, failure.reason)

    async def delay_failure(self) -> None:
        """Wait for connection.failed.authentication.delay.ms, which slows down password guessing."""
        self._delay = self._begin_delay()
        try:
            await self._delay
        finally:
            self._delay.cut()

    def end(self) -> None:
        """End the delay and ignore the exchange's result, because the connection has closed."""
        self._has_ended = True
        if self._delay is not None:
            self._delay.cut()

    def _ensure_unchanged(self, principal: str) -> None:
        previous = self._session
        if previous is not None and previous.principal != principal:
            was, now = previous.principal.replace(":", ".", 1), principal.replace(":", ".", 1)
            raise AuthenticationFailed(f"Cannot change principals during re-authentication from {was}: {now}")

    def _lifetime_ms(self, server: SaslServer) -> int | None:
        """Session lifetime by connections.max.reauth.ms and by the credential's expiry; None if neither limits it."""
        bounds = []
        if (reauth_ms := self._mechanisms[self.mechanism].reauth_ms_max) > 0:
            bounds.append(reauth_ms)
        if server.expires_ms is not None:
            bounds.append(max(0, server.expires_ms - self._now_ms()))
        return min(bounds, default=None)
