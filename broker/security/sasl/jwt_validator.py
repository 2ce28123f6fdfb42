"""Validation of signed tokens: signature, issuer, audience and expiry (RFC 7519; ``BrokerJwtValidator``).

PyJWT verifies the signature. The claims are checked here, by jose4j's rules and the broker's clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from broker.security.sasl.jwks import KEY_TYPES, Jwk, KeySource
from broker.security.sasl.oauthbearer import InvalidToken, MalformedToken, Token
from protocol.named_tuple import NamedTuple

_WHITESPACE: Final = "".join(map(chr, range(0x21)))  # what Java's String.trim removes
_LONG: Final = 1 << 63


class Expectations(NamedTuple):
    """Requirements for a token, from the settings ``sasl.oauthbearer.*``."""

    audience: Sequence[str]
    """Accepted audiences. If empty, the audience of a token is not checked."""
    issuer: str | None
    """Accepted issuer. If None, the issuer of a token is not checked."""
    clock_skew_s: int
    scope_claim: str
    subject_claim: str


class JwtValidator:
    def __init__(self, expected: Expectations, keys: KeySource, now_ms: Callable[[], int]) -> None:
        self._expected = expected
        self._keys = keys
        self._now_ms = now_ms

    async def __call__(self, value: str) -> Token:
        algorithm, key_id = _header_of(value)
        key = await self._keys.find(algorithm, key_id)
        if key is None:
            raise InvalidToken("Unable to find a suitable verification key for the JWS")
        claims = _object(_verified(value, key, algorithm))
        expires_s = self._check(claims)
        _check_scope(claims.get(self._expected.scope_claim), self._expected.scope_claim)
        subject = _string(claims, self._expected.subject_claim)
        return Token(_trimmed(subject, self._expected.subject_claim), _milliseconds("exp", expires_s))

    def _check(self, claims: Mapping[str, Any]) -> int:
        """Check the claims. Returns the token's expiry in seconds since the epoch. Raises `InvalidToken`."""
        expected, now_s = self._expected, self._now_ms() // 1000
        _check_audience(claims.get("aud"), expected.audience)
        issuer = _string(claims, "iss")
        if expected.issuer is not None and issuer != expected.issuer:
            raise InvalidToken("Issuer (iss) claim value doesn't match expected value")
        _string(claims, "sub")
        _string(claims, "jti")
        expires_s, issued_s, not_before_s = (_seconds(claims, name) for name in ("exp", "iat", "nbf"))
        if expires_s is None:
            raise InvalidToken("No Expiration Time (exp) claim present.")
        if issued_s is None:
            raise InvalidToken("No Issued At (iat) claim present.")
        if now_s - expected.clock_skew_s >= expires_s:
            raise InvalidToken(
                f"The JWT is no longer valid - the evaluation time {now_s} is on or after "
                f"the Expiration Time (exp={expires_s}) claim value"
            )
        if expires_s < issued_s or (not_before_s is not None and expires_s < not_before_s):
            raise InvalidToken(
                "The Expiration Time (exp) claim value cannot be before Issued At or Not Before"
            )
        if not_before_s is not None and now_s + expected.clock_skew_s < not_before_s:
            raise InvalidToken(
                f"The JWT is not yet valid as the evaluation time is before nbf={not_before_s}"
            )
        _milliseconds("iat", issued_s)
        return expires_s


def _header_of(value: str) -> tuple[str, str | None]:
    """(algorithm, key id) from the token's header, before the signature is verified."""
    from jwt.api_jws import PyJWS
    from jwt.exceptions import PyJWTError

    if len(value.split(".")) != 3 or not all(value.split(".")):
        raise InvalidToken("Malformed JWT provided; expected three sections (header, payload, and signature)")
    try:
        header = PyJWS().get_unverified_header(value)
    except (PyJWTError, ValueError, TypeError, RecursionError):
        raise InvalidToken("Could not validate the access token: JWT processing failed.") from None
    if str(header.get("cty")).lower() in ("jwt", "application/jwt"):
        raise InvalidToken("The JWT contains a nested JWT")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in KEY_TYPES:
        raise InvalidToken("The JWS has no algorithm that is allowed")
    return algorithm, key_id


def _verified(value: str, key: Jwk, algorithm: str) -> bytes:
    """Verify the signature with the key. Returns the payload, which has the claims."""
    from jwt.api_jws import PyJWS
    from jwt.exceptions import PyJWTError

    verifier, verifying = (
        PyJWS([algorithm], {"enforce_minimum_key_length": True}),
        key.of_algorithm(algorithm),
    )
    assert verifying is not None, "KeySource.find returns keys for the algorithm only"
    try:
        payload: bytes = verifier.decode_complete(value, verifying, [algorithm])["payload"]
    except (PyJWTError, ValueError, TypeError, RecursionError) as error:
        raise InvalidToken(f"JWT rejected due to invalid signature ({type(error).__name__})") from None
    return payload


def _object(payload: bytes) -> dict[str, Any]:
    try:
        found = json.loads(payload, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidToken("Unable to parse the claims of the JWT")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("Names must be unique.")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(name)


def _check_audience(found: Any, expected: Sequence[str]) -> None:
    if not expected:
        return
    if found is None:
        raise InvalidToken("No Audience (aud) claim present.")
    audience = [found] if isinstance(found, str) else found
    if not isinstance(audience, list) or not all(isinstance(each, str) for each in audience):
        raise InvalidToken(
            "The value of the 'aud' claim is not an array of strings or a single string value."
        )
    if not set(audience) & set(expected):
        raise InvalidToken("Audience (aud) claim doesn't contain an acceptable identifier.")


def _check_scope(found: Any, name: str) -> None:
    """Check that the scopes are non-empty strings without duplicates. As in Kafka, no scope is required."""
    scopes = [found] if isinstance(found, str) else found if isinstance(found, list) else []
    if not all(isinstance(each, str) for each in scopes):
        raise MalformedToken(f"{name} has values that are not strings")
    trimmed = [_trimmed(each, name) for each in scopes]
    if len(set(trimmed)) != len(trimmed):
        raise InvalidToken(f"{name} value must not contain duplicates")


def _trimmed(value: str | None, name: str) -> str:
    if value is None or not value.strip(_WHITESPACE):
        raise InvalidToken(f"{name} value must be non-empty")
    return value.strip(_WHITESPACE)


def _string(claims: Mapping[str, Any], name: str) -> str | None:
    value = claims.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidToken(f"The value of the '{name}' claim is not the expected type")
    return value


def _seconds(claims: Mapping[str, Any], name: str) -> int | None:
    """A numeric claim in whole seconds; fractions are dropped. None if the claim is missing."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LONG <= value < _LONG:
        raise InvalidToken(f"The value of the '{name}' claim is not the expected type")
    return int(value)


def _milliseconds(name: str, seconds: int) -> int:
    if not 0 <= seconds < _LONG // 1000:
        raise InvalidToken(f"{name} value must be non-negative")
    return seconds * 1000
