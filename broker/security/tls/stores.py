"""Reads key stores and trust stores: PEM from settings or files, PKCS12, and Java's JKS.

    stores = read_stores(settings)
    stores.keys     # private keys with their certificate chains
    stores.anchors  # trusted certificates

Raises `TlsConfigError` for a store that cannot be read. The message names the setting, and never a password.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.security.tls import der, jks, pem
from broker.security.tls.distinguished_name import subject
from broker.security.tls.settings import (
    KAFKA_EXCEPTION,
    KEY_STORE,
    StoreSettings,
    TlsConfigError,
    TlsSettings,
)
from protocol.named_tuple import NamedTuple

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

_RSA, _EC = "1.2.840.113549.1.1.1", "1.2.840.10045.2.1"
_JCEKS: Final = b"\xce\xce\xce\xce"


class PrivateKey(NamedTuple):
    """An entry of a key store: a private key and its certificate chain, which starts with the key's own certificate."""

    alias: str
    key: bytes
    """The private key as PKCS#8 in DER."""
    chain: tuple[bytes, ...]

    def __repr__(self) -> str:
        """Text without the private key, which must not appear in logs and tracebacks."""
        return f"PrivateKey({self.alias!r})"

    @property
    def algorithm(self) -> str:
        """Object identifier of the key's algorithm: `1.2.840.10045.2.1` is EC."""
        return der.dotted(der.members(der.members(self.key, 2)[1].encoded, 1)[0].content)


class Stores(NamedTuple):
    """Contents of a listener's stores; None for a store that is not configured."""

    keys: tuple[PrivateKey, ...] | None
    anchors: tuple[bytes, ...] | None
    """Trusted certificates in DER."""


def read_stores(settings: TlsSettings) -> Stores:
    """Read the key store and the trust store. Raises `ConfigError` if a store cannot be read."""
    return Stores(
        None if settings.key_store is None else read_key_store(settings.key_store),
        None if settings.trust_store is None else read_trust_store(settings.trust_store),
    )


def read_key_store(store: StoreSettings) -> tuple[PrivateKey, ...]:
    """Read a key store, which must have at least one key."""
    return key_store(store, _content(store))


def read_trust_store(store: StoreSettings) -> tuple[bytes, ...]:
    """Read a trust store, which must have at least one certificate."""
    return trust_store(store, _content(store))


def key_store(store: StoreSettings, content: bytes | None) -> tuple[PrivateKey, ...]:
    """Parse a key store. ``content`` is the content of its file; None if the store is in the settings."""
    try:
        keys = _keys(store, content or b"")
        if not keys:
            raise ValueError("the key store has no private key")
        return tuple(map(_checked, keys))
    except ValueError as error:
        raise _unreadable(store, str(error)) from None


def trust_store(store: StoreSettings, content: bytes | None) -> tuple[bytes, ...]:
    """Parse a trust store. ``content`` is the content of its file; None if the store is in the settings."""
    try:
        certificates = _certificates(store, content or b"")
        if not certificates:
            raise ValueError(
                "the trustAnchors parameter must be non-empty: the trust store has no certificate"
            )
        return tuple(map(_parsed, certificates))
    except ValueError as error:
        raise _unreadable(store, str(error)) from None


def _keys(store: StoreSettings, content: bytes) -> tuple[PrivateKey, ...]:
    if store.is_pem:
        return (_pem_key(store, content),)
    return _jks_keys(store, content) if _is_jks(content) else (_pkcs12_key(store, content),)


def _certificates(store: StoreSettings, content: bytes) -> tuple[bytes, ...]:
    if store.is_pem:
        return pem.certificates(_text(content) if store.certificates is None else store.certificates)
    if not _is_jks(content):
        return _pkcs12_certificates(store, content)
    found = jks.read(content, store.password)
    trusted = (each.certificate for each in found.certificates)
    return (*trusted, *(each.chain[0] for each in found.keys if each.chain))


def _content(store: StoreSettings) -> bytes | None:
    if store.location is None:
        return None
    try:
        return Path(store.location).read_bytes()
    except OSError as error:
        raise _unreadable(store, error.strerror or str(error)) from None


def _unreadable(store: StoreSettings, reason: str) -> TlsConfigError:
    """Error with Kafka's message, which says "keystore" also for a trust store file, followed by the reason."""
    prefix = store.kind.prefix
    if store.location is None:
        what = "keystore" if store.kind == KEY_STORE else "truststore"
        return TlsConfigError(f"Invalid PEM {what} configs ({store.kind.content}): {reason}")
    where = f"({prefix}.location)"
    if store.is_pem:
        return TlsConfigError(f"Failed to load PEM SSL keystore {store.location} {where}: {reason}")
    text = f"Failed to load SSL keystore {store.location} of type {store.type} {where}: {reason}"
    return TlsConfigError(text, KAFKA_EXCEPTION)


def _pem_key(store: StoreSettings, content: bytes) -> PrivateKey:
    key, chain = store.key, store.certificates
    if key is None or chain is None:
        key = chain = _text(content)
    return PrivateKey("kafka", pem.private_key(key, store.key_password), pem.certificates(chain))


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def _is_jks(content: bytes) -> bool:
    """Whether the content is JKS, by its first bytes. As in Java, the configured type need not match."""
    if content[:4] == _JCEKS:
        raise ValueError(
            "the file is a JCEKS key store, which Odradek does not read: `keytool -importkeystore` converts it"
        )
    return content[:4] == jks.MAGIC


def _jks_keys(store: StoreSettings, content: bytes) -> tuple[PrivateKey, ...]:
    password = store.key_password if store.key_password is not None else store.password
    return tuple(
        PrivateKey(each.alias, each.private_key(password or ""), each.chain)
        for each in jks.read(content, store.password).keys
    )


def _pkcs12_key(store: StoreSettings, content: bytes) -> PrivateKey:
    found = _pkcs12(store, content)
    if found.key is None or found.cert is None:
        raise ValueError("the store has no private key with a certificate")
    if store.key_password not in (None, store.password):
        raise ValueError(
            "ssl.key.password differs from ssl.keystore.password, but a PKCS12 key store has one password"
        )
    own = found.cert.certificate
    issuers = {each.certificate.subject: each.certificate for each in found.additional_certs}
    chain = [own]
    while (issuer := issuers.pop(chain[-1].issuer, None)) is not None and issuer != chain[-1]:
        chain.append(issuer)
    alias = (found.cert.friendly_name or b"1").decode("utf-8", "replace")
    return PrivateKey(alias, pem.pkcs8(found.key), tuple(_der(each) for each in chain))


def _pkcs12_certificates(store: StoreSettings, content: bytes) -> tuple[bytes, ...]:
    """All certificates of a PKCS12 store. Java loads only those with its trust attribute, which OpenSSL does not write."""
    found = _pkcs12(store, content)
    own = () if found.cert is None else (found.cert,)
    return tuple(_der(each.certificate) for each in (*found.additional_certs, *own))


def _pkcs12(store: StoreSettings, content: bytes) -> PKCS12KeyAndCertificates:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    password = None if store.password is None else store.password.encode()
    if content[:1] != bytes((der.SEQUENCE,)):
        raise ValueError("the store is neither JKS nor PKCS12")
    try:
        return load_pkcs12(content, password)
    except (ValueError, TypeError):
        state = "is not set" if password is None else "is wrong"
        raise ValueError(f"{store.kind.prefix}.password {state}, or the file is damaged") from None
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from None


def _checked(entry: PrivateKey) -> PrivateKey:
    """Return the entry. Raises ValueError unless its key is RSA or EC, and its certificates can be parsed.

    Kafka also loads DSA keys, which cannot be used with TLS 1.3.
    """
    if entry.algorithm not in (_RSA, _EC):
        raise ValueError(f"Private key could not be loaded: {entry.alias} is neither RSA nor EC")
    if not entry.chain:
        raise ValueError(f"the private key {entry.alias} has no certificate")
    for each in entry.chain:
        _parsed(each)
    return entry


def _parsed(certificate: bytes) -> bytes:
    subject(certificate)
    return certificate


def _der(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.DER)
