"""TLS settings: those that Kafka rejects, with its messages, and those that Odradek cannot apply."""

import pytest

from broker.config.definitions import defaults
from broker.security.listener_configs import ListenerConfigs
from broker.security.tls.settings import TlsConfigError, tls_settings
from storage.config_def import ConfigError


def test_without_settings_there_is_neither_store(configure):
    settings = configure()
    assert (settings.key_store, settings.trust_store, settings.client_auth) == (None, None, "none")
    assert settings.enabled_protocols == ("TLSv1.2", "TLSv1.3")
    assert settings.identifies_endpoint


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            {"keystore_key": "K"},
            "SSL private key can be specified only for PEM, but key store type is JKS.",
        ),
        (
            {"keystore_key": "K", "keystore_type": "PEM"},
            "SSL private key is specified, but certificate chain is not specified.",
        ),
        (
            {
                "keystore_key": "K",
                "keystore_certificate_chain": "C",
                "keystore_type": "PEM",
                "keystore_location": "f",
            },
            "Both SSL key store location and separate private key are specified.",
        ),
        (
            {
                "keystore_key": "K",
                "keystore_certificate_chain": "C",
                "keystore_type": "PEM",
                "keystore_password": "p",
            },
            "SSL key store password cannot be specified with PEM format, only key password may be specified.",
        ),
        (
            {"keystore_certificate_chain": "C", "keystore_type": "PEM"},
            "SSL certificate chain is specified, but private key is not specified",
        ),
        (
            {"keystore_type": "PEM", "keystore_location": "f", "keystore_password": "p"},
            "SSL key store password cannot be specified with PEM format, only key password may be specified",
        ),
        ({"keystore_password": "p"}, "SSL key store is not specified, but key store password is specified."),
        ({"keystore_location": "f"}, "SSL key store is specified, but key store password is not specified."),
        (
            {"truststore_certificates": "C"},
            "SSL trust store certs can be specified only for PEM, but trust store type is JKS.",
        ),
        (
            {"truststore_certificates": "C", "truststore_type": "PEM", "truststore_location": "f"},
            "Both SSL trust store location and separate trust certificates are specified.",
        ),
        (
            {"truststore_certificates": "C", "truststore_type": "PEM", "truststore_password": "p"},
            "SSL trust store password cannot be specified for PEM format.",
        ),
        (
            {"truststore_location": "f", "truststore_type": "PEM", "truststore_password": "p"},
            "SSL trust store password cannot be specified for PEM format.",
        ),
        (
            {"truststore_password": "p"},
            "SSL trust store is not specified, but trust store password is specified.",
        ),
    ],
)
def test_a_combination_that_kafka_refuses(configure, given, reason):
    with pytest.raises(TlsConfigError) as refused:
        configure(**given)
    assert str(refused.value) == reason


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("keystore_type", "BKS", "String must be one of: JKS, PKCS12, PEM"),
        ("truststore_type", "pem", "String must be one of: JKS, PKCS12, PEM"),
        ("protocol", "DTLSv1.2", "DTLSv1.2 SSLContext not available"),
        ("enabled_protocols", ("TLSv1.2", "tlsv1.3"), "Unsupported protocol tlsv1.3"),
        ("endpoint_identification_algorithm", "dns", "Unknown identification algorithm: dns"),
        (
            "engine_factory_class",
            "org.example.Factory",
            "Odradek does not load Java classes: leave it out, or set it to "
            "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",
        ),
        ("provider", "BCJSSE", "Odradek does not load Java classes: leave it out, or set it to SunJSSE"),
        ("secure_random_implementation", "SHA1PRNG", "Odradek does not load Java classes: leave it out"),
        (
            "keymanager_algorithm",
            "IbmX509",
            "Odradek does not load Java classes: leave it out, or set it to SunX509",
        ),
        (
            "trustmanager_algorithm",
            "SunX509",
            "Odradek does not load Java classes: leave it out, or set it to PKIX",
        ),
    ],
)
def test_what_odradek_cannot_obey_is_refused(configure, name, value, reason):
    with pytest.raises(ConfigError) as refused:
        configure(
            **{"keystore_location": "f", "keystore_password": "p", "truststore_location": "f", name: value}
        )
    assert str(refused.value).endswith(f" for configuration ssl.{name.replace('_', '.')}: {reason}")


def test_security_providers_are_refused():
    with pytest.raises(
        ConfigError, match=r"configuration security\.providers: Odradek does not load Java classes"
    ):
        tls_settings(ListenerConfigs(defaults() | {"security.providers": "org.example.Creator"}, "SSL"))


def test_values_that_say_what_odradek_does_anyway_are_taken(configure):
    settings = configure(
        provider="SunJSSE",
        keymanager_algorithm="PKIX",
        trustmanager_algorithm="PKIX",
        engine_factory_class="org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",
        endpoint_identification_algorithm="",
    )
    assert not settings.identifies_endpoint


def test_a_listener_has_settings_of_its_own():
    values = defaults() | {
        "ssl.client.auth": "required",
        "listener.name.internal.ssl.client.auth": "requested",
        "listener.name.internal.ssl.truststore.location": "trust.p12",
        "listener.name.internal.ssl.truststore.type": "pkcs12",
    }
    internal, other = (tls_settings(ListenerConfigs(values, name)) for name in ("INTERNAL", "OTHER"))
    assert internal.client_auth == "requested"
    assert internal.trust_store is not None
    assert internal.trust_store.location == "trust.p12"
    assert (other.client_auth, other.trust_store) == ("required", None)


def test_with_sasl_only_the_listener_itself_asks_for_certificates():
    values = defaults() | {
        "ssl.client.auth": "required",
        "listener.name.mutual.ssl.client.auth": "required",
    }
    asked = {
        name: tls_settings(ListenerConfigs(values, name), sasl=True).client_auth
        for name in ("OTHER", "MUTUAL")
    }
    assert asked == {"OTHER": "none", "MUTUAL": "required"}


def test_only_stores_change_while_a_listener_runs(configure):
    before = configure(client_auth="required", truststore_location="old")
    after = before.with_stores(configure(client_auth="none", truststore_location="new"))
    assert (after.client_auth, after.trust_store.location) == ("required", "new")


def test_secrets_are_not_shown(configure):
    settings = configure(keystore_location="f", keystore_password="secret", key_password="secret")
    pem = configure(keystore_type="PEM", keystore_key="secret", keystore_certificate_chain="secret")
    assert "secret" not in repr(settings) + repr(pem)
