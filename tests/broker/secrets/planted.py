"""Secrets to plant, and a search for them in whatever form: as they are, in base64 at any place of it, in hex, quoted."""

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
"""By name: each is found by itself only, and has a character that URLs and base64 have their own way with."""
SALT = hashlib.sha256(b"salt").digest()
SALTED_PASSWORD = hashlib.sha256(b"salted").digest()


def forms(secret: bytes) -> Iterator[bytes]:
    """Each form in which a secret could be shown."""
    yield secret
    yield secret.hex().encode()
    yield secret.hex().upper().encode()
    yield repr(secret)[2:-1].encode()
    yield quote(secret).encode()
    yield secret.decode("latin-1").encode("utf-8")
    for before in range(3):
        # Of the encoded text what does not depend on the neighbours.
        encoded = b64encode(bytes(before) + secret + bytes(-(before + len(secret)) % 3))
        yield encoded[4 if before else 0 : -4]


def shown(what: bytes, secrets: Iterable[bytes]) -> list[bytes]:
    """Those of the secrets that are in it."""
    return [secret for secret in secrets if any(form in what for form in forms(secret))]


def all_planted(*others: bytes) -> list[bytes]:
    return [*(text.encode() for text in PLANTED.values()), SALT, SALTED_PASSWORD, *others]
