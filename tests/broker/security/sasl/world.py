"""Helpers for tests of SASL: settings of a listener, whole exchanges, and tokens."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest

from broker.config import broker_config
from broker.security.listener_configs import ListenerConfigs
from broker.security.sasl.clients import SaslClient
from broker.security.sasl.jaas import Jvm
from broker.security.sasl.mechanism import AuthenticationFailed, SaslServer

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000
NO_JVM = Jvm({}, None)
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OAUTH_PACKAGE = "org.apache.kafka.common.security.oauthbearer"


def listener(**of_listener: str) -> ListenerConfigs:
    """Settings of the listener SASL. In argument names `_` is a dot and `__` a dash (`scram__sha__256_sasl...`)."""
    names = {name.replace("__", "-").replace("_", "."): value for name, value in of_listener.items()}
    return configs_of({f"listener.name.sasl.{name}": value for name, value in names.items()})


def configs_of(settings: dict[str, str]) -> ListenerConfigs:
    return ListenerConfigs(broker_config(settings).values, "SASL")


def now_ms() -> int:
    return NOW_MS


async def answer(server: SaslServer, token: bytes | str) -> bytes:
    return await server.evaluate(token.encode() if isinstance(token, str) else token)


async def failure(server: SaslServer, *tokens: bytes | str) -> AuthenticationFailed:
    """Send the tokens to the server, and return the error of the last one. All others must be accepted."""
    *before, last = tokens
    for token in before:
        await answer(server, token)
    with pytest.raises(AuthenticationFailed) as failed:
        await answer(server, last)
    assert not server.is_complete
    return failed.value


async def exchange(client: SaslClient, server: SaslServer) -> None:
    """Run the exchange of client and server to its end."""
    token: bytes | None = client.first()
    while token is not None:
        token = client.evaluate(await answer(server, token))
    assert server.mechanism == client.mechanism


def encoded(part: Any) -> str:
    """A part of a token in base64url."""
    text = (
        part
        if isinstance(part, bytes)
        else part.encode()
        if isinstance(part, str)
        else json.dumps(part).encode()
    )
    return urlsafe_b64encode(text).rstrip(b"=").decode()


def unsecured(claims: Any, header: Any = None, signature: str = "") -> str:
    return f"{encoded({'alg': 'none'} if header is None else header)}.{encoded(claims)}.{signature}"


def bearer(token: str, authorization_id: str = "", extensions: str = "") -> bytes:
    header = f"a={authorization_id}" if authorization_id else ""
    return f"n,{header},\x01auth=Bearer {token}\x01{extensions}\x01".encode()
