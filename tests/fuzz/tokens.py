"""Tokens of the SASL mechanisms: correct ones, and some of the maximum size and nesting depth."""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

from tests.broker.security.sasl import issuer

USER: Final = "alice"
PASSWORD: Final = "Kx9-open-sesame-Zq"
BYTES_MAX: Final = 524_288
"""sasl.server.max.receive.size, which includes the request around the token."""
NEARLY: Final = BYTES_MAX - 200
JWKS: Final = issuer.jwks(issuer.jwk("ec"))


def salted_passwords() -> Iterator[tuple[int, bytes]]:
    """Yield (number of the mechanism, salted password), for the salt ``salt`` and 4096 iterations."""
    for number, digest in ((1, "sha256"), (2, "sha512")):
        yield number, hashlib.pbkdf2_hmac(digest, PASSWORD.encode(), b"salt", 4096)


def _claims(now_s: int, subject: str = USER) -> dict[str, Any]:
    return {"sub": subject, "iat": now_s - 10, "exp": now_s + 100_000_000, "scope": "all"}


@cache
def signed(now_s: int) -> str:
    return issuer.signed(_claims(now_s))


def unsecured(now_s: int) -> str:
    return _jwt(json.dumps(_claims(now_s)).encode())


def windows(secret: str, size: int) -> Iterator[str]:
    """Yield every substring of this length."""
    return (secret[at : at + size] for at in range(len(secret) - size + 1))


def _base64(part: bytes) -> str:
    return urlsafe_b64encode(part).rstrip(b"=").decode()


def _jwt(claims: bytes, header: bytes = b'{"alg":"none"}', signature: bytes = b"") -> str:
    return f"{_base64(header)}.{_base64(claims)}.{_base64(signature)}"


def _bearer(jwt: str, extensions: str = "") -> bytes:
    return f"n,,\x01auth=Bearer {jwt}\x01{extensions}\x01".encode()


def _filled(begin: bytes, filling: bytes, end: bytes = b"", share: float = 1) -> bytes:
    """A token of the maximum size (times ``share``): ``filling`` repeated between ``begin`` and ``end``."""
    return begin + filling * ((int(NEARLY * share) - len(begin) - len(end)) // len(filling)) + end


def _object(inner: str) -> bytes:
    """Claims whose member ``x`` has the value ``inner``, a JSON text that is deeply nested or very long."""
    return json.dumps(_claims(1_800_000_000))[:-1].encode() + b', "x": ' + inner.encode() + b"}"


_DEEP: Final = 150_000
HUGE: Final[tuple[Callable[[bytes], bytes], ...]] = (
    lambda token: _filled(token, b"x"),
    lambda token: _filled(b"", b"\0"),
    lambda token: _filled(b"\0", b"\xff\xc3"),
    # names, nonces and extensions of SCRAM
    lambda token: _filled(b"n,,n=", b"u", b",r=abc"),
    lambda token: _filled(b"n,,n=", b"=2C", b",r=abc"),
    lambda token: _filled(b"n,,n=", b"=2C", b"=2"),
    lambda token: _filled(b"n,,n=alice,r=abc", b",a=b"),
    lambda token: _filled(b"n,,n=alice,r=", b"r"),
    lambda token: _filled(b"n,a=", b"a", b",n=alice,r=abc,tokenauth=true"),
    lambda token: _filled(b"c=biws,r=abc", b",a=b", b",p=AAAA"),
    lambda token: _filled(b"c=biws,r=", b"r", b",p=") + b"A" * 40,
    lambda token: _filled(b"c=", b"AAAA", b",r=abc,p=AAAA"),
    # extensions of OAUTHBEARER
    lambda token: _filled(b"n,,\x01auth=Bearer e.e.\x01", b"a=b\x01", b"\x01"),
    lambda token: _filled(b"n,,\x01auth=Bearer e.e.\x01", b"a=b\x01", b"!"),
    lambda token: _filled(b"n,,\x01auth=Bearer ", b".", b"\x01\x01"),
    lambda token: _filled(b"n,,\x01auth=Bearer ", b" ", b"\x01\x01"),
    lambda token: _filled(b"n,,\x01auth=Bearer ", b"e", b".e.\x01\x01"),
    # JSON
    lambda token: _bearer(_jwt(_object("[" * _DEEP + "]" * _DEEP))),
    lambda token: _bearer(_jwt(_object('{"a":' * (_DEEP // 3) + "1" + "}" * (_DEEP // 3)))),
    lambda token: _bearer(_jwt(_object("9" * 2 * _DEEP))),
    lambda token: _bearer(_jwt(_object('"' + "s" * 2 * _DEEP + '"'))),
    lambda token: _bearer(_jwt(b'{"sub":"alice","exp":' + b"9" * 4000 + b"}")),
    lambda token: _bearer(_jwt(b'{"sub":"alice","exp":-' + b"9" * 4000 + b"}")),
    lambda token: _bearer(_jwt(b'{"sub":"alice","exp":1e999,"iat":-1e999}')),
    lambda token: _bearer(_jwt(b'{"sub":"alice","exp":1e308,"iat":' + b"9" * 4000 + b"}")),
    lambda token: _bearer(_jwt(b'{"sub":"' + b"\\ud800" * 1000 + b'","exp":9999999999}')),
    lambda token: _bearer(_jwt(b"{}", b'{"alg":"ES256","kid":' + b"[" * _DEEP + b"]" * _DEEP + b"}", b"s")),
    lambda token: _bearer(_jwt(_object("[" * _DEEP + "]" * _DEEP), b'{"alg":"ES256","kid":"ec"}', b"s" * 64)),
    lambda token: _bearer(_jwt(b"{}", b'{"alg":"ES256","kid":"' + b"k" * 2 * _DEEP + b'"}', b"s")),
    lambda token: _bearer(_jwt(b"{}", b'{"alg":["ES256"],"kid":{}}', b"s")),
    lambda token: _bearer(_jwt(b"[]", b"[]", b"s")),
    lambda token: _bearer(_jwt(b"\xff\xfe", b"\xff\xfe", b"\xff")),
)
"""Functions that make a token of the maximum size or depth. Each gets the token that is due in the login."""
