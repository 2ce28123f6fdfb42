"""JKS key stores: reading those that Java wrote, and writing those that Java is to read."""

import pytest

from broker.security.tls import jks
from broker.security.tls.distinguished_name import subject_name

SALT = bytes(range(jks.SALT_BYTES))
KEY = bytes(range(100, 231))


@pytest.fixture(scope="module")
def content(stores):
    return (stores / "keys.jks").read_bytes()


def written():
    key = jks.KeyEntry("Broker", jks.protect(KEY, "other", SALT), (b"own", b"issuer"))
    return jks.write([key], [jks.CertificateEntry("anchor", b"root")], "päss\U0001f511", 1_700_000_000_000)


def test_a_key_store_that_java_wrote(content):
    store = jks.read(content, "storepass")
    ((broker,), (anchor,)) = store
    assert (broker.alias, anchor.alias) == ("broker", "anchor")
    assert subject_name(broker.chain[0]) == "CN=broker,O=Java"
    assert anchor.certificate == broker.chain[0]
    assert broker.private_key("keypass")[:2] == b"\x30\x41"


def test_without_a_password_the_integrity_is_not_checked(content):
    assert jks.read(content[:-1] + b"x", None) == jks.read(content, "storepass")


@pytest.mark.parametrize("password", ["", "Storepass", "keypass"])
def test_the_password_of_the_store_is_checked(content, password):
    with pytest.raises(
        jks.InvalidKeyStore, match="the key store was tampered with, or the password is wrong"
    ):
        jks.read(content, password)


def test_each_byte_counts(content):
    at = len(content) // 2
    with pytest.raises(jks.InvalidKeyStore):
        jks.read(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :], "storepass")


def test_the_password_of_the_key_is_checked(content):
    (key,) = jks.read(content, "storepass").keys
    with pytest.raises(
        jks.InvalidKeyStore, match="private key of broker cannot be decrypted with this password"
    ):
        key.private_key("storepass")


@pytest.mark.parametrize("count", [0, 3, 4, 11, 12, 40, 200])
def test_a_file_that_ends_early(content, count):
    with pytest.raises(jks.InvalidKeyStore):
        jks.read(content[:count], "storepass")


def test_what_is_written_is_read_again():
    store = jks.read(written(), "päss\U0001f511")
    assert store.certificates == (jks.CertificateEntry("anchor", b"root"),)
    (key,) = store.keys
    assert (key.alias, key.chain) == ("broker", (b"own", b"issuer"))
    assert key.private_key("other") == KEY


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"PK\x03\x04" + bytes(20), "not a JKS key store of version 1 or 2"),
        (jks.MAGIC + b"\0\0\0\3" + bytes(20), "not a JKS key store of version 1 or 2"),
        (jks.MAGIC + b"\0\0\0\2" + b"\0\0\0\1\0\0\0\3\0\1a" + bytes(28), "unknown kind of entry: 3"),
        (
            jks.MAGIC + b"\0\0\0\2" + b"\0\0\0\1\0\0\0\2\0\1a" + bytes(8) + b"\0\3PGP",
            "a certificate of type PGP",
        ),
    ],
)
def test_what_is_not_of_this_format(content, reason):
    with pytest.raises(jks.InvalidKeyStore, match=reason):
        jks.read(content, None)


@pytest.mark.parametrize(
    ("protected", "reason"),
    [
        (b"\x30\x00", "the private key of a is not stored as PKCS#8"),
        (bytes.fromhex("300a300506032a03040401aa"), r"protected by 1\.2\.3\.4, which JKS does not support"),
        (bytes.fromhex("3013300e060a2b060104012a021101010500") + b"\x04\x01a", "cannot be decrypted"),
    ],
)
def test_a_key_in_another_protection(protected, reason):
    with pytest.raises(jks.InvalidKeyStore, match=reason):
        jks.KeyEntry("a", protected, ()).private_key("p")
