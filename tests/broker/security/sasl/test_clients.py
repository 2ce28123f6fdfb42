"""Brokers as SASL clients of each other: how they authenticate, and when they end an authentication."""

from __future__ import annotations

import pytest

from broker.security.sasl.clients import (
    ClientSettings,
    OAuthBearerClient,
    PlainClient,
    ScramClient,
    client_settings,
    sasl_client,
)
from broker.security.sasl.jaas import JaasFile, Jvm, parse_file
from broker.security.sasl.mechanism import AuthenticationFailed
from storage.config_def import ConfigError
from tests.broker.security.sasl.world import (
    NO_JVM,
    OAUTH_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    configs_of,
    now_ms,
)

SHA_256 = "SCRAM-SHA-256"


def of_broker(mechanism: str, config: str) -> ClientSettings:
    name = f"listener.name.sasl.{mechanism.lower()}.sasl.jaas.config"
    return client_settings(
        configs_of({"sasl.mechanism.inter.broker.protocol": mechanism, name: config}), NO_JVM
    )


@pytest.mark.parametrize(
    ("mechanism", "config", "expected"),
    [
        (
            "PLAIN",
            f'{PLAIN_MODULE} required username="a" password="b" user_a="b" tokenauth=true;',
            ClientSettings("PLAIN", "a", "b"),
        ),
        (SHA_256, f"{SCRAM_MODULE} required username=a password=b;", ClientSettings(SHA_256, "a", "b")),
        (
            SHA_256,
            f"{SCRAM_MODULE} required username=a password=b tokenauth=True;",
            ClientSettings(SHA_256, "a", "b", by_token=True),
        ),
        (
            "OAUTHBEARER",
            f"{OAUTH_MODULE} required unsecuredLoginStringClaim_sub=a;",
            ClientSettings("OAUTHBEARER", options={"unsecuredLoginStringClaim_sub": "a"}),
        ),
    ],
)
def test_a_broker_logs_in_by_its_login_module(mechanism: str, config: str, expected: ClientSettings) -> None:
    assert of_broker(mechanism, config) == expected


def test_of_the_modules_of_a_file_that_of_the_mechanism_counts() -> None:
    text = (
        f"KafkaServer {{ {SCRAM_MODULE} required username=s password=t;"
        f" {PLAIN_MODULE} required username=p password=q; }};"
    )
    jvm = Jvm({}, JaasFile("/jaas", parse_file(text, {})))
    configs = configs_of({"sasl.mechanism.inter.broker.protocol": "PLAIN"})
    assert client_settings(configs, jvm) == ClientSettings("PLAIN", "p", "q")


@pytest.mark.parametrize(
    ("mechanism", "config", "told"),
    [
        (
            "GSSAPI",
            "a.B required;",
            "Invalid value GSSAPI for configuration sasl.mechanism.inter.broker.protocol",
        ),
        (
            "PLAIN",
            f"{SCRAM_MODULE} required;",
            f"The SASL mechanism PLAIN needs the login module {PLAIN_MODULE}",
        ),
        ("PLAIN", f"{PLAIN_MODULE} required username=a;", "needs username and password"),
        (SHA_256, f"{SCRAM_MODULE} required password=secret;", "needs username and password"),
        ("OAUTHBEARER", f"{OAUTH_MODULE} required;", "needs options that create a token"),
    ],
)
def test_a_broker_that_cannot_log_in(mechanism: str, config: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        of_broker(mechanism, config)
    assert told in str(refused.value)
    assert "secret" not in str(refused.value)


def test_plain_sends_all_at_once() -> None:
    client = sasl_client(ClientSettings("PLAIN", "ü", "p"), now_ms)
    assert isinstance(client, PlainClient)
    assert client.first() == "\0ü\0p".encode()
    assert client.evaluate(b"") is None
    with pytest.raises(AuthenticationFailed):
        client.evaluate(b"more")


def test_oauthbearer_lets_the_server_fail_the_exchange() -> None:
    options = {"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginExtension_traceId": "7"}
    client = sasl_client(ClientSettings("OAUTHBEARER", options=options), now_ms)
    assert isinstance(client, OAuthBearerClient)
    first = client.first()
    assert first.startswith(b"n,,\x01auth=Bearer ")
    assert first.endswith(b".\x01traceId=7\x01\x01")
    assert client.evaluate(b'{"status":"invalid_token"}') == b"\x01"
    assert client.evaluate(b"") is None


@pytest.mark.parametrize(
    ("challenge", "told"),
    [
        (b"", "Invalid SCRAM server first message format"),
        (b"\xff", "Invalid SCRAM server first message format"),
        (b"r=nonce1,s=AAA,i=4096", "Invalid SCRAM server first message format"),
        (b"r=nonce1,s=AAAA,i=" + b"9" * 99, "Invalid SCRAM server first message format"),
        (b"r=other,s=AAAA,i=4096", "Invalid server nonce: does not start with client nonce"),
        (
            b"r=nonce1,s=AAAA,i=4095",
            "Requested iterations 4095 is less than the minimum 4096 for SCRAM-SHA-256",
        ),
    ],
)
def test_a_server_that_begins_in_another_way(challenge: bytes, told: str) -> None:
    client = ScramClient(SHA_256, "a", "b", nonce=lambda: "nonce")
    with pytest.raises(AuthenticationFailed) as failed:
        client.evaluate(challenge)
    assert str(failed.value) == told


@pytest.mark.parametrize(
    ("challenge", "told"),
    [
        (b"v=AAAA", "Invalid server signature in server final message"),
        (b"v=", "Invalid server signature in server final message"),
        (b"e=other-error", "Sasl authentication using SCRAM-SHA-256 failed with error: other-error"),
        (b"", "Invalid SCRAM server final message format"),
        (b"v=A", "Invalid SCRAM server final message format"),
    ],
)
def test_a_server_that_does_not_know_the_password_either(challenge: bytes, told: str) -> None:
    client = ScramClient(SHA_256, "a", "b", nonce=lambda: "nonce")
    client.evaluate(b"r=nonce1,s=AAAA,i=4096")
    with pytest.raises(AuthenticationFailed) as failed:
        client.evaluate(challenge)
    assert str(failed.value) == told
