"""The public keys of an issuer of tokens (RFC 7517): from a file, or from an endpoint that is asked again from time to time.

As Kafka's ``RefreshingHttpsJwks``, but without a thread: the keys are fetched when a token comes for which they are too old.
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
"""Of the algorithms that sign a token; `none` is not one of them."""
CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "ES256K": "secp256k1"}

KEY_ID_MAX: Final = 1000
MISSING_KEY_IDS_MAX: Final = 16
MISSING_KEY_ID_MS: Final = 60_000
"""So long no second token with this unknown key id leads to a fetch."""
FETCH_PAUSE_MS: Final = 300
TIMEOUT_S: Final = 20
BODY_MAX: Final = 512 * 1024

log = get_logger()


class JwksUnavailable(Exception):
    """The endpoint gave no keys."""


class Jwk:
    """One key of a set."""

    __slots__ = ("_made", "members")

    def __init__(self, members: Mapping[str, Any]) -> None:
        self.members = members
        self._made: dict[str, PyJWK | None] = {}

    def __repr__(self) -> str:
        return f"Jwk({self.members.get('kid')!r})"  # a symmetric key is a secret

    def of_algorithm(self, algorithm: str) -> PyJWK | None:
        """The key as this algorithm verifies with it, if it is one for it."""
        if algorithm in CURVES and self.members.get("crv") != CURVES[algorithm]:
            return None  # PyJWT takes any curve
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
        """The key that a token of this header is verified with."""
        ...


def parse_jwks(text: str | bytes) -> Jwks:
    """ValueError for what is no set of keys; single keys that cannot be used do no harm."""
    found = json.loads(text)
    if not isinstance(found, dict) or not isinstance(found.get("keys"), list):
        raise ValueError("The JSON JWKS content does not include the keys member.")
    return tuple(Jwk(each) for each in found["keys"] if isinstance(each, dict))


def select(keys: Iterable[Jwk], algorithm: str, key_id: str | None) -> Jwk | None:
    """As jose4j's ``VerificationJwkSelector``: by id, type and use; the algorithm decides only between several."""
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
    """Read again when the file has changed."""

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
    """``sasl.oauthbearer.jwks.endpoint.*``"""

    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int


class JwksEndpoint:
    """A token with an unknown key id is refused; the keys are fetched before the next one is looked at."""

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
        """None: at once."""
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
            return  # another token fetches, and this one takes the keys that there are
        async with self._lock:
            if self._is_due():
                await self._fetch_keys()

    def _is_due(self) -> bool:
        return self._due_ms is None or self._now_ms() >= self._due_ms

    async def _fetch_keys(self) -> None:
        self._fetched_ms = self._now_ms()
        fetching = asyncio.ensure_future(self._fetch())  # a task: aiohttp's time limits ask for one
        try:
            keys = parse_jwks(await fetching)
        except (JwksUnavailable, ValueError, RecursionError) as error:
            backoff_ms = self._refresh.retry_backoff_ms << min(self._failures, 30)
            self._due_ms = self._now_ms() + min(backoff_ms, self._refresh.retry_backoff_max_ms)
            self._failures += 1
            log.warning("jwks not refreshed", location=self._location, reason=_reason(error))
            return
        finally:
            fetching.cancel()  # where the node has died meanwhile
        self._keys, self._failures = keys, 0
        self._due_ms = self._now_ms() + self._refresh.refresh_ms
        for key in keys:
            self._missing.pop(str(key.members.get("kid")), None)

    def _miss(self, key_id: str) -> None:
        """Let the keys be fetched for the next token, unless this one's key has been missed a short time ago."""
        now_ms = self._now_ms()
        if self._failures or len(key_id) > KEY_ID_MAX or self._missing.get(key_id, now_ms) > now_ms:
            return
        self._missing[key_id] = now_ms + MISSING_KEY_ID_MS
        self._missing.move_to_end(key_id)
        if len(self._missing) > MISSING_KEY_IDS_MAX:
            self._missing.popitem(last=False)
        self._due_ms = max(now_ms, (self._fetched_ms or 0) + FETCH_PAUSE_MS)


async def fetch(url: str, ssl_context: SSLContext | None = None) -> bytes:
    """The body at an address, as jose4j's ``Get`` gets it; JwksUnavailable for whatever prevents it."""
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
        # Other texts of errors have the address in them, which may have a password.
        detail = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
        raise JwksUnavailable(f"{type(error).__name__}{detail}") from None
    return bytes(body)


def location_of(url: str) -> str:
    """An address for people, without what may be a password in it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _reason(error: Exception) -> str:
    """What is said of a failure: of JSON the place, not the text."""
    return "no valid JSON" if isinstance(error, json.JSONDecodeError | RecursionError) else str(error)
