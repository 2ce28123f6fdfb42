"""Errors contain no password, key or token: a secret is put into the input and searched for in the error."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.config.definitions import defaults
from broker.metadata.token_control import TokenCredential
from broker.security.listener_configs import ListenerConfigs
from broker.security.sasl.clients import ClientSettings, ScramClient, client_settings, sasl_client
from broker.security.sasl.jaas import JaasFile, Jvm, parse_config, parse_file, server_context
from broker.security.sasl.jwks import JwksEndpoint, Refresh, parse_jwks
from broker.security.sasl.jwt_validator import Expectations, JwtValidator
from broker.security.sasl.mechanism import AuthenticationFailed
from broker.security.sasl.oauth_settings import ALLOWED_URLS, SecuredSettings
from broker.security.sasl.oauthbearer import OAuthBearerServer
from broker.security.sasl.plain import PlainServer, PlainUsers
from broker.security.sasl.scram import ScramServer, credential
from broker.security.sasl.settings import sasl_settings
from broker.security.sasl.stream_tokenizer import tokens
from broker.security.sasl.unsecured_jws import UnsecuredValidator, validator_options
from storage.config_def import ConfigError
from tests.broker.security.sasl.issuer import SECRET as ISSUERS_SECRET
from tests.broker.security.sasl.issuer import jwk, jwks, signed
from tests.broker.security.sasl.world import (
    NO_JVM,
    OAUTH_MODULE,
    OAUTH_PACKAGE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    answer,
    bearer,
    listener,
    now_ms,
    unsecured,
)

PLANTED = "PLANTED"
SECRET = f"a-{PLANTED}-b"
PLAIN_CONFIG = f'{PLAIN_MODULE} required username="alice" password="{SECRET}" user_alice="{SECRET}";'


def said(error: BaseException) -> str:
    """Everything that a log could contain of an exception."""
    reason = getattr(error, "reason", "")
    return f"{error} {error!r} {error.args} {reason} {''.join(traceback.format_exception(error))}"


def spoiled(text: str) -> Iterator[str]:
    """For each position, the text with one character removed, with one character added, and truncated at this
    position."""
    for at in range(len(text)):
        yield text[:at]
        yield text[:at] + text[at + 1 :]
        for more in "\"'= ;{}@1\n":
            yield text[:at] + more + text[at:]


@pytest.mark.parametrize("parse", [parse_config, lambda text: parse_file(f"KafkaServer {{ {text} }};", {})])
def test_a_spoiled_configuration_is_refused_without_its_passwords(parse: Callable[[str], object]) -> None:
    short = f'a.B required username="x" password="{SECRET}" user_a={SECRET};'
    refusals = []
    for text in spoiled(short):
        try:
            parse(text)
        except ConfigError as error:
            refusals.append(said(error))
    assert len(refusals) > 100
    assert not [each for each in refusals if PLANTED in each]


def test_spoiled_settings_are_refused_without_their_passwords() -> None:
    refusals = []
    for text in spoiled(f"{SCRAM_MODULE} required password={SECRET};"):
        values = {
            **defaults(),
            "listener.name.x.plain.sasl.jaas.config": text,
            "sasl.enabled.mechanisms": ("PLAIN",),
        }
        try:
            sasl_settings(ListenerConfigs(values, "X"), NO_JVM)
        except ConfigError as error:
            refusals.append(said(error))
    assert len(refusals) > 100
    assert not [each for each in refusals if PLANTED in each]


async def no_token(token_id: str) -> None:
    return None


def validator(*keys: Any) -> JwtValidator:
    async def fetch() -> bytes:
        return jwks(*keys).encode()

    source = JwksEndpoint("https://issuer", fetch, Refresh(1, 1, 1), now_ms)
    return JwtValidator(Expectations(("x",), "y", 0, "scope", "sub"), source, now_ms)


def plain_server() -> PlainServer:
    return PlainServer(
        PlainUsers(server_context(listener(plain_sasl_jaas_config=PLAIN_CONFIG), "PLAIN", NO_JVM))
    )


def scram_server() -> ScramServer:
    return ScramServer("SCRAM-SHA-256", {"alice": credential(SECRET, "SCRAM-SHA-256")}.get, no_token)


def unsecured_server() -> OAuthBearerServer:
    return OAuthBearerServer(UnsecuredValidator(validator_options({}), now_ms))


def secured_server() -> OAuthBearerServer:
    return OAuthBearerServer(
        validator(jwk("ec"), jwk("hmac", k=None), {"kty": "oct", "k": SECRET, "kid": "hmac"})
    )


@pytest.mark.parametrize(
    ("server", "messages"),
    [
        (plain_server, [f"\0alice\0{SECRET}x"]),
        (plain_server, [f"\0bob\0{SECRET}"]),
        (plain_server, [f"\0{SECRET}\0"]),
        (plain_server, [f"bob\0alice\0{SECRET}"]),
        (plain_server, [f"\0alice\0{SECRET}\0"]),
        (plain_server, [SECRET]),
        (scram_server, [f"n,,n=alice,r=x,p={SECRET},"]),
        (scram_server, [f"\0alice\0{SECRET}"]),
        (scram_server, ["n,,n=alice,r=x", f"c=biws,r=x,p={SECRET}"]),
        (scram_server, ["n,,n=alice,r=x", f"c=biws,r={SECRET},p=AAAA"]),
        *(
            (server, [message, b"\x01"])
            for server in (unsecured_server, secured_server)
            for message in (
                bearer(SECRET),
                bearer(unsecured({"sub": SECRET, "exp": SECRET})),
                bearer(unsecured({"sub": "alice", "exp": 1, "scope": SECRET, "jti": SECRET})),
                bearer(unsecured("{}", {"alg": SECRET})),
                bearer(unsecured(f'{{"{SECRET}')),
                bearer("a.b.c", extensions=f"x={SECRET}\x01\x02"),
                f"n,,\x01auth=Basic {SECRET}\x01\x01".encode(),
            )
        ),
    ],
)
async def test_a_failure_says_nothing_of_what_the_client_sent(
    server: Callable[[], Any], messages: list[str | bytes]
) -> None:
    given, failures = server(), []
    for message in messages:
        try:
            await answer(given, message)
        except AuthenticationFailed as failed:
            failures.append(failed)
    assert failures
    assert not [each for each in failures if PLANTED in said(each)]
    assert PLANTED not in repr(given)


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": SECRET},
        {"aud": "x", "iss": SECRET},
        {"aud": "x", "iss": "y", "jti": 5, "sub": SECRET},
        {"aud": "x", "iss": "y", "sub": SECRET, "exp": 1, "iat": 0},
    ],
)
async def test_a_refused_token_is_not_told(claims: dict[str, Any]) -> None:
    server, token = secured_server(), signed(claims)
    await answer(server, bearer(token))
    with pytest.raises(AuthenticationFailed) as failed:
        await answer(server, b"\x01")
    assert PLANTED not in said(failed.value)
    assert not [part for part in token.split(".") if part in said(failed.value)]


def test_nothing_that_holds_a_secret_shows_it() -> None:
    configs = listener(
        sasl_enabled_mechanisms="PLAIN,OAUTHBEARER",
        plain_sasl_jaas_config=PLAIN_CONFIG,
        oauthbearer_sasl_jaas_config=f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="{SECRET}";',
        oauthbearer_sasl_server_callback_handler_class=f"{OAUTH_PACKAGE}.OAuthBearerValidatorCallbackHandler",
        oauthbearer_sasl_oauthbearer_jwks_endpoint_url=f"http://user:{SECRET}@issuer/{'path'}?key={SECRET}",
        sasl_oauthbearer_expected_audience="a",
        sasl_oauthbearer_expected_issuer="b",
        sasl_mechanism_inter_broker_protocol="PLAIN",
    )
    settings = sasl_settings(configs, NO_JVM)
    client = ClientSettings("PLAIN", "alice", SECRET, options={"password": SECRET})
    file = JaasFile("/jaas", parse_file(f"KafkaServer {{ {PLAIN_CONFIG} }};", {}))
    keys = credential(SECRET, "SCRAM-SHA-256", salt=SECRET.encode())
    holders = [
        settings,
        *(each.oauth for each in settings.mechanisms),
        settings.servers(
            lambda user, mechanism: None, lambda token_id, mechanism: no_token(token_id), now_ms
        ),
        server_context(configs, "PLAIN", NO_JVM),
        file,
        Jvm({}, file),
        list(tokens(PLAIN_CONFIG, "")),
        client,
        sasl_client(client, now_ms),
        ScramClient("SCRAM-SHA-256", "alice", SECRET),
        keys,
        TokenCredential(*keys, "User:alice", 0),
        parse_jwks(jwks({"kty": "oct", "k": SECRET})),
    ]
    assert any(isinstance(getattr(each, "settings", None), SecuredSettings) for each in holders)
    assert not [each for each in holders if PLANTED in repr(each) or PLANTED in str(each)]
    assert ISSUERS_SECRET.decode() not in repr(parse_jwks(jwks(jwk("hmac"))))


def test_a_url_that_is_not_allowed_is_told_without_its_password() -> None:
    configs = listener(
        sasl_enabled_mechanisms="OAUTHBEARER",
        oauthbearer_sasl_jaas_config=f"{OAUTH_MODULE} required;",
        oauthbearer_sasl_server_callback_handler_class=f"{OAUTH_PACKAGE}.OAuthBearerValidatorCallbackHandler",
        sasl_oauthbearer_jwks_endpoint_url=f"https://user:{SECRET}@issuer",
        sasl_oauthbearer_expected_audience="a",
        sasl_oauthbearer_expected_issuer="b",
    )
    with pytest.raises(ConfigError) as refused:
        sasl_settings(configs, Jvm({ALLOWED_URLS: ""}, None))
    assert PLANTED not in said(refused.value)


def test_a_broker_that_cannot_log_in_does_not_tell_its_password() -> None:
    name = "listener.name.x.plain.sasl.jaas.config"
    values = {**defaults(), name: f'{PLAIN_MODULE} required password="{SECRET}";'}
    configs = ListenerConfigs({**values, "sasl.mechanism.inter.broker.protocol": "PLAIN"}, "X")
    with pytest.raises(ConfigError) as refused:
        client_settings(configs, NO_JVM)
    assert PLANTED not in said(refused.value)
