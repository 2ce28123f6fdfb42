"""The mapping of cipher suites from Java's names to OpenSSL's."""

import ssl

import pytest

from broker.security.tls import cipher_suites
from storage.config_def import ConfigError


def test_openssl_has_each_suite_under_its_name():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for java, name in cipher_suites.TLS12.items():
        if "_DSS_" in java:  # OpenSSL may be built without DSA
            continue
        context.set_ciphers(f"{name}:@SECLEVEL=2")
        (found,) = (each for each in context.get_ciphers() if each["protocol"] != "TLSv1.3")
        assert found["name"] == name
        assert_same_parts(java, found["description"])


def assert_same_parts(java, description):
    """Assert that OpenSSL's description of a suite, such as `Kx=ECDH Au=RSA Enc=AESGCM(256) Mac=AEAD`, has the parts of its
    Java name."""
    exchange, cipher = java.removeprefix("TLS_").split("_WITH_")
    assert ("Kx=ECDH " in description) == exchange.startswith("ECDHE")
    assert ("Kx=DH " in description) == exchange.startswith("DHE")
    assert ("Au=ECDSA" in description) == exchange.endswith("ECDSA")
    assert ("(128)" in description) == ("_128_" in cipher)
    assert ("Enc=AESGCM" in description) == ("_GCM_" in cipher)
    assert ("CHACHA20" in description) == ("CHACHA20" in cipher)
    if "_CBC_" in cipher:
        digest = cipher.rpartition("_")[2]
        assert f"Mac={'SHA1' if digest == 'SHA' else digest}" in description


def test_without_a_list_all_are_enabled():
    assert len(cipher_suites.openssl_names([])) == len(cipher_suites.TLS12) == 33
    assert cipher_suites.of_tls13([]) == cipher_suites.TLS13


def test_a_list_is_divided_between_the_protocols():
    given = [
        "TLS_AES_256_GCM_SHA384",
        "TLS_RSA_WITH_AES_128_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    ]
    assert cipher_suites.openssl_names(given) == ["AES128-SHA", "ECDHE-RSA-AES128-GCM-SHA256"]
    assert cipher_suites.of_tls13(given) == {"TLS_AES_256_GCM_SHA384"}


def test_a_name_that_java_does_not_know_is_refused():
    with pytest.raises(ConfigError) as refused:
        cipher_suites.check(["TLS_AES_256_GCM_SHA384", "ECDHE-RSA-AES128-GCM-SHA256"])
    assert str(refused.value) == (
        "Invalid value ECDHE-RSA-AES128-GCM-SHA256 for configuration ssl.cipher.suites: "
        "Unsupported CipherSuite: ECDHE-RSA-AES128-GCM-SHA256"
    )


@pytest.mark.parametrize(
    "name",
    [
        "TLS_EMPTY_RENEGOTIATION_INFO_SCSV",
        "SSL_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_ECDH_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_DH_anon_WITH_AES_128_GCM_SHA256",
        "SSL_RSA_WITH_RC4_128_MD5",
        "TLS_RSA_WITH_NULL_SHA256",
    ],
)
def test_a_suite_that_java_has_disabled_may_be_listed_and_is_not_used(name):
    cipher_suites.check([name])
    assert cipher_suites.openssl_names([name]) == []
    assert not cipher_suites.of_tls13([name])
