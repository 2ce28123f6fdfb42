"""Unsigned tokens for tests and development, which Kafka accepts if no validator is configured.

The rules are those of ``OAuthBearerUnsecuredValidatorCallbackHandler`` and ``OAuthBearerUnsecuredJws``, and, for creating
such tokens, of ``OAuthBearerUnsecuredLoginCallbackHandler``.
"""

from __future__ import annotations

import json
import math
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker.security.sasl.oauthbearer import InvalidToken, MalformedToken, Token
from protocol.named_tuple import NamedTuple
from storage.config_def import ConfigError

_VALIDATOR: Final = "unsecuredValidator"
_LOGIN: Final = "unsecuredLogin"
_BASE64: Final = re.compile(r"[A-Za-z0-9_-]*")
_SCOPE_ITEM: Final = re.compile(r"[\x23-\x5b\x5d-\x7e\x21]+")
_WHITESPACE: Final = "".join(map(chr, range(0x21)))  # what Java's String.trim removes
_LONG_MAX: Final = (1 << 63) - 1
_LIFETIME_S: Final = 3600

Claim = str | int | float | list[str]


class UnsecuredOptions(NamedTuple):
    """The `unsecuredValidator...` options of the login module."""

    principal_claim: str
    scope_claim: str
    required_scope: tuple[str, ...]
    clock_skew_ms: int


def validator_options(options: Mapping[str, str]) -> UnsecuredOptions:
    """Parse the options. Raises ConfigError for errors that Kafka would detect only when a token arrives."""

    def option(name: str) -> str:
        return options.get(_VALIDATOR + name, "").strip(_WHITESPACE)

    required = tuple(filter(None, option("RequiredScope").split(" ")))
    for item in required:
        if not _SCOPE_ITEM.fullmatch(item):
            raise ConfigError(f"Invalid scope value: {item}")
    return UnsecuredOptions(
        principal_claim=option("PrincipalClaimName") or "sub",
        scope_claim=option("ScopeClaimName") or "scope",
        required_scope=required,
        clock_skew_ms=_clock_skew_ms(option("AllowableClockSkewMs")),
    )


def _clock_skew_ms(text: str) -> int:
    if not text:
        return 0
    if not re.fullmatch(r"[+-]?\d{1,10}", text):
        raise ConfigError(f'For input string: "{text}"')
    if int(text) < 0:
        raise ConfigError(f"Allowable clock skew millis must not be negative: {text}")
    return int(text)


class UnsecuredValidator:
    def __init__(self, options: UnsecuredOptions, now_ms: Callable[[], int]) -> None:
        self._options = options
        self._now_ms = now_ms

    async def __call__(self, value: str) -> Token:
        options = self._options
        claims = claims_of(value)
        scope = _scope(claims, options.scope_claim)
        expires_s = _claim(claims, "exp", int | float, "Number")
        if expires_s is None:
            raise InvalidToken("No expiration time in JWT")
        principal = _claim(claims, options.principal_claim, str, "String")
        if principal is None or not principal.strip(_WHITESPACE):
            raise InvalidToken(f"No principal name in JWT claim: {options.principal_claim}")
        issued_s = _claim(claims, "iat", int | float, "Number")
        _check_times(issued_s, expires_s, self._now_ms(), options.clock_skew_ms)
        _check_scope(scope, options.required_scope)
        return Token(principal, _milliseconds(expires_s))


def claims_of(value: str) -> dict[str, Any]:
    """Claims of a compact serialization without a signature, not converted yet (see `_converted`)."""
    if ".." in value:
        raise InvalidToken("Malformed compact serialization contains '..'")
    parts = value.split(".")
    if len(parts) != 3:
        raise InvalidToken(
            "Unsecured JWS compact serializations must have 3 dot-separated Base64URL-encoded values"
        )
    header, claims = json_of(parts[0]), json_of(parts[1])
    if "alg" not in header:
        raise MalformedToken("JWS header must have an Algorithm value")
    if header["alg"] != "none":
        raise InvalidToken("Unsecured JWS must have 'none' for an algorithm")
    if parts[2]:
        raise InvalidToken("Unsecured JWS must not contain a digital signature")
    return claims


def json_of(part: str) -> dict[str, Any]:
    """Members of the JSON object in a part of a token. As with Jackson, a JSON value of another type has no members."""
    if not _BASE64.fullmatch(part) or len(part) % 4 == 1:
        raise InvalidToken("malformed Base64 URL encoded value")
    try:
        text = urlsafe_b64decode(part + "=" * (-len(part) % 4)).decode().lstrip(" \t\r\n")
        found, _ = _DECODER.raw_decode(text) if text else ({}, 0)
    except (ValueError, RecursionError):
        raise InvalidToken("malformed JSON") from None
    return found if isinstance(found, dict) else {}


def _no_constant(name: str) -> float:
    raise ValueError(name)


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


def _converted(value: Any) -> Any:
    """A claim's value as Kafka converts it: numbers and arrays unchanged, all else to text (``JsonNode.asText``)."""
    is_kept = isinstance(value, int | float | list) and not isinstance(value, bool)
    return value if is_kept else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if isinstance(value, dict | list) else json.dumps(value)


def _claim(claims: Mapping[str, Any], name: str, kind: Any, kind_name: str) -> Any:
    """A claim of the expected type. Claims are converted on access only, since a token may have a hundred thousand."""
    value = _converted(claims[name]) if name in claims else None
    if value is not None and not isinstance(value, kind):
        raise InvalidToken(f"The '{name}' claim was not of type {kind_name}")
    return value


def _scope(claims: Mapping[str, Any], name: str) -> list[Any]:
    """The scope elements. A string is a single element, even if it contains spaces."""
    value = _converted(claims[name]) if name in claims else []
    return [value] if isinstance(value, str) else _claim(claims, name, list, "List") or []


def _check_times(issued_s: float | None, expires_s: float, now_ms: int, skew_ms: int) -> None:
    if issued_s is not None and 1000 * issued_s > now_ms + skew_ms:
        raise InvalidToken(
            f"The Issued At value ({issued_s} seconds) was after the indicated time ({now_ms} ms) "
            f"plus allowable clock skew ({skew_ms} ms)"
        )
    if now_ms - skew_ms >= 1000 * expires_s:
        raise InvalidToken(
            f"The indicated time ({now_ms} ms) minus allowable clock skew ({skew_ms} ms) was on or after "
            f"the Expiration Time value ({expires_s} seconds)"
        )
    if issued_s is not None and expires_s <= issued_s:
        raise InvalidToken(
            f"The Expiration Time time ({expires_s} seconds) was not after the Issued At time ({issued_s} seconds)"
        )


def _check_scope(scope: list[Any], required: tuple[str, ...]) -> None:
    items = {_text(each).strip(_WHITESPACE) for each in scope} if required else ()
    for item in required:
        if item not in items:
            listed = f"[{', '.join(required)}]"
            raise InvalidToken(
                f"The provided scope was missing a required scope ({item}).  All required scope elements: {listed}",
                scope=listed,
            )


def _milliseconds(seconds: float) -> int:
    """Seconds to milliseconds as by ``Math.round``, limited to a long."""
    exact = seconds * 1000
    return min(math.floor(exact + 0.5), _LONG_MAX) if exact < _LONG_MAX else _LONG_MAX


# The login of a client


def token(options: Mapping[str, str], now_ms: int) -> str | None:
    """The token for the `unsecuredLogin...` options of a login module. None without options: the module cannot log in."""
    if not options:
        return None
    if all(name.startswith(f"{_LOGIN}Extension_") for name in options):
        raise ConfigError("Extensions provided in login context without a token")
    lifetime = options.get(f"{_LOGIN}LifetimeSeconds", str(_LIFETIME_S))
    if not re.fullmatch(r"[+-]?\d{1,18}", lifetime):
        raise ConfigError(f'For input string: "{lifetime}"')
    claims: dict[str, Claim] = {"exp": now_ms / 1000 + int(lifetime), "iat": now_ms / 1000}
    claims |= _login_claims(options)
    principal = options.get(f"{_LOGIN}PrincipalClaimName", "").strip(_WHITESPACE) or "sub"
    if not isinstance(claims.get(principal), str) or not str(claims[principal]).strip(_WHITESPACE):
        raise ConfigError(f"No principal name in JWT claim: {principal}")
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def extensions(options: Mapping[str, str]) -> dict[str, str]:
    """SASL extensions (name -> value) that the client sends with its token, from the login module's options."""
    prefix = f"{_LOGIN}Extension_"
    return {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}


def _login_claims(options: Mapping[str, str]) -> dict[str, Claim]:
    claims: dict[str, Claim] = {}
    for option, text in options.items():
        kind, _, name = option.removeprefix(_LOGIN).partition("Claim_")
        if not option.startswith(_LOGIN) or not name or kind not in ("String", "Number", "List"):
            continue
        if name in ("iat", "exp"):
            raise ConfigError(f"Cannot explicitly set the '{name}' claim")
        claims[name] = _login_claim(kind, text)
    return claims


def _login_claim(kind: str, text: str) -> Claim:
    """Parse a claim. A list starts with the character that separates its elements."""
    if kind == "String":
        return text
    if kind == "List":
        return text[1:].split(text[0]) if len(text) > 1 else []
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f'For input string: "{text}"')
    return number


def _encoded(members: Mapping[str, Claim]) -> str:
    text = json.dumps(members, separators=(",", ":"), ensure_ascii=False)
    return urlsafe_b64encode(text.encode()).rstrip(b"=").decode()
