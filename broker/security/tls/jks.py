"""Java's key store format JKS: reader and writer, including Sun's protection of private keys. Pure.

    store = jks.read(content, "changeit")
    store.certificates[0].certificate              # DER
    store.keys[0].private_key("changeit")          # PKCS#8, DER

There is no specification; the format is defined by ``sun.security.provider.JavaKeyStore`` and ``KeyProtector``:

    magic, version 2, count, then each entry: kind, alias, time in ms, and
        kind 1: protected key, count of certificates, certificates
        kind 2: certificate
    SHA-1 of password, `Mighty Aphrodite` and everything before
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from hmac import compare_digest
from typing import Final

from broker.security.tls import der
from protocol.named_tuple import NamedTuple

MAGIC: Final = b"\xfe\xed\xfe\xed"
_KEY, _CERTIFICATE = 1, 2
_WHITENER: Final = b"Mighty Aphrodite"
_DIGEST_BYTES: Final = 20
SALT_BYTES: Final = 20
_KEY_PROTECTOR: Final = "1.3.6.1.4.1.42.2.17.1.1"
_KEY_PROTECTOR_ALGORITHM: Final = bytes.fromhex("300e060a2b060104012a021101010500")


class InvalidKeyStore(ValueError):
    """Not a JKS key store, or a wrong password. The text never contains the password."""


class KeyEntry(NamedTuple):
    alias: str
    protected_key: bytes
    """EncryptedPrivateKeyInfo of PKCS#8, encrypted with Sun's proprietary algorithm."""
    chain: tuple[bytes, ...]

    def private_key(self, password: str) -> bytes:
        """Decrypt the key. Returns PKCS#8."""
        try:
            algorithm, data = der.members(self.protected_key, 2)[:2]
            identifier = der.dotted(der.members(algorithm.encoded, 1)[0].content)
        except ValueError:
            raise InvalidKeyStore(f"the private key of {self.alias} is not stored as PKCS#8") from None
        if identifier != _KEY_PROTECTOR:
            raise InvalidKeyStore(
                f"the private key of {self.alias} is protected by {identifier}, which JKS does not support"
            )
        salt, masked, check = _parts(data.content)
        key = _masked(masked, password, salt)
        if not compare_digest(hashlib.sha1(_bytes_of(password) + key).digest(), check):
            raise InvalidKeyStore(f"the private key of {self.alias} cannot be decrypted with this password")
        return key


class CertificateEntry(NamedTuple):
    alias: str
    certificate: bytes


class JavaKeyStore(NamedTuple):
    keys: tuple[KeyEntry, ...]
    certificates: tuple[CertificateEntry, ...]


def read(content: bytes, password: str | None) -> JavaKeyStore:
    """Parse a key store. As in Java, the integrity is not checked without a password."""
    reader = _Reader(content)
    if reader.take(4) != MAGIC or (version := reader.integer(4)) not in (1, 2):
        raise InvalidKeyStore("not a JKS key store of version 1 or 2")
    keys, certificates = [], []
    for _ in range(reader.integer(4)):
        kind, alias = reader.integer(4), reader.text()
        reader.integer(8)  # creation time
        if kind == _KEY:
            key = reader.block()
            chain = tuple(reader.certificate(version) for _ in range(reader.integer(4)))
            keys.append(KeyEntry(alias, key, chain))
        elif kind == _CERTIFICATE:
            certificates.append(CertificateEntry(alias, reader.certificate(version)))
        else:
            raise InvalidKeyStore(f"unknown kind of entry: {kind}")
    body = content[: reader.at]
    if password is not None and not compare_digest(_digest(body, password), reader.take(_DIGEST_BYTES)):
        raise InvalidKeyStore("the key store was tampered with, or the password is wrong")
    return JavaKeyStore(tuple(keys), tuple(certificates))


def write(
    keys: Sequence[KeyEntry], certificates: Sequence[CertificateEntry], password: str, now_ms: int
) -> bytes:
    """Write a key store of version 2."""
    time = now_ms.to_bytes(8, "big")
    parts = [MAGIC, _integer(2), _integer(len(keys) + len(certificates))]
    for key in keys:
        parts += [_integer(_KEY), _text(key.alias.lower()), time, _block(key.protected_key)]
        parts += [_integer(len(key.chain)), *_certificates(key.chain)]
    for each in certificates:
        parts += [_integer(_CERTIFICATE), _text(each.alias.lower()), time, *_certificates([each.certificate])]
    body = b"".join(parts)
    return body + _digest(body, password)


def protect(key: bytes, password: str, salt: bytes) -> bytes:
    """Encrypt a PKCS#8 private key for a `KeyEntry`. ``salt`` must have `SALT_BYTES` random bytes."""
    check = hashlib.sha1(_bytes_of(password) + key).digest()
    data = salt + _masked(key, password, salt) + check
    return der.encode(der.SEQUENCE, _KEY_PROTECTOR_ALGORITHM, der.encode(der.OCTET_STRING, data))


class _Reader:
    """Reads values as ``java.io.DataInputStream`` does."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.at = 0

    def take(self, count: int) -> bytes:
        start, self.at = self.at, self.at + count
        if self.at > len(self._content):
            raise InvalidKeyStore("the key store is truncated")
        return self._content[start : self.at]

    def integer(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def block(self) -> bytes:
        return self.take(self.integer(4))

    def text(self) -> str:
        """A string in Java's modified UTF-8: surrogates are encoded separately, and NUL as two bytes."""
        encoded = self.take(self.integer(2)).replace(b"\xc0\x80", b"\0")
        units = encoded.decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass")
        return units.decode("utf-16", "replace")

    def certificate(self, version: int) -> bytes:
        if version == 2 and (kind := self.text()) not in ("X.509", "X509"):
            raise InvalidKeyStore(f"a certificate of type {kind}, but TLS needs X.509")
        return self.block()


def _parts(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Split a protected key into (salt, encrypted key, check digest)."""
    end = max(SALT_BYTES, len(data) - _DIGEST_BYTES)
    return data[:SALT_BYTES], data[SALT_BYTES:end], data[end:]


def _masked(key: bytes, password: str, salt: bytes) -> bytes:
    """XOR of the key with a chain of digests that starts with the salt. Encrypts and decrypts."""
    secret, digest, mask = _bytes_of(password), salt, b""
    while len(mask) < len(key):
        digest = hashlib.sha1(secret + digest).digest()
        mask += digest
    return bytes(a ^ b for a, b in zip(key, mask, strict=False))


def _digest(body: bytes, password: str) -> bytes:
    return hashlib.sha1(_bytes_of(password) + _WHITENER + body).digest()


def _bytes_of(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


def _certificates(certificates: Iterable[bytes]) -> Iterable[bytes]:
    return (_text("X.509") + _block(each) for each in certificates)


def _integer(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _block(data: bytes) -> bytes:
    return _integer(len(data)) + data


def _text(text: str) -> bytes:
    encoded = text.encode("utf-8")
    return len(encoded).to_bytes(2, "big") + encoded
