"""Secrets to plant, and a search for them in every form: plain, hex, quoted, and base64 at any position of a longer text."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Iterator
from urllib.parse import quote

NAMES = (
    "plain-password",
    "wrong-password",
    "raw-token-password",
    "jaas-own-password",
    "scram-password",
    "oauth-claim",
    "store-password",
    "dynamic-key-password",
    "dynamic-jaas-password",
    "dynamic-key-pem",
    "replaced-password",
    "refused-password",
    "plugin-password",
    "dynamic-plugin-password",
    "control-token",
    "look-token",
    "delegation-secret-key",
    "stray-password",
)
PLANTED = {name: f"{hashlib.sha256(name.encode()).hexdigest()[:10]}/{name}" for name in NAMES}
"""The secrets by name. No secret contains another, and each has a character that URLs and base64 encode."""
SALT = hashlib.sha256(b"salt").digest()
SALTED_PASSWORD = hashlib.sha256(b"salted").digest()


def forms(secret: bytes) -> Iterator[bytes]:
    """Every form in which the secret might be shown."""
    yield secret
    yield secret.hex().encode()
    yield secret.hex().upper().encode()
    yield repr(secret)[2:-1].encode()
    yield quote(secret).encode()
    yield secret.decode("latin-1").encode("utf-8")
    for before in range(3):
        # The part of the base64 text that does not depend on the bytes around the secret.
        encoded = b64encode(bytes(before) + secret + bytes(-(before + len(secret)) % 3))
        yield encoded[4 if before else 0 : -4]


def shown(what: bytes, secrets: Iterable[bytes]) -> list[bytes]:
    """The secrets that occur in ``what``."""
    return [secret for secret in secrets if any(form in what for form in forms(secret))]


def all_planted(*others: bytes) -> list[bytes]:
    return [*(text.encode() for text in PLANTED.values()), SALT, SALTED_PASSWORD, *others]
