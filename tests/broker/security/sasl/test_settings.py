"""The SASL settings of a listener: which clients may authenticate by which mechanism, and which settings fail the start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from broker.security.sasl.clients import ClientSettings, sasl_client
from broker.security.sasl.jaas import JaasFile, Jvm, parse_file
from broker.security.sasl.scram import credential
from broker.security.sasl.settings import (
    SaslSettings,
    check_inter_broker,
    in_order_of_hash_set,
    sasl_settings,
)
from storage.config_def import ConfigError
from tests.broker.security.sasl.world import (
    NO_JVM,
    OAUTH_MODULE,
    OAUTH_PACKAGE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    configs_of,
    exchange,
    listener,
    now_ms,
)
from tests.support.deadlines import HANG_S

ROOT = Path(__file__).parents[4]
PLAIN_CONFIG = f'{PLAIN_MODULE} required user_alice="secret";'
KEYS = {mechanism: credential("secret", mechanism) for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")}


def find_user(user: str, mechanism: str) -> Any:
    return KEYS[mechanism] if user == "alice" else None


async def find_token(token_id: str, mechanism: str) -> None:
    return None


def settings(jvm: Jvm = NO_JVM, **of_listener: Any) -> SaslSettings:
    return sasl_settings(listener(**of_listener), jvm)


def plain(**of_listener: Any) -> SaslSettings:
    return settings(sasl_enabled_mechanisms="PLAIN", plain_sasl_jaas_config=PLAIN_CONFIG, **of_listener)


def refusal(jvm: Jvm = NO_JVM, **of_listener: str) -> str:
    with pytest.raises(ConfigError) as refused:
        settings(jvm, **of_listener)
    return str(refused.value)


ALL: dict[str, Any] = {
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "plain_sasl_jaas_config": PLAIN_CONFIG,
    "scram__sha__256_sasl_jaas_config": f"{SCRAM_MODULE} required;",
    "scram__sha__512_sasl_jaas_config": f"{SCRAM_MODULE} required;",
    "oauthbearer_sasl_jaas_config": f"{OAUTH_MODULE} required;",
}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
async def test_a_listener_has_a_server_for_each_mechanism(mechanism: str) -> None:
    servers = settings(**ALL).servers(find_user, find_token, now_ms)
    server = servers[mechanism].server()
    options = {"unsecuredLoginStringClaim_sub": "alice"}
    client = sasl_client(ClientSettings(mechanism, "alice", "secret", options=options), now_ms)
    await exchange(client, server)
    assert (server.is_complete, server.user) == (True, "alice")
    assert servers[mechanism].server() is not server


async def test_users_of_one_mechanism_are_none_of_the_other() -> None:
    asked: list[tuple[str, str]] = []

    def find(user: str, mechanism: str) -> None:
        asked.append((user, mechanism))

    async def find_later(token_id: str, mechanism: str) -> None:
        asked.append((token_id, mechanism))

    servers = settings(**ALL).servers(find, find_later, now_ms)
    for mechanism, by_token in (("SCRAM-SHA-256", False), ("SCRAM-SHA-512", True)):
        client = sasl_client(ClientSettings(mechanism, "bob", "x", by_token), now_ms)
        with pytest.raises(Exception, match="due to invalid credentials"):
            await exchange(client, servers[mechanism].server())
    assert asked == [("bob", "SCRAM-SHA-256"), ("bob", "SCRAM-SHA-512")]


def test_the_mechanisms_are_told_in_javas_order() -> None:
    """Brokers list their SASL mechanisms in the order of Java's ``new ArrayList<>(new HashSet<>(List.of(...)))``,
    as recorded."""
    assert list(settings(**ALL).servers(find_user, find_token, now_ms)) == [
        "PLAIN",
        "SCRAM-SHA-512",
        "SCRAM-SHA-256",
        "OAUTHBEARER",
    ]
    given = ["OAUTHBEARER", "SCRAM-SHA-512", "PLAIN", "SCRAM-SHA-256"]
    assert in_order_of_hash_set(given) == ["SCRAM-SHA-512", "PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"]


def test_limits_are_those_of_the_mechanism_of_the_listener_of_the_broker() -> None:
    found = plain()
    assert (found.receive_size_max, found.mechanisms[0].reauth_ms_max) == (524_288, 0)
    found = plain(
        sasl_server_max_receive_size="100", connections_max_reauth_ms="2", plain_connections_max_reauth_ms="3"
    )
    assert (found.receive_size_max, found.mechanisms[0].reauth_ms_max) == (100, 3)
    assert plain(connections_max_reauth_ms="2").mechanisms[0].reauth_ms_max == 2
    assert plain(connections_max_reauth_ms="-1").mechanisms[0].reauth_ms_max == 0
    of_broker = {
        "listener.name.sasl.plain.sasl.jaas.config": PLAIN_CONFIG,
        "sasl.enabled.mechanisms": "PLAIN",
        "connections.max.reauth.ms": "4",
    }
    assert sasl_settings(configs_of(of_broker), NO_JVM).mechanisms[0].reauth_ms_max == 4


async def test_a_section_of_a_file_is_for_all_mechanisms() -> None:
    text = f'KafkaServer {{ {SCRAM_MODULE} required username="a" password="b"; {PLAIN_CONFIG} }};'
    jvm = Jvm({}, JaasFile("/jaas", parse_file(text, {})))
    found = settings(jvm, sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256")
    server = found.servers(find_user, find_token, now_ms)["PLAIN"].server()
    await exchange(sasl_client(ClientSettings("PLAIN", "alice", "secret"), now_ms), server)
    assert server.is_complete


def test_kerberos_is_refused_in_a_sentence() -> None:
    told = refusal()
    assert told.startswith("Listener SASL enables the SASL mechanism GSSAPI, which is Kafka's default")
    assert "listener.name.sasl.sasl.enabled.mechanisms" in told


@pytest.mark.parametrize(
    ("of_listener", "told"),
    [
        ({"sasl_enabled_mechanisms": ""}, "No SASL mechanisms are enabled"),
        (
            {"sasl_enabled_mechanisms": "plain"},
            "Invalid value plain for configuration sasl.enabled.mechanisms: "
            "Odradek supports PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER",
        ),
        (
            {"sasl_enabled_mechanisms": "PLAIN"},
            "Could not find a 'KafkaServer' or 'sasl.KafkaServer' entry in the JAAS configuration. "
            "System property 'java.security.auth.login.config' is not set",
        ),
        (
            {"sasl_enabled_mechanisms": "PLAIN", "plain_sasl_jaas_config": f"{SCRAM_MODULE} required;"},
            f"The SASL mechanism PLAIN needs the login module {PLAIN_MODULE}, not {SCRAM_MODULE}",
        ),
        (
            {"sasl_enabled_mechanisms": "PLAIN", "plain_sasl_jaas_config": "com.example.Own required;"},
            "The JAAS context KafkaServer has the login module com.example.Own: "
            f"Odradek supports {PLAIN_MODULE}, {SCRAM_MODULE}, {OAUTH_MODULE}",
        ),
        (
            {"sasl_enabled_mechanisms": "PLAIN", "plain_sasl_jaas_config": "secret required;"},
            "The JAAS context KafkaServer has the login module [hidden]: "
            f"Odradek supports {PLAIN_MODULE}, {SCRAM_MODULE}, {OAUTH_MODULE}",
        ),
    ],
)
def test_what_cannot_be_is_refused(of_listener: dict[str, Any], told: str) -> None:
    assert refusal(**of_listener) == told


def test_oauthbearer_has_a_module_of_its_own() -> None:
    file = JaasFile("/jaas", parse_file(f"KafkaServer {{ {OAUTH_MODULE} required; {PLAIN_CONFIG} }};", {}))
    told = "Must supply exactly 1 non-null JAAS mechanism configuration (size was 2)"
    assert refusal(Jvm({}, file), sasl_enabled_mechanisms="OAUTHBEARER") == told


def test_a_property_of_the_jvm_may_restrict_the_modules() -> None:
    name = "org.apache.kafka.allowed.login.modules"
    jvm = Jvm({name: f"a.B, {SCRAM_MODULE}"}, None)
    given = {"sasl_enabled_mechanisms": "PLAIN", "plain_sasl_jaas_config": PLAIN_CONFIG}
    told = f"{PLAIN_MODULE} is not allowed. Update System property '{name}' to allow {PLAIN_MODULE}"
    assert refusal(jvm, **given) == told
    assert settings(Jvm({name: PLAIN_MODULE}, None), **given).mechanisms


@pytest.mark.parametrize(
    "setting", ["sasl.server.callback.handler.class", "sasl.login.callback.handler.class"]
)
def test_a_class_that_odradek_does_not_have_is_refused_by_name(setting: str) -> None:
    with pytest.raises(ConfigError) as refused:
        plain(**{f"plain_{setting}": "com.example.Own"})
    told = f"Invalid value com.example.Own for configuration listener.name.sasl.plain.{setting}: Odradek does not load Java"
    assert str(refused.value).startswith(told)


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("plain_sasl_server_callback_handler_class", "plain.internals.PlainServerCallbackHandler"),
        ("plain_sasl_login_class", "authenticator.DefaultLogin"),
    ],
)
def test_a_class_whose_work_odradek_does_is_taken(setting: str, name: str) -> None:
    assert plain(**{setting: f"org.apache.kafka.common.security.{name}"}).warnings == ()


@pytest.mark.parametrize(
    "setting", ["sasl.jaas.config", "sasl.server.callback.handler.class", "sasl.login.class"]
)
def test_a_setting_without_the_mechanism_is_ignored_and_told(setting: str) -> None:
    of_broker = {
        "listener.name.sasl.plain.sasl.jaas.config": PLAIN_CONFIG,
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        setting: "com.example.Own",
    }
    told = f"Server config {setting} should be prefixed with SASL mechanism name, ignoring config"
    assert sasl_settings(configs_of(of_broker), NO_JVM).warnings == (
        () if setting == "sasl.jaas.config" else (told,)
    )
    of_broker["listener.name.sasl." + setting] = "com.example.Own"
    del of_broker["listener.name.sasl.plain.sasl.jaas.config"]
    jvm = Jvm({}, JaasFile("/jaas", parse_file(f"KafkaServer {{ {PLAIN_CONFIG} }};", {})))
    assert sasl_settings(configs_of(of_broker), jvm).warnings == (told,)


def test_brokers_use_a_mechanism_that_their_listener_has() -> None:
    configs = configs_of(
        {"sasl.enabled.mechanisms": "PLAIN", "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}
    )
    with pytest.raises(ConfigError) as refused:
        check_inter_broker(configs)
    assert str(refused.value) == (
        "requirement failed: sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms "
        "when SASL is used for inter-broker communication"
    )
    check_inter_broker(configs_of({"sasl.enabled.mechanisms": "PLAIN,GSSAPI"}))


# OAUTHBEARER


def oauth(jvm: Jvm = NO_JVM, options: str = "", **of_listener: str) -> SaslSettings:
    config = f"{OAUTH_MODULE} required {options};"
    return settings(
        jvm, sasl_enabled_mechanisms="OAUTHBEARER", oauthbearer_sasl_jaas_config=config, **of_listener
    )


SECURED: dict[str, Any] = {
    "oauthbearer_sasl_server_callback_handler_class": f"{OAUTH_PACKAGE}.OAuthBearerValidatorCallbackHandler"
}
URL = "oauthbearer_sasl_oauthbearer_jwks_endpoint_url"
EXPECTED: dict[str, Any] = {
    "sasl_oauthbearer_expected_audience": "a",
    "sasl_oauthbearer_expected_issuer": "b",
}
UNVERIFIED: dict[str, Any] = {
    "sasl_oauthbearer_allow_unverified_audience": "true",
    "sasl_oauthbearer_allow_unverified_issuer": "true",
}
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


def test_the_validator_of_unsecured_tokens_may_be_named() -> None:
    name = f"{OAUTH_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    assert oauth(oauthbearer_sasl_server_callback_handler_class=name).warnings == ()


def test_options_that_make_no_token_are_refused_as_by_kafkas_login() -> None:
    with pytest.raises(ConfigError, match="No principal name in JWT claim: sub"):
        oauth(options='unsecuredValidatorRequiredScope="a"')
    assert oauth(options='unsecuredValidatorRequiredScope="a" unsecuredLoginStringClaim_sub="b"').mechanisms


@pytest.mark.parametrize("address", ["https://issuer/keys", "http://user:secret@issuer/keys"])
def test_an_endpoint_is_not_asked_before_a_token_comes(address: str) -> None:
    found = oauth(**SECURED | UNVERIFIED | {URL: address})
    assert found.servers(find_user, find_token, now_ms)["OAUTHBEARER"].server()
    assert [warning.split()[0] for warning in found.warnings] == [
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.url",
    ]
    assert "secret" not in "".join(found.warnings)


def test_a_property_of_the_jvm_may_restrict_the_urls() -> None:
    expected = {**EXPECTED, URL: "https://issuer/keys"}
    jvm = Jvm({ALLOWED_URLS: "https://other, https://issuer/keys"}, None)
    assert oauth(jvm, **SECURED, **expected).warnings == ()
    with pytest.raises(ConfigError) as refused:
        oauth(Jvm({ALLOWED_URLS: ""}, None), **SECURED, **expected)
    assert str(refused.value) == (
        "Invalid value https://issuer/keys for configuration sasl.oauthbearer.jwks.endpoint.url: "
        "The URL cannot be accessed due to restrictions. Update the system property "
        f"'{ALLOWED_URLS}' to allow the URL to be accessed."
    )


@pytest.mark.parametrize(
    ("given", "missing", "claim", "description"),
    [
        ({}, "audience", 'audience ("aud")', "the audience(s) that identify this cluster"),
        (
            {"sasl_oauthbearer_expected_audience": "a", "sasl_oauthbearer_allow_unverified_issuer": "false"},
            "issuer",
            'issuer ("iss")',
            "the issuer URL of the OAuth/OIDC provider that signs the tokens",
        ),
    ],
)
def test_the_audience_and_the_issuer_of_tokens_must_be_expected(
    given: dict[str, Any], missing: str, claim: str, description: str
) -> None:
    """The texts are those of Apache Kafka 4.4.0 (``BrokerJwtValidator.configure``)."""
    with pytest.raises(ConfigError) as refused:
        oauth(**SECURED | given | {URL: "https://issuer/keys"})
    assert str(refused.value) == (
        f'The OAuth validator for the broker requires "sasl.oauthbearer.expected.{missing}" to be configured so that the '
        f'token\'s {claim} claim can be verified, but it was not set. Set "sasl.oauthbearer.expected.{missing}" to '
        f'{description}, or set "sasl.oauthbearer.allow.unverified.{missing}" to true to accept tokens regardless of '
        f"their {missing}."
    )


def test_expected_claims_are_verified_even_if_a_switch_would_allow_any_value() -> None:
    found = oauth(**SECURED | EXPECTED | UNVERIFIED | {URL: "https://issuer/keys"})
    assert [warning.split()[0] for warning in found.warnings] == ["sasl.oauthbearer.jwks.endpoint.url"]


@pytest.mark.parametrize(
    ("of_listener", "told"),
    [
        (
            {},
            'The OAuth validator for the broker requires "sasl.oauthbearer.jwks.endpoint.url" to be configured',
        ),
        ({URL: "issuer"}, "contains a URL (issuer) that is malformed: no protocol: issuer"),
        ({URL: "http://[issuer"}, "contains a URL that is malformed: Invalid IPv6 URL"),
        (
            {URL: "ftp://issuer"},
            'contains an invalid protocol (ftp); only "http", "https", and "file" protocol',
        ),
        ({URL: "file:///not/there"}, "contains a file (/not/there) that doesn't exist"),
        (
            {URL: "https://issuer", "oauthbearer_sasl_oauthbearer_jwks_endpoint_refresh_ms": "0"},
            "JWKS validation key refresh configuration value retryWaitMs value must be positive",
        ),
        (
            {
                URL: "https://issuer",
                "sasl_oauthbearer_jwt_validator_class": f"{OAUTH_PACKAGE}.ClientJwtValidator",
            },
            "Odradek does not load Java classes",
        ),
        (
            {URL: "https://issuer", "sasl_oauthbearer_sub_claim_name": " "},
            "The OAuth configuration option sasl.oauthbearer.sub.claim.name value is required",
        ),
    ],
)
def test_what_a_validator_cannot_do_is_refused(of_listener: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        oauth(**SECURED, **EXPECTED, **of_listener)
    assert told in str(refused.value)


def test_the_trust_store_of_an_endpoint_is_the_modules() -> None:
    with pytest.raises(ConfigError, match="/not/there"):
        oauth(
            options='ssl.truststore.type="PEM" ssl.truststore.location="/not/there" unsecuredLoginStringClaim_sub="x"',
            **SECURED | EXPECTED | {URL: "https://issuer"},
        )


def test_of_other_mechanisms_nothing_is_imported() -> None:
    program = (
        "import sys\n"
        "from broker.security.listener_configs import ListenerConfigs\n"
        "from broker.config.definitions import defaults\n"
        "from broker.security.sasl.jaas import Jvm\n"
        "from broker.security.sasl.settings import sasl_settings\n"
        "values = {**defaults(), 'sasl.enabled.mechanisms': ('PLAIN',),"
        f" 'listener.name.x.plain.sasl.jaas.config': {PLAIN_CONFIG!r}}}\n"
        "sasl_settings(ListenerConfigs(values, 'X'), Jvm({}, None)).servers(None, None, None)['PLAIN'].server()\n"
        "print([name for name in ('jwt', 'cryptography', 'aiohttp', 'scramp', 'ssl') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=HANG_S
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
