"""Public keys of a token issuer (RFC 7517), from a file or from an endpoint that is fetched periodically.

Works like Kafka's ``RefreshingHttpsJwks``, but without a thread: old keys are fetched again when the next token arrives.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from broker.logging import get_logger
from broker.security.sasl.oauthbearer import InvalidToken
from protocol.named_tuple import NamedTuple
from storage.config_def import ConfigError

if TYPE_CHECKING:
    from ssl import SSLContext

    from jwt import PyJWK

KEY_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("HS256", "HS384", "HS512"), "oct"),
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512", "ES256K"), "EC"),
    "EdDSA": "OKP",
}
"""Key types by signature algorithm. The algorithm `none` is not allowed."""
CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "ES256K": "secp256k1"}

KEY_ID_MAX: Final = 1000
MISSING_KEY_IDS_MAX: Final = 16
MISSING_KEY_ID_MS: Final = 60_000
"""Milliseconds during which further tokens with the same unknown key id do not cause a fetch of the keys."""
FETCH_PAUSE_MS: Final = 300
TIMEOUT_S: Final = 20
BODY_MAX: Final = 512 * 1024

log = get_logger()


class JwksUnavailable(Exception):
    """The JWKS endpoint did not return keys."""


class Jwk:
    """One key of a JSON Web Key Set."""

    __slots__ = ("_made", "members")

    def __init__(self, members: Mapping[str, Any]) -> None:
        self.members = members
        self._made: dict[str, PyJWK | None] = {}

    def __repr__(self) -> str:
        return f"Jwk({self.members.get('kid')!r})"  # without the key, since a symmetric one is secret

    def of_algorithm(self, algorithm: str) -> PyJWK | None:
        """The key in the form that the algorithm needs; None if the key is not for this algorithm."""
        if algorithm in CURVES and self.members.get("crv") != CURVES[algorithm]:
            return None  # PyJWT would accept any curve
        if algorithm not in self._made:
            from jwt import PyJWK
            from jwt.exceptions import PyJWTError

            try:
                self._made[algorithm] = PyJWK(dict(self.members), algorithm)
            except (PyJWTError, ValueError, TypeError):
                self._made[algorithm] = None
        return self._made[algorithm]


Jwks = tuple[Jwk, ...]


class KeySource(Protocol):
    async def find(self, algorithm: str, key_id: str | None) -> Jwk | None:
        """Return the key that verifies a token with this algorithm and key id; None if there is none."""
        ...


def parse_jwks(text: str | bytes) -> Jwks:
    """Parse a JSON Web Key Set, skipping keys that cannot be used. Raises ValueError if the document is not a key set."""
    found = json.loads(text)
    if not isinstance(found, dict) or not isinstance(found.get("keys"), list):
        raise ValueError("The JSON JWKS content does not include the keys member.")
    return tuple(Jwk(each) for each in found["keys"] if isinstance(each, dict))


def select(keys: Iterable[Jwk], algorithm: str, key_id: str | None) -> Jwk | None:
    """Select a key as jose4j's ``VerificationJwkSelector``: by id, type and use, and if several match, by algorithm."""
    found = [
        key for key in keys if _may_verify(key.members, algorithm, key_id) and key.of_algorithm(algorithm)
    ]
    of_algorithm = [key for key in found if key.members.get("alg") in (None, algorithm)]
    if len(found) > 1:
        found = of_algorithm
    return found[0] if found else None


def _may_verify(members: Mapping[str, Any], algorithm: str, key_id: str | None) -> bool:
    operations = members.get("key_ops")
    return (
        members.get("kty") == KEY_TYPES[algorithm]
        and key_id in (None, members.get("kid"))
        and members.get("use") in (None, "sig")
        and (operations is None or (isinstance(operations, list) and "verify" in operations))
    )


class JwksFile:
    """Keys from a file with a JSON Web Key Set, which is read again when it has changed."""

    def __init__(self, setting: str, path: Path) -> None:
        self._setting = setting
        self._path = path
        self._check()
        self._modified_ns = -1
        self._keys: Jwks = ()
        try:
            self._read()
        except (OSError, ValueError) as error:
            raise ConfigError.of(setting, path, _reason(error)) from None

    async def find(self, algorithm: str, key_id: str | None) -> Jwk | None:
        try:
            self._read()
        except (OSError, ValueError) as error:
            raise InvalidToken(f"{self._setting}: {self._path} could not be read: {_reason(error)}") from None
        return select(self._keys, algorithm, key_id)

    def _read(self) -> None:
        modified_ns = self._path.stat().st_mtime_ns
        if modified_ns != self._modified_ns:
            self._keys = parse_jwks(self._path.read_bytes())
            self._modified_ns = modified_ns

    def _check(self) -> None:
        option = f"The OAuth configuration option {self._setting}"
        if not self._path.exists():
            raise ConfigError(f"{option} contains a file ({self._path}) that doesn't exist")
        if self._path.is_dir():
            raise ConfigError(f"{option} references a directory ({self._path}), not a file")


class Refresh(NamedTuple):
    """The settings ``sasl.oauthbearer.jwks.endpoint.*``: when keys are fetched again."""

    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int


class JwksEndpoint:
    """Keys from an endpoint, fetched again after ``refresh_ms``, or after a token with an unknown key id.

    The token with the unknown key id is refused. The next token waits until the keys are fetched.
    """

    def __init__(
        self,
        location: str,
        fetch: Callable[[], Awaitable[bytes]],
        refresh: Refresh,
        now_ms: Callable[[], int],
    ) -> None:
        self._location = location
        self._fetch = fetch
        self._refresh = refresh
        self._now_ms = now_ms
        self._keys: Jwks | None = None
        self._lock = asyncio.Lock()
        self._fetched_ms: int | None = None
        self._due_ms: int | None = None
        """Earliest time in ms of the next fetch of the keys; None if they were never fetched."""
        self._failures = 0
        self._missing: OrderedDict[str, int] = OrderedDict()

    async def find(self, algorithm: str, key_id: str | None) -> Jwk | None:
        await self._keep_fresh()
        found = select(self._keys or (), algorithm, key_id)
        if found is None and key_id is not None:
            self._miss(key_id)
        return found

    async def _keep_fresh(self) -> None:
        if not self._is_due() or (self._keys is not None and self._lock.locked()):
            return  # another token is fetching the keys; use the present ones
        async with self._lock:
            if self._is_due():
                await self._fetch_keys()

    def _is_due(self) -> bool:
        return self._due_ms is None or self._now_ms() >= self._due_ms

    async def _fetch_keys(self) -> None:
        self._fetched_ms = self._now_ms()
        fetching = asyncio.ensure_future(self._fetch())  # in a task, since aiohttp's timeouts need one
        try:
            keys = parse_jwks(await fetching)
        except (JwksUnavailable, ValueError, RecursionError) as error:
            backoff_ms = self._refresh.retry_backoff_ms << min(self._failures, 30)
            self._due_ms = self._now_ms() + min(backoff_ms, self._refresh.retry_backoff_max_ms)
            self._failures += 1
            log.warning("jwks not refreshed", location=self._location, reason=_reason(error))
            return
        finally:
            fetching.cancel()  # needed if the node died meanwhile
        self._keys, self._failures = keys, 0
        self._due_ms = self._now_ms() + self._refresh.refresh_ms
        for key in keys:
            self._missing.pop(str(key.members.get("kid")), None)

    def _miss(self, key_id: str) -> None:
        """Schedule a fetch of the keys, because they do not contain ``key_id``. A later token starts the fetch.

        Does nothing if this key id has scheduled a fetch in the last `MISSING_KEY_ID_MS`, if the last fetch
        failed, or if the key id is too long.
        """
        now_ms = self._now_ms()
        if self._failures or len(key_id) > KEY_ID_MAX or self._missing.get(key_id, now_ms) > now_ms:
            return
        self._missing[key_id] = now_ms + MISSING_KEY_ID_MS
        self._missing.move_to_end(key_id)
        if len(self._missing) > MISSING_KEY_IDS_MAX:
            self._missing.popitem(last=False)
        self._due_ms = max(now_ms, (self._fetched_ms or 0) + FETCH_PAUSE_MS)


async def fetch(url: str, ssl_context: SSLContext | None = None) -> bytes:
    """Fetch the body at a URL, as jose4j's ``Get``. Raises JwksUnavailable for any failure."""
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT_S, sock_read=TIMEOUT_S)
    body = bytearray()
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, ssl=ssl_context or True) as response,
        ):
            if response.status != 200:
                raise JwksUnavailable(f"Non 200 status code ({response.status} {response.reason})")
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > BODY_MAX:
                    raise JwksUnavailable(
                        f"More than {BODY_MAX} bytes have been read from the response body."
                    )
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # Other error texts may contain the URL, which may contain a password.
        detail = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
        raise JwksUnavailable(f"{type(error).__name__}{detail}") from None
    return bytes(body)


def location_of(url: str) -> str:
    """The URL for messages, without user information and query, which may contain a password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _reason(error: Exception) -> str:
    """Text of the error for messages. For invalid JSON it does not contain the text of the document."""
    return "no valid JSON" if isinstance(error, json.JSONDecodeError | RecursionError) else str(error)
