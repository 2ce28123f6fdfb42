"""Certificates and private keys as PEM, as Kafka reads them (KIP-651)."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import TYPE_CHECKING, Final

from broker.security.tls import der

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12PrivateKeyTypes

# There may be text between the entries, and in a properties file an entry may be on one line.
_ENTRY: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_HEADER: Final = re.compile(r"^[^\n:]*:[^\n]*$", re.MULTILINE)
_NOT_LOADED: Final = "Private key could not be loaded"


def certificates(text: str) -> tuple[bytes, ...]:
    """Decode all certificates to DER. Raises ValueError if there is none, or one is not base64."""
    return _entries(text, "CERTIFICATE")


def private_key(text: str, password: str | None) -> bytes:
    """Decode a private key to PKCS#8 in DER. Raises ValueError if that is not possible.

    As in Kafka, only PKCS#8 is supported, and a password means that the key is encrypted.
    """
    found = _entries(text, "PRIVATE KEY")
    if len(found) != 1:
        raise ValueError(f"Expected one private key, but found {len(found)}")
    tags = [each.tag for each in der.members(found[0], 2)]
    if tags == [der.SEQUENCE, der.OCTET_STRING]:
        if password is None:
            raise ValueError(f"{_NOT_LOADED}: it is encrypted, and ssl.key.password is not set")
        return _decrypted(found[0], password)
    if tags[:3] != [der.INTEGER, der.SEQUENCE, der.OCTET_STRING]:
        raise ValueError(f"{_NOT_LOADED}: it is not PKCS#8 (`openssl pkcs8 -topk8` makes it so)")
    if password is not None:
        raise ValueError(f"{_NOT_LOADED}: ssl.key.password is set, but the key is not encrypted")
    return found[0]


def _entries(text: str, name: str) -> tuple[bytes, ...]:
    """Contents of all PEM entries with the label ``name``, including encrypted entries."""
    found = [body for label, body in _ENTRY.findall(text) if label.endswith(name)]
    if not found:
        raise ValueError(f"No matching {name} entries in PEM file")
    try:
        return tuple(b64decode("".join(_HEADER.sub("", body).split()), validate=True) for body in found)
    except binascii.Error:
        raise ValueError(f"a {name} entry is not base64") from None


def _decrypted(key: bytes, password: str) -> bytes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    try:
        return pkcs8(load_der_private_key(key, password.encode()))
    except (ValueError, TypeError):
        raise ValueError(f"{_NOT_LOADED}: ssl.key.password is not its password") from None
    except UnsupportedAlgorithm as error:
        raise ValueError(f"{_NOT_LOADED}: {error}") from None


def pkcs8(key: PKCS12PrivateKeyTypes | PrivateKeyTypes) -> bytes:
    """A key as unencrypted PKCS#8 in DER."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


def encode(label: str, data: bytes) -> str:
    """Encode one PEM entry."""
    base64 = binascii.b2a_base64(data, newline=False).decode()
    lines = "\n".join(base64[at : at + 64] for at in range(0, len(base64), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"
