"""TLS contexts, tested by real handshakes in memory."""

import os
import ssl
import tempfile

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from broker.security.tls import jks
from broker.security.tls.authority import Authority
from broker.security.tls.contexts import check_own_handshake, client_context, handshake, server_context
from broker.security.tls.principal_mapping import parse_rules, principal_of
from broker.security.tls.settings import TlsConfigError
from storage.config_def import ConfigError

CENTURY_DAYS = 36_500
PASSWORD = "changeit"
RULES = parse_rules("DEFAULT")


def pem(issued):
    """The settings of a PEM key store with this certificate."""
    return {
        "keystore_type": "PEM",
        "keystore_key": issued.key_pem().decode(),
        "keystore_certificate_chain": issued.chain_pem().decode(),
    }


def cipher_of(side: ssl.SSLObject) -> str:
    """The name of the negotiated cipher suite."""
    cipher = side.cipher()
    assert cipher is not None
    return cipher[0]


def trusting(authority):
    return {"truststore_type": "PEM", "truststore_certificates": authority.certificate_pem().decode()}


@pytest.fixture
def listener(configure, server, authority):
    """A function that makes the TLS context of a listener, with other settings if given."""

    def context(**given):
        return server_context(configure(**pem(server), **trusting(authority) | given))

    return context


@pytest.fixture
def outgoing(configure, authority):
    def context(**given):
        return client_context(configure(**trusting(authority) | given))

    return context


@pytest.mark.parametrize("file", ["server.pem", "server.p12", "server.jks"])
def test_a_client_that_trusts_the_authority_connects(configure, folder, outgoing, file):
    is_pem = file.endswith("pem")
    settings = configure(
        keystore_type="PEM" if is_pem else "JKS",
        keystore_location=str(folder / file),
        keystore_password=None if is_pem else PASSWORD,
    )
    server, client = handshake(server_context(settings), outgoing(), "localhost")
    assert server.version() == "TLSv1.3"
    assert principal_of(server.getpeercert(binary_form=True), RULES) == "User:ANONYMOUS"
    client.write(b"ping")
    assert server.read() == b"ping"


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1"])
def test_the_certificate_is_of_each_name_of_this_machine(listener, outgoing, name):
    handshake(listener(), outgoing(), name)


def test_the_name_of_the_server_is_checked(listener, outgoing):
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(listener(), outgoing(), "example.org")
    handshake(listener(), outgoing(endpoint_identification_algorithm=""), "example.org")


@pytest.mark.parametrize(
    ("client_auth", "shown", "principal"),
    [
        ("none", True, "User:ANONYMOUS"),
        ("requested", True, "User:CN=alice,OU=orders,O=Odradek"),
        ("requested", False, "User:ANONYMOUS"),
        ("required", True, "User:CN=alice,OU=orders,O=Odradek"),
    ],
)
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_the_certificate_of_a_client(listener, outgoing, client, client_auth, shown, principal, version):
    context = outgoing(enabled_protocols=(version,), **(pem(client) if shown else {}))
    server, _ = handshake(listener(client_auth=client_auth), context, "localhost")
    assert server.version() == version
    assert principal_of(server.getpeercert(binary_form=True), RULES) == principal


def test_a_client_without_a_certificate_is_refused_where_one_is_required(listener, outgoing):
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        handshake(listener(client_auth="required"), outgoing(), "localhost")


@pytest.mark.parametrize("client_auth", ["requested", "required"])
def test_a_client_of_another_authority_is_refused(listener, outgoing, authority, client_auth):
    foreign = Authority.create(authority.issue("x").now, days=CENTURY_DAYS).issue("mallory", client=True)
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        handshake(listener(client_auth=client_auth), outgoing(**pem(foreign)), "localhost")


def test_an_expired_certificate_is_refused(configure, authority, outgoing):
    expired = server_context(configure(**pem(authority.issue("localhost", ["localhost"], days=-1))))
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        handshake(expired, outgoing(), "localhost")


def test_the_certificate_of_a_client_does_not_make_a_server(configure, client, outgoing):
    context = server_context(configure(**pem(client)))
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate purpose"):
        handshake(context, outgoing(endpoint_identification_algorithm=""), None)


def test_any_certificate_of_the_trust_store_is_an_anchor(configure, server):
    """A client trusts any certificate of its trust store, even if it does not belong to a certificate authority, as in
    Java."""
    anchor = server.chain[0].public_bytes(Encoding.PEM).decode()
    trusting_one = client_context(configure(truststore_type="PEM", truststore_certificates=anchor))
    handshake(server_context(configure(**pem(server))), trusting_one, "localhost")


@pytest.mark.parametrize(
    ("server_settings", "client_settings", "version", "cipher"),
    [
        ({}, {}, "TLSv1.3", None),
        ({"enabled_protocols": ("TLSv1.2",)}, {}, "TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ({"enabled_protocols": ()}, {"enabled_protocols": ("TLSv1.1", "TLSv1.2")}, "TLSv1.2", None),
        ({"protocol": "TLSv1.2"}, {}, "TLSv1.3", None),
        ({}, {"protocol": "TLSv1.2"}, "TLSv1.2", None),
        (
            {"cipher_suites": ("TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA")},
            {},
            "TLSv1.2",
            "ECDHE-ECDSA-AES128-SHA",
        ),
        (
            {
                "cipher_suites": (
                    "TLS_CHACHA20_POLY1305_SHA256",
                    "TLS_AES_256_GCM_SHA384",
                    "TLS_AES_128_GCM_SHA256",
                )
            },
            {},
            "TLSv1.3",
            "TLS_AES_256_GCM_SHA384",
        ),
    ],
)
def test_protocols_and_cipher_suites(listener, outgoing, server_settings, client_settings, version, cipher):
    server, _ = handshake(listener(**server_settings), outgoing(**client_settings), "localhost")
    assert server.version() == version
    assert cipher in (None, cipher_of(server))


def test_without_a_protocol_in_common_there_is_no_connection(listener, outgoing):
    with pytest.raises(ssl.SSLError, match=r"(?i)unsupported.protocol|version"):
        handshake(
            listener(enabled_protocols=("TLSv1.3",)), outgoing(enabled_protocols=("TLSv1.2",)), "localhost"
        )


@pytest.mark.parametrize(
    "given",
    [
        {"enabled_protocols": ("TLSv1", "TLSv1.1", "SSLv3")},
        {"enabled_protocols": ("TLSv1.2",), "cipher_suites": ("TLS_AES_256_GCM_SHA384",)},
        {"cipher_suites": ("SSL_RSA_WITH_RC4_128_MD5",)},
    ],
)
def test_settings_that_leave_no_protocol(listener, given):
    with pytest.raises(TlsConfigError, match="No appropriate protocol"):
        listener(**given)


@pytest.mark.skipif(hasattr(ssl.SSLContext, "set_ciphersuites"), reason="this Python can restrict TLS 1.3")
def test_a_part_of_the_suites_of_tls_13_is_refused(listener):
    with pytest.raises(ConfigError) as refused:
        listener(cipher_suites=("TLS_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"))
    assert str(refused.value) == (
        "Invalid value TLS_AES_256_GCM_SHA384 for configuration ssl.cipher.suites: this Python supports only all suites of "
        "TLS 1.3 or none: add TLS_AES_128_GCM_SHA256, TLS_CHACHA20_POLY1305_SHA256, or remove TLSv1.3 from "
        "ssl.enabled.protocols"
    )


def test_a_listener_needs_a_certificate(configure, authority):
    with pytest.raises(TlsConfigError, match="Listener SSL has no certificate"):
        server_context(configure(**trusting(authority)))


def test_a_key_of_another_certificate_is_refused(configure, server, client):
    settings = configure(**pem(server) | {"keystore_key": client.key_pem().decode()})
    with pytest.raises(TlsConfigError) as refused:
        server_context(settings)
    assert str(refused.value) == "ssl.keystore: the private key kafka cannot be used: KEY_VALUES_MISMATCH"


def test_a_certificate_that_openssl_cannot_read_is_refused(configure, server):
    damaged = server.certificate.replace(b"\x06\x03\x55\x1d\x11", b"\x05\x03\x55\x1d\x11")
    text = x509_pem(damaged)
    with pytest.raises(TlsConfigError, match=r"ssl\.truststore: a certificate cannot be used"):
        client_context(configure(truststore_type="PEM", truststore_certificates=text))


def x509_pem(der):
    return ssl.DER_cert_to_PEM_cert(der)


def test_an_rsa_key_and_an_ec_key_in_one_key_store(configure, tmp_path, authority, server, outgoing):
    """A key store may have an RSA key and an EC key: a client gets the certificate whose key fits its cipher
    suites. Of two keys of one type the first one is used."""
    path = tmp_path / "keys.jks"
    unused = authority.issue("unused")
    keys = [entry("ec", server.key, server.certificate), entry("rsa", *self_signed_rsa(server.now))]
    path.write_bytes(jks.write([*keys, entry("unused", unused.key, unused.certificate)], [], PASSWORD, 0))
    context = server_context(configure(keystore_location=str(path), keystore_password=PASSWORD))
    by_rsa = outgoing(
        cipher_suites=("TLS_RSA_WITH_AES_128_GCM_SHA256",),
        truststore_certificates=ssl.DER_cert_to_PEM_cert(keys[1].chain[0]),
    )
    assert cipher_of(handshake(context, by_rsa, "rsa")[0]) == "AES128-GCM-SHA256"
    by_ec = outgoing(cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",))
    handshake(context, by_ec, "localhost")


def entry(alias, key, certificate):
    plain = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return jks.KeyEntry(alias, jks.protect(plain, PASSWORD, bytes(jks.SALT_BYTES)), (certificate,))


def self_signed_rsa(now):
    key = rsa.generate_private_key(65537, 2048)
    like = Authority.create(now, "CN=rsa", days=CENTURY_DAYS)
    template = x509.load_der_x509_certificate(like.certificate)
    builder = (
        x509.CertificateBuilder()
        .subject_name(template.subject)
        .issuer_name(template.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(template.not_valid_before_utc)
        .not_valid_after(template.not_valid_after_utc)
    )
    return key, builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def test_no_private_key_is_left_on_the_disk(listener, outgoing, monkeypatch, tmp_path):
    """No private key stays on the disk. Without memfd_create the key is in a file that only its owner may read, and that is
    deleted before the call returns."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    listener()
    assert list(tmp_path.iterdir()) == []
    modes = []
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(
        ssl.SSLContext,
        "load_cert_chain",
        lambda self, path: (
            modes.append(oct(os.stat(path).st_mode)) or super(ssl.SSLContext, self).load_cert_chain(path)
        ),
    )
    handshake(listener(), outgoing(), "localhost")
    assert modes == ["0o100600"]
    assert list(tmp_path.iterdir()) == []


def test_brokers_connect_to_each_other_with_what_the_listener_has(configure, server, authority):
    check_own_handshake(configure(**pem(server), **trusting(authority), client_auth="required"))
    foreign = Authority.create(server.now, days=CENTURY_DAYS)
    settings = configure(**pem(server), **trusting(foreign))
    with pytest.raises(TlsConfigError) as refused:
        check_own_handshake(settings)
    assert str(refused.value).startswith(
        "A client SSLEngine created with the provided settings can't connect to a server SSLEngine created with "
        "those settings. ("
    )
