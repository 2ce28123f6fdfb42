"""PLAIN: messages of the client, and the broker's errors (recorded from 4.3.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.loop.coroutines import start
from broker.loop.life import NodeLife
from broker.security.sasl.jaas import JaasContext, parse_config
from broker.security.sasl.mechanism import AuthenticationFailed
from broker.security.sasl.plain import PlainServer, PlainUsers
from tests.broker.security.sasl.world import PLAIN_MODULE, answer, failure

MODULES = f'other.Module required user_carl="x"; {PLAIN_MODULE} required user_alice="secret" user_é="ü" user_bob="";'
USERS = PlainUsers(JaasContext("KafkaServer", parse_config(MODULES)))


def server() -> PlainServer:
    return PlainServer(USERS)


@pytest.mark.parametrize(
    ("token", "user"),
    [("\0alice\0secret", "alice"), ("alice\0alice\0secret", "alice"), ("\0é\0ü", "é")],
)
async def test_a_user_with_its_password_is_authenticated(token: str, user: str) -> None:
    exchange = server()
    assert await answer(exchange, token) == b""
    assert (exchange.is_complete, exchange.user) == (True, user)
    assert (exchange.expires_ms, exchange.by_token) == (None, False)


INVALID = "Authentication failed: Invalid username or password"


@pytest.mark.parametrize(
    ("token", "told"),
    [
        ("\0alice\0wrong", INVALID),
        ("\0alice\0secret2", INVALID),
        ("\0alice\0SECRET", INVALID),
        ("\0dora\0secret", INVALID),
        ("\0carl\0x", INVALID),
        ("\0bob\0x", INVALID),
        (b"\0alice\0\xff", INVALID),
        ("bob\0alice\0wrong", INVALID),
        (
            "bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        ("\0\0secret", "Authentication failed: username not specified"),
        ("\0alice\0", "Authentication failed: password not specified"),
        ("", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        ("alice\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        ("\0alice\0secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        ("\0" * 1000, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    ],
)
async def test_a_failure_has_kafkas_text(token: str | bytes, told: str) -> None:
    assert str(await failure(server(), token)) == told


@given(st.binary())
def test_garbage_fails_the_exchange(token: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        start(server().evaluate(token), NodeLife())
