"""Key stores and trust stores in every format, and the errors for those that cannot be read."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from broker.security.tls import pem
from broker.security.tls.settings import TlsConfigError
from broker.security.tls.stores import key_store, read_key_store, read_stores, read_trust_store

PASSWORD = "changeit"
# One key, written by `openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES` and by `openssl ec`. The password is `keypass`.
TRIPLE_DES_KEY = """-----BEGIN ENCRYPTED PRIVATE KEY-----
MGgwHAYKKoZIhvcNAQwBAzAOBAhY7m7fVmzlzwICCAAESAKw70hdEa7x4tzd2H3T
qnk/fQN1RhLuUm/8aUXoIPiFwL9ssfs4Z2ljfX6sE0jDZiYheZgwvJyni8jOrLZS
CtYLcWn3snBCmw==
-----END ENCRYPTED PRIVATE KEY-----
"""
SEC1_KEY = """-----BEGIN EC PRIVATE KEY-----
MHcCAQEEIGiJ4PbxZfpnMj8/XkGZXoTA2c7zGDFfHreWvc0OqrZYoAoGCCqGSM49
AwEHoUQDQgAEC1tPcVJVwRPtwKczmvRxXA5OOaLLhdc5OwV1s9949WfDYhURQhQf
sUVTers/4xsIZ0Ck3VB4MyH7Qvxx6L49sQ==
-----END EC PRIVATE KEY-----
"""


@pytest.fixture
def pem_keys(configure, server):
    """A function that makes the settings of a PEM key store, with the server's key or with another key."""

    def settings(key=None, **given):
        return configure(
            keystore_type="PEM",
            keystore_key=server.key_pem().decode() if key is None else key,
            keystore_certificate_chain=given.pop("chain", server.chain_pem().decode()),
            **given,
        ).key_store

    return settings


def plain(server):
    return server.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


def der_chain(server):
    return tuple(each.public_bytes(Encoding.DER) for each in server.chain)


def refusal(read, *arguments):
    with pytest.raises(TlsConfigError) as refused:
        read(*arguments)
    return str(refused.value)


# ---- key stores


@pytest.mark.parametrize(
    ("type", "file"),
    [("PKCS12", "server.p12"), ("pkcs12", "server.jks"), ("JKS", "server.jks"), ("JKS", "server.p12")],
)
def test_a_file_is_read_by_what_it_begins_with(configure, folder, server, type, file):
    """The format of a store is detected from its first bytes, as Java, too, reads a JKS store if the type is PKCS12 and vice
    versa."""
    settings = configure(keystore_type=type, keystore_location=str(folder / file), keystore_password=PASSWORD)
    (key,) = read_key_store(settings.key_store)
    assert key == ("odradek", plain(server), der_chain(server))


def test_a_key_and_its_chain_in_one_pem_file(configure, folder, server):
    (key,) = read_key_store(
        configure(keystore_type="PEM", keystore_location=str(folder / "server.pem")).key_store
    )
    assert key == ("kafka", plain(server), der_chain(server))


def test_pem_in_the_settings(pem_keys, server):
    assert key_store(pem_keys(), None) == (("kafka", plain(server), der_chain(server)),)


def test_pem_as_a_line_of_a_properties_file(pem_keys, server):
    lines = (text.decode().replace("\n", " ") for text in (server.key_pem(), server.chain_pem()))
    key, chain = lines
    assert key_store(pem_keys(key, chain=chain), None) == (("kafka", plain(server), der_chain(server)),)


def test_pem_with_text_around_it(pem_keys, server):
    chain = f"Bag Attributes\n  friendlyName: a\n{server.chain_pem().decode()}end"
    assert key_store(pem_keys(chain=chain), None) == (("kafka", plain(server), der_chain(server)),)


def test_an_encrypted_pem_key(pem_keys, server):
    key = server.key_pem("keypass").decode()
    assert key_store(pem_keys(key, key_password="keypass"), None)[0].key == plain(server)


def test_an_encrypted_pem_key_in_an_old_scheme(pem_keys):
    same = load_pem_private_key(SEC1_KEY.encode(), None)
    assert key_store(pem_keys(TRIPLE_DES_KEY, key_password="keypass"), None)[0].key == same.private_bytes(
        Encoding.DER, PrivateFormat.PKCS8, NoEncryption()
    )


def test_key_stores_that_java_wrote(configure, stores):
    keys = configure(
        keystore_location=str(stores / "keys.jks"), keystore_password="storepass", key_password="keypass"
    )
    pkcs12 = configure(
        keystore_location=str(stores / "keys.p12"), keystore_password="storepass", keystore_type="PKCS12"
    )
    for settings in (keys, pkcs12):
        (key,) = read_key_store(settings.key_store)
        assert (key.alias, len(key.chain), key.algorithm) == ("broker", 1, "1.2.840.10045.2.1")


def test_the_chain_of_a_pkcs12_file_is_put_in_order(configure, tmp_path, authority, client, server):
    others = [client.chain[0], server.chain[1]]
    content = serialize_key_and_certificates(None, server.key, server.chain[0], others, NoEncryption())
    settings = configure(keystore_location="f", keystore_password="", keystore_type="PKCS12")
    (key,) = key_store(settings.key_store, content)
    assert key.chain == der_chain(server)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            {"key": "ENCRYPTED"},
            "Private key could not be loaded: it is encrypted, and ssl.key.password is not set",
        ),
        (
            {"key": "ENCRYPTED", "key_password": "other-secret"},
            "Private key could not be loaded: ssl.key.password is not its password",
        ),
        (
            {"key_password": "other-secret"},
            "Private key could not be loaded: ssl.key.password is set, but the key is not encrypted",
        ),
        (
            {"key": SEC1_KEY},
            "Private key could not be loaded: it is not PKCS#8 (`openssl pkcs8 -topk8` makes it so)",
        ),
        ({"key": "no PEM"}, "No matching PRIVATE KEY entries in PEM file"),
        ({"key": SEC1_KEY + SEC1_KEY}, "Expected one private key, but found 2"),
        (
            {"key": "-----BEGIN PRIVATE KEY----- &&&& -----END PRIVATE KEY-----"},
            "a PRIVATE KEY entry is not base64",
        ),
        ({"chain": "no PEM"}, "No matching CERTIFICATE entries in PEM file"),
        (
            {"chain": "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----"},
            "a sequence has too few members",
        ),
    ],
)
def test_pem_that_is_refused(pem_keys, server, given, reason):
    if given.get("key") == "ENCRYPTED":
        given = given | {"key": server.key_pem("keypass").decode()}
    assert (
        refusal(key_store, pem_keys(**given), None)
        == f"Invalid PEM keystore configs (ssl.keystore.certificate.chain): {reason}"
    )


def test_a_key_for_which_kafka_has_no_factory(pem_keys):
    key = ed25519.Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    assert refusal(key_store, pem_keys(key.decode()), None).endswith(
        "Private key could not be loaded: kafka is neither RSA nor EC"
    )


@pytest.mark.parametrize(
    ("file", "password", "key_password", "reason"),
    [
        ("keys.jks", "other-secret", None, "the key store was tampered with, or the password is wrong"),
        ("keys.jks", "storepass", None, "the private key of broker cannot be decrypted with this password"),
        ("keys.p12", "other-secret", None, "ssl.keystore.password is wrong, or the file is damaged"),
        (
            "keys.p12",
            "storepass",
            "other-secret",
            "ssl.key.password differs from ssl.keystore.password, but a PKCS12 key store has one password",
        ),
        ("trust.p12", "storepass", None, "the store has no private key with a certificate"),
        (
            "keys.jceks",
            "storepass",
            None,
            "the file is a JCEKS key store, which Odradek does not read: `keytool -importkeystore` converts it",
        ),
        ("README.md", "other-secret", None, "the store is neither JKS nor PKCS12"),
        ("missing.jks", "other-secret", None, "No such file or directory"),
    ],
)
def test_a_key_store_that_is_refused(configure, stores, file, password, key_password, reason):
    path = stores / file
    settings = configure(keystore_location=str(path), keystore_password=password, key_password=key_password)
    assert (
        refusal(read_key_store, settings.key_store)
        == f"Failed to load SSL keystore {path} of type JKS (ssl.keystore.location): {reason}"
    )


def test_a_pem_file_that_is_refused(configure, folder):
    path = folder / "server.crt"
    settings = configure(keystore_location=str(path), keystore_type="PEM")
    assert refusal(read_key_store, settings.key_store) == (
        f"Failed to load PEM SSL keystore {path} (ssl.keystore.location): No matching PRIVATE KEY entries in PEM file"
    )


# ---- trust stores


@pytest.mark.parametrize(
    ("type", "file"), [("PEM", "ca.pem"), ("PKCS12", "truststore.p12"), ("JKS", "truststore.jks")]
)
def test_trust_stores(configure, folder, authority, type, file):
    settings = configure(
        truststore_type=type,
        truststore_location=str(folder / file),
        truststore_password=None if type == "PEM" else PASSWORD,
    )
    assert read_trust_store(settings.trust_store) == (authority.certificate,)


def test_pem_trust_store_in_the_settings(configure, authority, server):
    text = (authority.certificate_pem() + server.chain_pem()).decode()
    settings = configure(truststore_type="PEM", truststore_certificates=text)
    assert read_stores(settings) == (None, (authority.certificate, *der_chain(server)))


@pytest.mark.parametrize(
    ("file", "password", "count"),
    [
        ("trust.p12", "storepass", 1),
        ("trust-legacy.p12", "storepass", 1),
        ("keys.jks", None, 2),
        ("keys.p12", "storepass", 1),
    ],
)
def test_trust_stores_that_java_wrote(configure, stores, file, password, count):
    """Trust stores that Java wrote are read, with the certificates of their key entries, which Java trusts too."""
    settings = configure(truststore_location=str(stores / file), truststore_password=password)
    assert len(read_trust_store(settings.trust_store)) == count


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("trust.p12", "ssl.truststore.password is not set, or the file is damaged"),
        ("missing.p12", "No such file or directory"),
    ],
)
def test_a_trust_store_that_is_refused(configure, stores, file, reason):
    path = stores / file
    settings = configure(truststore_location=str(path), truststore_type="PKCS12")
    assert refusal(read_trust_store, settings.trust_store) == (
        f"Failed to load SSL keystore {path} of type PKCS12 (ssl.truststore.location): {reason}"
    )


def test_a_trust_store_without_certificates(configure, tmp_path, server):
    path = tmp_path / "empty.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\0")
    settings = configure(truststore_location=str(path))
    assert "the trustAnchors parameter must be non-empty" in refusal(read_trust_store, settings.trust_store)


def test_no_private_key_is_shown(pem_keys):
    (key,) = key_store(pem_keys(), None)
    assert repr(key) == "PrivateKey('kafka')"


def test_pem_is_written_in_lines():
    assert pem.encode("CERTIFICATE", bytes(60)).splitlines()[1:-1] == ["A" * 64, "A" * 16]
    assert pem.certificates(pem.encode("CERTIFICATE", bytes(60))) == (bytes(60),)
