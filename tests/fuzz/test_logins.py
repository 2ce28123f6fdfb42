"""Broken logins get a response or are closed, never authenticated; no error or secret is logged, and no other client waits.

python -m tests.fuzz.logins --seed 7 --clients 5000        # one stream again, with this length
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.config import broker_config
from broker.security.listener_configs import ListenerConfigs
from broker.security.sasl import plain
from broker.security.sasl.authenticator import Mechanism
from broker.security.sasl.mechanism import AuthenticationFailed
from broker.security.sasl.scram import ScramServer, credential
from broker.security.sasl.settings import sasl_settings
from tests.broker.security.sasl.world import NO_JVM
from tests.fuzz import tokens
from tests.fuzz.logins import fuzz, settings_of
from tests.fuzz.playing import Failure
from tests.simulation.loop import START_MS

SEEDS = int(os.environ.get("ODRADEK_FUZZ_SEEDS", "20"))


def test_a_stream_of_logins():
    work = fuzz(seed=1, clients=60)
    assert work.answered > 10
    assert work.closed > 20
    assert work.known > 5


async def test_no_token_is_too_large_or_too_deep(tmp_path: Path):
    """Each huge token gets an error or the next message of the exchange.

    It is sent as the first token, and for SCRAM also as the last token.
    """
    count = 0
    for mechanism in mechanisms(tmp_path / "keys.json"):
        for huge in tokens.HUGE:
            for before in ([], [b"n,,n=alice,r=abc"] if mechanism.name.startswith("SCRAM") else []):
                server = mechanism.server()
                for token in (*before, huge(b"\0alice\0password")):
                    try:
                        assert isinstance(await server.evaluate(token), bytes)
                    except AuthenticationFailed:
                        count += 1
    assert count > 100


def mechanisms(keys: Path) -> Iterator[Mechanism]:
    """Yield the mechanisms of all listeners."""
    keys.write_text(tokens.JWKS)
    values = broker_config(settings_of(keys)).values
    keys_of_alice = credential(tokens.PASSWORD, "SCRAM-SHA-256")

    async def no_token(token_id: str, mechanism: str) -> None:
        return None

    for listener in ("SASL", "SIGNED"):
        settings = sasl_settings(ListenerConfigs(values, listener), NO_JVM)
        yield from settings.servers(lambda *_: keys_of_alice, no_token, lambda: START_MS).values()


def test_a_mechanism_that_fails_is_found(monkeypatch: pytest.MonkeyPatch):
    first = ScramServer._client_first

    def broken(self: Any, message: str) -> Any:
        try:
            return first(self, message)
        except AuthenticationFailed:
            raise RuntimeError("a defect") from None

    monkeypatch.setattr(ScramServer, "_client_first", broken)
    with pytest.raises(Failure, match=r"client \d+, Talk\(.*SCRAM.*a defect"):
        fuzz(seed=1, clients=300)


def test_an_authentication_without_a_proof_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plain.PlainUsers, "authenticate", lambda *_: True)
    with pytest.raises(Failure, match=r"PLAIN.*authenticated as .* without a proof"):
        fuzz(seed=1, clients=300)


def test_a_secret_in_the_log_is_found(monkeypatch: pytest.MonkeyPatch):
    authenticate = plain.PlainUsers.authenticate

    def talkative(self: Any, user: str, password: str) -> bool:
        if authenticate(self, user, password):
            return True
        raise AuthenticationFailed("no", f"{password} is not the password of {user}")

    monkeypatch.setattr(plain.PlainUsers, "authenticate", talkative)
    with pytest.raises(Failure, match=r"a secret in the log"):
        fuzz(seed=1, clients=300)


def test_too_many_kinds_of_lines_are_found(monkeypatch: pytest.MonkeyPatch):
    import broker.net.connection as connection

    close = connection.Connection.close
    monkeypatch.setattr(
        connection.Connection, "close", lambda self, reason, **facts: close(self, f"{reason} {facts}")
    )
    with pytest.raises(Failure, match=r"\d+ kinds of log lines"):
        fuzz(seed=1, clients=600)


@pytest.mark.more
def test_a_longer_stream():
    fuzz(seed=2, clients=1_000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 100 + SEEDS))
def test_long_streams(seed: int):
    fuzz(seed, clients=5_000)
