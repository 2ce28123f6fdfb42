"""The way of a connection to its principal, and later to the same one again (``SaslServerAuthenticator``, KIP-368).

    authenticator = SaslServerAuthenticator(mechanisms, now_ms, turn=turn, delay=delay)
    authenticator.check(api_key, api_name)           # before each request
    authenticator.handshake("SCRAM-SHA-256", 1)
    evaluated = await authenticator.evaluate(token)  # the response, and the principal once it is known

Pure: the time that passes, and the turns of the loop, are its caller's.
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
"""A client may not authenticate again more often than that (``KafkaChannel``)."""
TOKEN_BYTES_MAX: Final = 524_288
"""The default of sasl.server.max.receive.size."""
TOKEN_BYTES_AT_ONCE: Final = 16 * 1024
"""A larger token takes milliseconds: half a megabyte some five. One is evaluated in a turn of the loop, and the next turn is
left to others. Identity providers issue tokens of one or two KiB."""


class AuthenticationState(Enum):
    INITIAL = "initial"
    """ApiVersions or SaslHandshake may come."""
    HANDSHAKE = "handshake"
    """SaslHandshake only."""
    AUTHENTICATE = "authenticate"
    COMPLETE = "complete"
    FAILED = "failed"


class NotAuthenticated(Exception):
    """The request may not be handled: the connection ends without an answer."""


class Mechanism(NamedTuple):
    """One that a listener has enabled."""

    name: str
    server: Callable[[], SaslServer]
    """A new exchange."""
    reauth_ms_max: int = 0
    """connections.max.reauth.ms; 0: a session does not end."""


Mechanisms = Mapping[str, Mechanism]


class Evaluated(NamedTuple):
    """The broker's response to a token, and what has come of it."""

    response: bytes
    principal: str | None = None
    """`User:alice`, once the exchange is complete."""
    by_token: bool = False
    """A delegation token has brought the principal (KIP-48)."""
    session_lifetime_ms: int = 0
    """0: without an end, or the exchange is not complete yet."""


GONE: Final = Evaluated(b"")
"""What no client gets any more."""


class FailureDelay(Protocol):
    """connection.failed.authentication.delay.ms, from now on. Awaited by one coroutine."""

    def __await__(self) -> Generator[object, None, None]: ...

    def cut(self) -> None:
        """End it now."""
        ...


class _Session(NamedTuple):
    """What a client has authenticated as."""

    mechanism: str
    principal: str
    expires_ms: int | None


class SaslServerAuthenticator:
    """One client's conversation with the broker about who it is. It lasts as long as the connection (KIP-368)."""

    def __init__(
        self,
        mechanisms: Mechanisms,
        now_ms: Callable[[], int],
        *,
        turn: Callable[[], Awaitable[None]],
        delay: Callable[[], FailureDelay],
        token_bytes_max: int = TOKEN_BYTES_MAX,
    ) -> None:
        """``turn`` returns in a turn of the loop in which no other large token is evaluated."""
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
        """The one that the client has chosen."""
        self.takes_raw_tokens = False
        """The client has sent SaslHandshake v0: tokens come without a request around them."""

    @property
    def is_complete(self) -> bool:
        return self._state is AuthenticationState.COMPLETE

    @property
    def frame_bytes_max(self) -> int | None:
        """How large a frame may be; None: as for all clients."""
        return None if self.is_complete else self._token_bytes_max

    @property
    def is_again(self) -> bool:
        """The client has logged in before (KIP-368)."""
        return self._session is not None

    @property
    def refused(self) -> str:
        """Why the client's token is refused, where the client has still to confirm that; empty: it is not."""
        return "" if self._server is None else self._server.refused

    @property
    def enabled(self) -> list[str]:
        return list(self._mechanisms)

    # -- before each request -------------------------------------------------------------------------------------

    def check(self, api_key: int, name: str) -> bool:
        """Whether the request may be handled; False: ILLEGAL_SASL_STATE is its answer, and the end.

        `NotAuthenticated` where the connection ends without an answer.
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

    def heard_versions(self) -> None:
        """The client has got its answer to ApiVersions, which it may ask for once."""
        if self._state is AuthenticationState.INITIAL:
            self._state = AuthenticationState.HANDSHAKE

    def handshake(self, mechanism: str, version: int) -> bool:
        """Begin an exchange; False if the mechanism is not enabled, which is the end.

        `NotAuthenticated` if the client has authenticated before: Kafka answers that with the end alone.
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
            # The end comes behind the first token, as Kafka has it.
            self._bad_mechanism = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication"
                f" of mechanism '{previous.mechanism}'"
            )
        self.mechanism, self._server = mechanism, chosen.server()
        return True

    def fail(self) -> None:
        """The exchange is over, without a principal: it is refused before the mechanism has seen the token."""
        self._state = AuthenticationState.FAILED

    async def evaluate(self, token: bytes) -> Evaluated:
        """Evaluate a token of the client. `AuthenticationFailed` is the end: see ``delay_failure``."""
        if len(token) > TOKEN_BYTES_AT_ONCE:
            # Many that come at once would hold up everyone else's requests together.
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
        """As the client learns of it."""
        self.fail()
        if self._session is None or isinstance(failure, Unanswered):
            return failure
        told = str(failure).replace("during authentication", "during re-authentication")
        return AuthenticationFailed(told, failure.reason)

    async def delay_failure(self) -> None:
        """Let connection.failed.authentication.delay.ms pass: a client that guesses must not be quick."""
        self._delay = self._begin_delay()
        try:
            await self._delay
        finally:
            self._delay.cut()

    def end(self) -> None:
        """The connection has ended: its client learns of nothing any more, and is not waited for."""
        self._has_ended = True
        if self._delay is not None:
            self._delay.cut()

    def _ensure_unchanged(self, principal: str) -> None:
        previous = self._session
        if previous is not None and previous.principal != principal:
            was, now = previous.principal.replace(":", ".", 1), principal.replace(":", ".", 1)
            raise AuthenticationFailed(f"Cannot change principals during re-authentication from {was}: {now}")

    def _lifetime_ms(self, server: SaslServer) -> int | None:
        """By connections.max.reauth.ms and by the end of the credential; None without both."""
        bounds = []
        if (reauth_ms := self._mechanisms[self.mechanism].reauth_ms_max) > 0:
            bounds.append(reauth_ms)
        if server.expires_ms is not None:
            bounds.append(max(0, server.expires_ms - self._now_ms()))
        return min(bounds, default=None)
