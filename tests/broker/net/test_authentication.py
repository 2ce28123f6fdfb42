"""Large SASL tokens of many clients: each turn of the event loop evaluates one token, and other connections run between the
turns."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from broker.clock import Domain
from broker.clock.sleeping import Sleep
from broker.loop.coroutines import Waiter, start
from broker.loop.life import NodeLife
from broker.loop.slices import TurnsApart
from broker.security.sasl.authenticator import (
    TOKEN_BYTES_AT_ONCE,
    Evaluated,
    Mechanism,
    SaslServerAuthenticator,
)
from broker.security.sasl.mechanism import AuthenticationFailed
from tests.support.clock import FakeClock

CLIENTS = 5


class Turns:
    """A counter of the turns of the event loop."""

    def __init__(self) -> None:
        self.number = 0
        self._count()

    def _count(self) -> None:
        self.number += 1
        self._handle = asyncio.get_running_loop().call_soon(self._count)

    def stop(self) -> None:
        self._handle.cancel()


@pytest.fixture
async def turns() -> Any:
    turns = Turns()
    yield turns
    turns.stop()


class Server:
    """The server side of a SASL mechanism, which evaluates tokens by a function of the test."""

    mechanism, is_complete, refused, user, by_token = "PLAIN", False, "", "", False
    expires_ms: int | None = None

    def __init__(self, evaluate: Callable[[bytes], bytes]) -> None:
        self._evaluate = evaluate

    async def evaluate(self, token: bytes) -> bytes:
        return self._evaluate(token)


class Delay(Waiter[None]):
    """The delay after a failed authentication, which lasts until ``cut`` is called."""

    def cut(self) -> None:
        self.wake(None)


def logins(evaluate: Callable[[bytes], bytes]) -> Iterator[SaslServerAuthenticator]:
    """Authenticators of clients that have sent SaslHandshake."""
    turns = TurnsApart()
    mechanism = Mechanism("PLAIN", lambda: Server(evaluate))
    for _ in range(CLIENTS):
        login = SaslServerAuthenticator({"PLAIN": mechanism}, lambda: 0, turn=turns.turn, delay=Delay)
        login.handshake("PLAIN", 1)
        yield login


@pytest.mark.parametrize("is_refused", [False, True])
async def test_between_two_large_tokens_others_have_a_turn(turns: Turns, is_refused: bool) -> None:
    seen: list[int] = []

    def evaluate(token: bytes) -> bytes:
        seen.append(turns.number)
        if is_refused:
            raise AuthenticationFailed("no")
        return b""

    token = bytes(TOKEN_BYTES_AT_ONCE + 1)
    given = (login.evaluate(token) for login in logins(evaluate))
    outcomes = await asyncio.gather(*given, return_exceptions=True)
    assert {type(each) for each in outcomes} == {AuthenticationFailed if is_refused else Evaluated}
    assert len(seen) == CLIENTS
    assert min(later - earlier for earlier, later in itertools.pairwise(seen)) >= 2


def test_a_token_of_the_usual_size_is_evaluated_at_once() -> None:
    for login in logins(lambda token: b""):
        assert start(login.evaluate(bytes(TOKEN_BYTES_AT_ONCE)), NodeLife()) == Evaluated(b"")


async def test_a_client_that_goes_is_not_waited_for() -> None:
    seen: list[bytes] = []

    def evaluate(token: bytes) -> bytes:
        seen.append(token)
        return b""

    first, second, third, *_ = logins(evaluate)
    given = [
        asyncio.ensure_future(login.evaluate(bytes([number]) * (TOKEN_BYTES_AT_ONCE + 1)))
        for number, login in enumerate((first, second, third))
    ]
    await asyncio.sleep(0)
    second.end()
    await asyncio.gather(*given)
    assert [token[0] for token in seen] == [0, 2]


async def test_a_failure_after_the_client_has_gone_is_no_one_s() -> None:
    asked: Waiter[bytes] = Waiter()

    class Asking(Server):
        async def evaluate(self, token: bytes) -> bytes:
            return await asked

    mechanism = Mechanism("PLAIN", lambda: Asking(bytes))
    login = SaslServerAuthenticator({"PLAIN": mechanism}, lambda: 0, turn=TurnsApart().turn, delay=Delay)
    login.handshake("PLAIN", 1)
    future = start(login.evaluate(b"token"), NodeLife())
    assert isinstance(future, asyncio.Future)
    login.end()
    asked.fail(AuthenticationFailed("no"))
    assert await future == Evaluated(b"")


async def test_a_failure_that_waits_ends_with_its_node() -> None:
    clock, life = FakeClock(), NodeLife()
    delay = partial(Sleep, clock, 100, Domain.CONNECTIONS)
    login = SaslServerAuthenticator({}, lambda: 0, turn=TurnsApart().turn, delay=delay)
    start(login.delay_failure(), life)
    assert len(clock.timers) == 1
    life.end()
    assert clock.timers == []
    login.end()
