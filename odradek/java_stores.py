"""Convert Java key stores and trust stores to PEM: PKCS12, and the trusted certificates of JKS."""

from __future__ import annotations

import ssl
from pathlib import Path
from struct import Struct, error
from typing import TYPE_CHECKING, Final

from odradek.errors import BadClientSettings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

_JKS: Final = b"\xfe\xed\xfe\xed"
_HEAD: Final = Struct(">4sII")
_TAG: Final = Struct(">I")
_SIZE: Final = Struct(">I")
_TEXT: Final = Struct(">H")
_DATE_BYTES: Final = 8
_CERTIFICATE: Final = 2


def trust_store_pem(path: Path, password: str | None) -> str:
    """The certificates of a trust store, as PEM."""
    content = _read(path)
    if content[:4] == _JKS:
        certificates = [ssl.DER_cert_to_PEM_cert(each) for each in _jks_certificates(path, content)]
        return "".join(certificates)
    from cryptography.hazmat.primitives.serialization import Encoding

    found = _pkcs12(path, content, password)
    own = [] if found.cert is None else [found.cert]
    certificates = [
        each.certificate.public_bytes(Encoding.PEM).decode() for each in (*found.additional_certs, *own)
    ]
    return "".join(certificates)


def key_store_pem(path: Path, password: str | None) -> tuple[str, str]:
    """Return (private key without encryption, certificate chain) of a key store, both as PEM."""
    content = _read(path)
    if content[:4] == _JKS:
        raise BadClientSettings(
            f"{path}: JKS key stores are not supported: convert the file to PKCS12 with `keytool -importkeystore`"
        )
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    found = _pkcs12(path, content, password)
    if found.key is None or found.cert is None:
        raise BadClientSettings(f"{path}: the key store contains no private key with a certificate")
    key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = [each.certificate.public_bytes(Encoding.PEM) for each in (found.cert, *found.additional_certs)]
    return key.decode(), b"".join(chain).decode()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as failure:
        raise BadClientSettings(f"{path}: {failure.strerror}") from None


def _pkcs12(path: Path, content: bytes, password: str | None) -> PKCS12KeyAndCertificates:
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    if content[:1] != b"\x30":
        raise BadClientSettings(
            f"{path}: not a JKS or PKCS12 file; for a PEM file, set ssl.truststore.type or ssl.keystore.type to PEM"
        )
    try:
        return load_pkcs12(content, None if password is None else password.encode())
    except (TypeError, ValueError):
        state = "is missing" if password is None else "is wrong"
        raise BadClientSettings(f"{path}: its password {state}, or the file is damaged") from None


def _jks_certificates(path: Path, content: bytes) -> list[bytes]:
    """The trusted certificates of a JKS file, in DER. JKS does not encrypt certificates."""
    found, position = [], _HEAD.size
    try:
        _, version, count = _HEAD.unpack_from(content)
        for _ in range(count):
            (tag,) = _TAG.unpack_from(content, position)
            position = _after_text(content, position + _TAG.size) + _DATE_BYTES
            if tag != _CERTIFICATE:
                raise BadClientSettings(
                    f"{path}: the file contains a private key, so it is not a trust store"
                )
            if version == 2:
                position = _after_text(content, position)
            (size,) = _SIZE.unpack_from(content, position)
            position += _SIZE.size + size
            if position > len(content):
                raise BadClientSettings(f"{path}: the JKS file is damaged")
            found.append(content[position - size : position])
    except error:
        raise BadClientSettings(f"{path}: the JKS file is damaged") from None
    return found


def _after_text(content: bytes, position: int) -> int:
    (size,) = _TEXT.unpack_from(content, position)
    return position + _TEXT.size + int(size)
