"""Large SASL tokens of many clients: one is evaluated in a turn of the loop, and others have the next turn."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.net.authentication import TOKEN_BYTES_AT_ONCE, SaslAuthentication
from broker.net.served_connection import ServedConnection
from broker.security.sasl.authenticator import Evaluated, Mechanism
from broker.security.sasl.mechanism import AuthenticationFailed
from tests.support.clock import FakeClock

CLIENTS = 5


class Turns:
    """Counts the turns of the loop."""

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
    """A mechanism that notes when it is asked."""

    mechanism, is_complete, refused, user, expires_ms, by_token = "PLAIN", False, "", "", None, False

    def __init__(self, evaluate: Callable[[bytes], bytes]) -> None:
        self.evaluate = evaluate


def logins(evaluate: Callable[[bytes], bytes]) -> Iterator[SaslAuthentication]:
    """Of clients that have chosen a mechanism."""
    shared = SimpleNamespace(large_tokens=asyncio.Lock())
    mechanism = Mechanism("PLAIN", lambda: cast(Any, Server(evaluate)))
    for _ in range(CLIENTS):
        connection = cast(ServedConnection, SimpleNamespace(_shared=shared))
        login = SaslAuthentication(connection, {"PLAIN": mechanism}, FakeClock(), failure_delay_ms=0)
        login.sasl.handshake("PLAIN", 1)
        yield login


async def tokens_of(logins: Iterator[SaslAuthentication], token: bytes) -> list[Any]:
    given = [login.evaluate(token) for login in logins]
    assert not any(isinstance(each, Evaluated) for each in given)
    return await asyncio.gather(*cast(Any, given), return_exceptions=True)


@pytest.mark.parametrize("is_refused", [False, True])
async def test_between_two_large_tokens_others_have_a_turn(turns: Turns, is_refused: bool) -> None:
    seen: list[int] = []

    def evaluate(token: bytes) -> bytes:
        seen.append(turns.number)
        if is_refused:
            raise AuthenticationFailed("no")
        return b""

    outcomes = await tokens_of(logins(evaluate), bytes(TOKEN_BYTES_AT_ONCE + 1))
    assert {type(each) for each in outcomes} == {AuthenticationFailed if is_refused else Evaluated}
    assert len(seen) == CLIENTS
    assert min(later - earlier for earlier, later in itertools.pairwise(seen)) >= 2


async def test_a_token_of_the_usual_size_is_evaluated_at_once() -> None:
    for login in logins(lambda token: b""):
        assert isinstance(login.evaluate(bytes(TOKEN_BYTES_AT_ONCE)), Evaluated)


async def test_a_client_that_goes_is_not_waited_for() -> None:
    seen: list[bytes] = []

    def evaluate(token: bytes) -> bytes:
        seen.append(token)
        return b""

    first, second, third, *_ = logins(evaluate)
    tasks = [
        asyncio.ensure_future(cast(Any, login.evaluate(bytes([number]) * (TOKEN_BYTES_AT_ONCE + 1))))
        for number, login in enumerate((first, second, third))
    ]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.wait(tasks)
    assert [token[0] for token in seen] == [0, 2]
