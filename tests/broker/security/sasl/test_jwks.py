"""The keys of a token issuer: which key verifies a token, and when the key set is fetched."""

from __future__ import annotations

import asyncio
import os
import ssl
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from broker.loop.coroutines import start
from broker.loop.life import NodeLife
from broker.security.sasl.jwks import (
    BODY_MAX,
    MISSING_KEY_ID_MS,
    Jwk,
    JwksEndpoint,
    JwksFile,
    JwksUnavailable,
    Refresh,
    fetch,
    location_of,
    parse_jwks,
    select,
)
from broker.security.sasl.oauthbearer import InvalidToken
from storage.config_def import ConfigError
from tests.broker.security.sasl.issuer import jwk, jwks
from tests.broker.security.sasl.world import NOW_MS

SETTING = "sasl.oauthbearer.jwks.endpoint.url"
REFRESH = Refresh(refresh_ms=3_600_000, retry_backoff_ms=100, retry_backoff_max_ms=350)


def chosen(algorithm: str, key_id: str | None, *keys: object) -> object:
    found = select(parse_jwks(jwks(*keys)), algorithm, key_id)
    return None if found is None else found.members["kid"]


@pytest.mark.parametrize(
    ("algorithm", "key_id", "names", "expected"),
    [
        ("ES256", "ec", "rsa ec", "ec"),
        ("ES256", "other", "ec", None),
        ("ES256", None, "rsa ec", "ec"),
        ("ES256", None, "other ec", "other"),
        ("RS256", "ec", "ec", None),
        ("HS256", "rsa", "rsa", None),
        ("ES384", "ec", "ec", None),
        ("ES384", None, "ec p384", "p384"),
        ("EdDSA", "ed", "ed", "ed"),
    ],
)
def test_a_token_is_verified_with_the_key_that_its_header_names(
    algorithm: str, key_id: str | None, names: str, expected: str | None
) -> None:
    assert chosen(algorithm, key_id, *map(jwk, names.split())) == expected


@pytest.mark.parametrize(
    ("members", "is_good"),
    [
        ({"use": "enc"}, False),
        ({"use": "sig", "key_ops": ["verify"]}, True),
        ({"key_ops": ["sign"]}, False),
        ({"alg": "RS512"}, True),
        ({"x": "AA"}, False),
        ({"kty": "XX"}, False),
        ({"crv": None}, False),
    ],
)
def test_a_key_must_be_one_that_verifies(members: dict[str, object], is_good: bool) -> None:
    assert chosen("ES256", "ec", jwk("ec", **members)) == ("ec" if is_good else None)


def test_between_several_keys_their_algorithm_decides() -> None:
    assert chosen("ES256", None, jwk("ec", alg="ES384"), jwk("other", alg="ES256")) == "other"


def test_keys_that_cannot_be_used_do_no_harm() -> None:
    assert chosen("ES256", None, 5, None, {}, {"kty": "EC", "crv": "P-256"}, jwk("ec")) == "ec"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys":{}}', '{"keys":'])
def test_what_is_no_set_of_keys_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_jwks(text)


async def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(jwks(jwk("ec")))
    file = JwksFile(SETTING, path)
    assert await file.find("ES256", "other") is None
    path.write_text(jwks(jwk("other")))
    os.utime(path, ns=(1, 1))
    assert await file.find("ES256", "other") is not None
    path.write_text("{")
    os.utime(path, ns=(2, 2))
    with pytest.raises(InvalidToken, match="no valid JSON"):
        await file.find("ES256", "other")
    path.unlink()
    with pytest.raises(InvalidToken):
        await file.find("ES256", "other")


def test_a_file_that_is_not_there_is_no_directory_and_has_keys(tmp_path: Path) -> None:
    option = f"The OAuth configuration option {SETTING}"
    path = tmp_path / "jwks.json"
    with pytest.raises(ConfigError) as refused:
        JwksFile(SETTING, path)
    assert str(refused.value) == f"{option} contains a file ({path}) that doesn't exist"
    with pytest.raises(ConfigError, match=r"references a directory .*, not a file"):
        JwksFile(SETTING, tmp_path)
    path.write_text("[]")
    with pytest.raises(ConfigError, match="does not include the keys member"):
        JwksFile(SETTING, path)


class Issuer:
    """A JWKS endpoint with a manual clock."""

    def __init__(self) -> None:
        self.now = NOW_MS
        self.keys = jwks(jwk("ec"))
        self.fetches = 0
        self.is_down = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.endpoint = JwksEndpoint("https://issuer", self.fetch, REFRESH, lambda: self.now)

    async def fetch(self) -> bytes:
        self.fetches += 1
        await self.may_answer.wait()
        if self.is_down:
            raise JwksUnavailable("down")
        return self.keys.encode()

    async def find(self, key_id: str | None = "ec") -> Jwk | None:
        return await self.endpoint.find("ES256", key_id)


async def test_keys_are_fetched_once_until_they_are_too_old() -> None:
    issuer = Issuer()
    assert await issuer.find() is not None
    issuer.now += REFRESH.refresh_ms - 1
    assert await issuer.find() is not None
    assert issuer.fetches == 1
    issuer.now += 1
    issuer.keys = jwks(jwk("other"))
    assert await issuer.find() is None
    assert issuer.fetches == 2


async def test_an_unknown_key_is_looked_for_before_the_next_token() -> None:
    issuer = Issuer()
    await issuer.find()
    issuer.keys = jwks(jwk("ec"), jwk("other"))
    issuer.now += 1000
    assert await issuer.find("other") is None
    assert issuer.fetches == 1
    assert await issuer.find("other") is not None
    assert issuer.fetches == 2


async def test_a_key_that_stays_unknown_is_looked_for_once_a_minute() -> None:
    issuer = Issuer()
    for _ in range(5):
        await issuer.find("other")
        issuer.now += 1000
    assert issuer.fetches == 2
    issuer.now += MISSING_KEY_ID_MS
    await issuer.find("other")
    await issuer.find()
    assert issuer.fetches == 3


async def test_many_unknown_keys_do_not_make_many_fetches() -> None:
    issuer = Issuer()
    for number in range(100):
        await issuer.find(f"unknown-{number}")
    await issuer.find("x" * 1001)
    assert issuer.fetches == 1
    issuer.now += 300
    await issuer.find()
    assert issuer.fetches == 2


async def test_a_token_without_a_key_id_leads_to_no_fetch() -> None:
    issuer = Issuer()
    issuer.keys = jwks(jwk("rsa"))
    for _ in range(3):
        assert await issuer.find(None) is None
        issuer.now += 1000
    assert issuer.fetches == 1


async def test_a_failed_fetch_is_repeated_after_a_pause_that_grows() -> None:
    issuer = Issuer()
    issuer.is_down = True
    fetched_ms = []
    for _ in range(20):
        before = issuer.fetches
        assert await issuer.find() is None
        fetched_ms += [issuer.now - NOW_MS] * (issuer.fetches - before)
        issuer.now += 50
    assert fetched_ms == [0, 100, 300, 650]
    issuer.is_down = False
    issuer.now += 350
    assert await issuer.find() is not None


async def test_while_the_endpoint_is_down_the_old_keys_are_good() -> None:
    issuer = Issuer()
    await issuer.find()
    issuer.is_down = True
    issuer.now += REFRESH.refresh_ms
    assert await issuer.find() is not None
    issuer.keys, issuer.is_down = "no keys", False
    issuer.now += 100
    assert await issuer.find() is not None
    assert issuer.fetches == 3


async def test_tokens_wait_for_the_first_fetch_together_and_for_no_other() -> None:
    issuer = Issuer()
    issuer.may_answer.clear()
    first = [asyncio.create_task(issuer.find()) for _ in range(3)]
    await asyncio.sleep(0)
    issuer.may_answer.set()
    assert all(await asyncio.gather(*first))
    assert issuer.fetches == 1
    issuer.may_answer.clear()
    issuer.now += REFRESH.refresh_ms
    waiting = asyncio.create_task(issuer.find())
    await asyncio.sleep(0)
    assert await issuer.find() is not None
    assert not waiting.done()
    issuer.may_answer.set()
    await waiting
    assert issuer.fetches == 2


async def test_a_client_that_goes_away_leaves_the_fetch_to_others() -> None:
    issuer = Issuer()
    issuer.may_answer.clear()
    gone = asyncio.create_task(issuer.find())
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # the fetch runs in a task of its own
    gone.cancel()
    issuer.may_answer.set()
    assert await issuer.find() is not None
    assert issuer.fetches == 2


@pytest.fixture
async def endpoint():
    """The URL of an HTTP server with a key set (`/keys`), a body that is too large (`/large`), and 404 for all else."""

    async def respond(request: web.Request) -> web.Response:
        match request.path:
            case "/keys":
                return web.Response(text=jwks(jwk("ec")))
            case "/large":
                return web.Response(body=b" " * (BODY_MAX + 1))
        return web.Response(status=404)

    application = web.Application()
    application.router.add_get("/{path:.*}", respond)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]
    yield f"http://{host}:{port}"
    await runner.cleanup()


async def test_keys_come_by_http(endpoint: str) -> None:
    assert select(parse_jwks(await fetch(f"{endpoint}/keys")), "ES256", "ec") is not None


async def test_a_login_that_runs_in_no_task_fetches_keys_too(endpoint: str) -> None:
    keys = JwksEndpoint("keys", partial(fetch, f"{endpoint}/keys"), Refresh(1000, 100, 1000), lambda: NOW_MS)
    found = asyncio.Queue[Any]()
    # A connection calls it like this, from a callback of the event loop and outside of any task.
    asyncio.get_running_loop().call_soon(
        lambda: found.put_nowait(start(keys.find("ES256", "ec"), NodeLife()))
    )
    assert await (await found.get()) is not None


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/none", r"Non 200 status code \(404 Not Found\)"), ("/large", "More than 524288 bytes")],
)
async def test_what_comes_else_is_no_set_of_keys(endpoint: str, path: str, reason: str) -> None:
    with pytest.raises(JwksUnavailable, match=reason):
        await fetch(endpoint + path)


@pytest.mark.parametrize(
    "address", ["http://user:secret@127.0.0.1:1/", "http://user:secret@[bad/", "http://:x"]
)
async def test_an_endpoint_that_is_not_there_is_told_without_its_password(address: str) -> None:
    with pytest.raises(JwksUnavailable) as failed:
        await fetch(address, ssl.create_default_context())
    assert "secret" not in str(failed.value)
    assert failed.value.__suppress_context__


def test_a_location_has_no_password() -> None:
    assert location_of("https://user:secret@host:1/path?key=secret") == "https://host:1/path"
