"""OAUTHBEARER: the client's first message, and the messages after a rejected token (recorded from 4.3.1)."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.security.sasl.failures import InvalidCredentials, Unanswered
from broker.security.sasl.mechanism import AuthenticationFailed
from broker.security.sasl.oauthbearer import InvalidToken, MalformedToken, OAuthBearerServer, Token, Validate
from tests.broker.security.sasl.world import NOW_MS, answer, bearer, failure

ALICE = Token("alice", NOW_MS)


async def accept(value: str) -> Token:
    assert value == "abc.def"
    return ALICE


async def accept_any(value: str) -> Token:
    return ALICE


async def accept_later(value: str) -> Token:
    await asyncio.sleep(0)
    return await accept(value)


async def refuse(value: str) -> Token:
    raise InvalidToken("why")


async def refuse_later(value: str) -> Token:
    await asyncio.sleep(0)
    return await refuse(value)


async def refuse_the_scope(value: str) -> Token:
    raise InvalidToken("why", scope="[a, b]")


async def stumble(value: str) -> Token:
    raise MalformedToken("why")


async def stumble_later(value: str) -> Token:
    await asyncio.sleep(0)
    return await stumble(value)


@pytest.mark.parametrize("validate", [accept, accept_later])
@pytest.mark.parametrize(
    "first",
    [
        bearer("abc.def"),
        bearer("abc.def", "alice"),
        bearer("abc.def", extensions="traceId=1\x01other=a=b c\x01"),
        b"n,,\x01auth=BEARER   abc.def\x01\x01",
        b"n,,\x01first=1\x01auth=Bearer abc.def\x01\x01",
        b"n,,\x01auth=Bearer no\x01auth=Bearer abc.def\x01\x01",
    ],
)
async def test_a_token_authenticates_its_principal(first: bytes, validate: Validate) -> None:
    server = OAuthBearerServer(validate)
    assert await answer(server, first) == b""
    assert (server.is_complete, server.user, server.expires_ms, server.by_token) == (
        True,
        "alice",
        NOW_MS,
        False,
    )


async def test_another_authorization_id_fails() -> None:
    assert str(await failure(OAuthBearerServer(accept), bearer("abc.def", "bob"))) == (
        "Authentication failed: Client requested an authorization id (bob) that is different "
        "from the token's principal name (alice)"
    )


@pytest.mark.parametrize(
    ("validate", "json"),
    [
        (refuse, '{"status":"invalid_token"}'),
        (refuse_later, '{"status":"invalid_token"}'),
        (refuse_the_scope, '{"status":"insufficient_scope", "scope":"[a, b]"}'),
    ],
)
async def test_a_refusal_is_told_twice(validate: Validate, json: str) -> None:
    """The server sends the error of a refused token as a challenge, and again when the client has responded to it (RFC 7628
    3.2.2)."""
    server = OAuthBearerServer(validate)
    assert await answer(server, bearer("abc.def")) == json.encode()
    failed = await failure(server, b"\x01")
    assert (str(failed), failed.reason) == (json, f"{json}: why")


async def test_a_client_that_does_not_hear_a_refusal_is_logged_with_it() -> None:
    """If the client's next message ignores the refusal of its token, the logged reason contains the refusal. kafkajs and
    aiokafka continue as if the token were accepted. sarama sends a backslash and x01 instead of the byte 1."""
    server = OAuthBearerServer(refuse)
    assert server.refused == ""
    await answer(server, bearer("abc.def"))
    assert server.refused == "why"
    failed = await failure(server, rb"\x01")
    assert failed.reason == f"{FIRST}; the token before it is refused: why"


async def test_after_a_refusal_another_token_may_come() -> None:
    async def validate(value: str) -> Token:
        return ALICE if value == "good" else await refuse(value)

    server = OAuthBearerServer(validate)
    await answer(server, bearer("bad"))
    await answer(server, bearer("good"))
    assert server.is_complete


@pytest.mark.parametrize("validate", [stumble, stumble_later])
async def test_what_kafka_stumbles_over_goes_unanswered(validate: Validate) -> None:
    assert isinstance(await failure(OAuthBearerServer(validate), bearer("abc.def")), Unanswered)


async def test_half_a_character_is_no_part_of_a_principal() -> None:
    async def validate(value: str) -> Token:
        return Token("a\ud800", NOW_MS)

    server = OAuthBearerServer(validate)
    await answer(server, bearer("abc.def"))
    assert server.user == "a?"


FIRST = "Invalid OAUTHBEARER client first message"


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"", FIRST),
        (b"\x01", FIRST),
        (b"n,,\x01auth=Bearer abc.def\x01", FIRST),
        (b"y,,\x01auth=Bearer abc.def\x01\x01", FIRST),
        (b"n,a=,\x01auth=Bearer abc.def\x01\x01", FIRST),
        (b"n,,auth=Bearer abc.def\x01\x01", FIRST),
        (b"n,,\x01auth=Bearer \xc3\xa9\x01\x01", FIRST),
        (b"n,,\x01auth=Bearer abc.def\x01\x01\x01", FIRST),
        (b"n,,\x01x1=1\x01auth=Bearer abc.def\x01\x01", FIRST),
        (b"n,,\x01" + b"a=b\x01" * 100_000, FIRST),
        (b"n,,\x01\x01", f"{FIRST}: 'auth' not specified"),
        (b"n,,\x01Auth=Bearer abc.def\x01\x01", f"{FIRST}: 'auth' not specified"),
        (b"n,,\x01auth=Bearer\x01\x01", f"{FIRST}: invalid 'auth' format"),
        (b"n,,\x01auth=Bearer\tabc\x01\x01", f"{FIRST}: invalid 'auth' format"),
        (b"n,,\x01auth=Bearer a=b\x01\x01", f"{FIRST}: invalid 'auth' format"),
    ],
)
async def test_a_first_message_that_fails(first: bytes, reason: str) -> None:
    failed = await failure(OAuthBearerServer(accept), first)
    assert str(failed) == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"
    )
    assert (type(failed), failed.reason) == (InvalidCredentials, reason)


async def test_another_scheme_goes_unanswered() -> None:
    assert isinstance(await failure(OAuthBearerServer(accept), b"n,,\x01auth=Basic abc\x01\x01"), Unanswered)


PIECES = ["n", ",", "a=alice", "\x01", "auth", "=", "Bearer", " ", "abc.def", "é", "\0"]


@given(st.binary() | st.lists(st.sampled_from(PIECES)).map(lambda pieces: "".join(pieces).encode()))
async def test_garbage_fails_the_exchange(token: bytes) -> None:
    with contextlib.suppress(AuthenticationFailed):
        await answer(OAuthBearerServer(accept_any), token)
