"""From a new connection to its principal: sessions that expire, and clients that re-authenticate.

The order of requests is compared with Kafka's in tests/differential/handshakes. These tests have a manual clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import pytest

from broker.loop.coroutines import Waiter
from broker.security.sasl.authenticator import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Evaluated,
    Mechanism,
    NotAuthenticated,
    SaslServerAuthenticator,
)
from broker.security.sasl.mechanism import AuthenticationFailed

METADATA: Final = 3


class Echo:
    """A mechanism that uses the token as the user's name."""

    def __init__(self, expires_ms: int | None = None) -> None:
        self.mechanism, self.user, self.is_complete, self.by_token = "ECHO", "", False, False
        self.refused = ""
        self.expires_ms = expires_ms

    async def evaluate(self, token: bytes) -> bytes:
        if token == b"refused":
            self.refused = "too old"
            return b"no"
        if token == b"wrong":
            raise AuthenticationFailed("Authentication failed during authentication due to a wrong token")
        self.user, self.is_complete = token.decode(), True
        return b"ok"


class Asking(Echo):
    """A mechanism that suspends before it evaluates a token, like one that looks up a delegation token."""

    async def evaluate(self, token: bytes) -> bytes:
        await asyncio.sleep(0)
        return await super().evaluate(token)


class Delay(Waiter[None]):
    """The delay after a failed authentication, which lasts until ``cut`` is called."""

    def cut(self) -> None:
        self.wake(None)


class World:
    def __init__(self, server: type[Echo], reauth_ms: int = 0, expires_ms: int | None = None) -> None:
        self.now_ms = 1_000_000
        self.heard: list[str] = []
        mechanisms = {
            name: Mechanism(name, lambda: server(expires_ms), reauth_ms) for name in ("ECHO", "OTHER")
        }
        self.it = SaslServerAuthenticator(mechanisms, lambda: self.now_ms, turn=_at_once, delay=Delay)

    def log_in(self, user: str = "alice", mechanism: str = "ECHO") -> int:
        assert self.it.check(SASL_HANDSHAKE, "sasl_handshake")
        assert self.it.handshake(mechanism, 1)
        assert self.it.check(SASL_AUTHENTICATE, "sasl_authenticate")
        return self.evaluate(user).session_lifetime_ms

    def evaluate(self, user: str) -> Evaluated:
        evaluated = asyncio.run(self.it.evaluate(user.encode()))
        if evaluated.principal is not None:
            self.heard.append(evaluated.principal)
        return evaluated

    def metadata(self) -> bool:
        return self.it.check(METADATA, "metadata")


async def _at_once() -> None:
    """The authenticator's ``turn`` in these tests: return at once instead of waiting for a turn of the event loop."""


NewWorld = Callable[..., World]


@pytest.fixture(params=[Echo, Asking])
def new_world(request: pytest.FixtureRequest) -> NewWorld:
    return partial(World, request.param)


def test_no_request_is_served_before_the_authentication(new_world: NewWorld) -> None:
    world = new_world()
    with pytest.raises(
        NotAuthenticated, match="Unexpected Kafka request of type metadata during SASL handshake"
    ):
        world.metadata()
    assert world.it.check(API_VERSIONS, "api_versions")
    assert world.log_in() == 0
    assert world.metadata()
    assert world.heard == ["User:alice"]


def test_a_session_ends_when_the_earlier_of_both_ends(new_world: NewWorld) -> None:
    assert new_world(reauth_ms=500).log_in() == 500
    assert new_world(expires_ms=1_000_300).log_in() == 300
    assert new_world(reauth_ms=500, expires_ms=1_000_300).log_in() == 300
    assert new_world(reauth_ms=200, expires_ms=1_000_300).log_in() == 200
    # The token has already expired, so the session lifetime is 0. This 0 does not mean that the session has no end.
    assert new_world(expires_ms=999_000).log_in() == 0
    world = new_world(expires_ms=999_000)
    world.log_in()
    world.now_ms += 1
    with pytest.raises(NotAuthenticated, match="the session has expired"):
        world.metadata()


def test_a_client_authenticates_again_in_time_and_after_it(new_world: NewWorld) -> None:
    world = new_world(reauth_ms=500)
    world.log_in()
    for passed_ms in (400, 2_000):
        world.now_ms += passed_ms + 1_000
        world.log_in()
        assert world.metadata()
    world.now_ms += 500
    assert world.metadata()
    world.now_ms += 1
    with pytest.raises(NotAuthenticated, match="the session has expired"):
        world.metadata()
    assert world.heard == ["User:alice"] * 3


def test_not_more_often_than_once_a_second(new_world: NewWorld) -> None:
    world = new_world(reauth_ms=60_000)
    world.log_in()
    world.log_in()
    world.now_ms += 999
    assert world.it.check(SASL_HANDSHAKE, "sasl_handshake")
    assert world.it.is_complete, "the handler responds with ILLEGAL_SASL_STATE"
    world.now_ms += 1
    assert world.it.check(SASL_HANDSHAKE, "sasl_handshake")
    assert not world.it.is_complete


def test_a_session_without_an_end_is_not_begun_again(new_world: NewWorld) -> None:
    world = new_world()
    world.log_in()
    assert world.it.check(SASL_HANDSHAKE, "sasl_handshake")
    assert world.it.is_complete


def test_re_authentication_must_keep_mechanism_and_principal(new_world: NewWorld) -> None:
    world = new_world(reauth_ms=500)
    world.log_in()
    with pytest.raises(
        AuthenticationFailed, match=r"Cannot change principals .* from User\.alice: User\.bob"
    ):
        world.log_in("bob")
    world = new_world(reauth_ms=500)
    world.log_in()
    with pytest.raises(AuthenticationFailed) as failed:
        world.log_in(mechanism="OTHER")
    assert "'OTHER' requested by client is not supported for re-authentication" in failed.value.reason


def test_an_error_of_a_re_authentication_says_so(new_world: NewWorld) -> None:
    world = new_world(reauth_ms=500)
    with pytest.raises(AuthenticationFailed, match="Authentication failed during authentication due"):
        world.log_in("wrong")
    with pytest.raises(NotAuthenticated):
        world.metadata()
    world = new_world(reauth_ms=500)
    world.log_in()
    with pytest.raises(AuthenticationFailed, match="Authentication failed during re-authentication due"):
        world.log_in("wrong")


def test_why_a_token_is_refused_is_known_before_the_exchange_ends(new_world: NewWorld) -> None:
    world = new_world()
    assert world.it.refused == ""
    world.log_in("refused")
    assert (world.it.refused, world.heard) == ("too old", [])
    world.evaluate("alice")
    assert (world.it.refused, world.heard) == ("", ["User:alice"])
