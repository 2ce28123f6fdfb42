"""The controller's handling of delegation tokens (Kafka's ``DelegationTokenControlManager``, ``DelegationTokenCache``).

token = await metadata.token_control.create("User:alice", "User:alice", [], -1)
metadata.token_control.hmac_of(token.token_id)
await metadata.token_control.credential(token.token_id, "SCRAM-SHA-256")
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from broker.clock import NOTHING_DONE, Clock, Domain, Periodic
from broker.logging import get_logger
from broker.metadata import delegation_tokens as rules
from broker.metadata.client_control import TOKENS
from broker.metadata.delegation_tokens import Lifetimes, Token
from broker.metadata.features import TOKENS_FROM, metadata_version
from broker.metadata.files import new_id
from broker.metadata.results import ApiError
from broker.metadata.scram_credentials import DIGESTS, ScramKeys
from protocol.errors import ErrorCode
from protocol.named_tuple import NamedTuple
from protocol.records import cluster_metadata as schema
from protocol.uuids import uuid_text

if TYPE_CHECKING:
    from random import Random

    from broker.config import BrokerConfig
    from broker.metadata.image import Image
    from broker.metadata.writer import MetadataWriter

REMOVED_AT_ONCE_MAX: Final = 1_000
SALT_BITS: Final = 128

log = get_logger()


class TokenCredential(NamedTuple):
    """The SCRAM keys for a login with a delegation token, and the principal of the login."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
    owner: str
    """Principal of the login, such as `User:alice`."""
    expires_ms: int
    """Expiration time in the clock domain CONNECTIONS. In the past if the token has expired but is not removed yet."""

    def __repr__(self) -> str:
        return f"TokenCredential([hidden], owner={self.owner!r}, expires_ms={self.expires_ms})"


class DelegationTokenControlManager:
    """Creates, renews and removes tokens, and computes the HMACs and SCRAM keys for logins with them."""

    def __init__(
        self, image: Image, writer: MetadataWriter, config: BrokerConfig, clock: Clock, random: Random
    ) -> None:
        self._image = image
        self._writer = writer
        self._clock = clock
        self._random = random
        secret = config.delegation_token_secret_key
        self._secret = secret.encode() if secret else None
        self._lifetimes = Lifetimes(
            config.delegation_token_max_lifetime_ms, config.delegation_token_expiry_time_ms
        )
        self._check_interval_ms = config.delegation_token_expiry_check_interval_ms
        self._hmacs: dict[str, bytes] = {}
        self._ids: dict[bytes, str] = {}
        self._scram_keys: dict[tuple[str, str], asyncio.Future[ScramKeys]] = {}

    @property
    def is_enabled(self) -> bool:
        """Whether ``delegation.token.secret.key`` is set."""
        return self._secret is not None

    # -- changes ------------------------------------------------------------------------------------------------

    async def create(
        self, owner: str, requester: str, renewers: Iterable[str], max_lifetime_ms: int
    ) -> Token:
        """Create a token. Principals have the form `User:alice`."""
        self._check_supported()
        token = rules.new_token(
            uuid_text(new_id(self._random)),
            owner,
            requester,
            renewers,
            max_lifetime_ms,
            self._lifetimes,
            self._clock.now_ms(),
        )
        await self._writer.commit([token])
        return token

    async def renew(self, hmac: bytes, principal: str, period_ms: int) -> int:
        """Renew the token with this HMAC. Returns its new expiration time."""
        token = await self._settled_token(hmac)
        renewed = rules.renewed(token, principal, period_ms, self._lifetimes, self._now_for(token))
        await self._writer.commit([renewed], [TOKENS])
        return renewed.expiration_timestamp_ms

    async def expire(self, hmac: bytes, principal: str, period_ms: int) -> int:
        """Set the expiration time of the token with this HMAC and return it. A negative period removes the token."""
        token = await self._settled_token(hmac)
        now_ms = self._now_for(token)
        shortened = rules.shortened(token, principal, period_ms, now_ms)
        removal = schema.RemoveDelegationTokenRecord(token_id=token.token_id)
        await self._writer.commit([removal if shortened is None else shortened], [TOKENS])
        return now_ms if shortened is None else shortened.expiration_timestamp_ms

    async def remove_expired(self) -> None:
        """Remove every token that has expired."""
        while True:
            await self._writer.settled([TOKENS])
            expired = list(islice(self._expired(), REMOVED_AT_ONCE_MAX))
            if not expired:
                return
            for token in expired:
                log.info("delegation token expired", token_id=token.token_id, owner=token.owner)
            removals = [schema.RemoveDelegationTokenRecord(token_id=token.token_id) for token in expired]
            await self._writer.commit(removals, [TOKENS])

    def expiry_check(self, run: Callable[[Coroutine[object, object, None]], object]) -> Periodic:
        """Start the periodic removal of expired tokens. ``run`` starts a coroutine in the background."""

        def check() -> object:
            return run(self.remove_expired()) if any(self._expired()) else NOTHING_DONE

        return Periodic(
            self._clock, self._check_interval_ms, check, Domain.CREDENTIALS, self._first_expiry_ms
        )

    async def _settled_token(self, hmac: bytes) -> Token:
        """Wait for pending changes of tokens, then return the token with this HMAC. Raises `ApiError` if there is none."""
        self._check_supported()
        await self._writer.settled([TOKENS])
        token_id = self._ids_by_hmac().get(hmac)
        if token_id is None:
            raise ApiError(ErrorCode.delegation_token_not_found)
        return self._image.tokens[token_id]

    def _check_supported(self) -> None:
        if not self.is_enabled:
            raise ApiError(ErrorCode.delegation_token_auth_disabled)
        if metadata_version(self._image.features) < TOKENS_FROM:
            raise ApiError(ErrorCode.unsupported_version)

    # -- time: a token's timestamps are relative to its issue timestamp -----------------------------------------

    def _now_for(self, token: Token) -> int:
        return self._clock.now_for(token.issue_timestamp_ms, Domain.CREDENTIALS)

    def _left_ms(self, token: Token) -> int:
        return token.expiration_timestamp_ms - self._now_for(token)

    def _expired(self) -> Iterator[Token]:
        return (each for each in self._image.tokens.values() if rules.is_expired(each, self._now_for(each)))

    def _first_expiry_ms(self) -> int | None:
        left_ms = min(map(self._left_ms, self._image.tokens.values()), default=None)
        return None if left_ms is None else self._clock.now_ms(Domain.CREDENTIALS) + left_ms + 1

    # -- queries, HMACs and SCRAM keys --------------------------------------------------------------------------

    def describe(
        self,
        principal: str,
        owners: Collection[str] | None,
        authorize: Callable[[str, str, str], bool],
    ) -> list[Token]:
        """Return the tokens of these owners (None: of all owners) that the principal may describe."""
        return [
            token
            for token in self._image.tokens.values()
            if rules.may_describe(token, principal, owners, authorize)
        ]

    def hmac_of(self, token_id: str) -> bytes:
        """Return the HMAC of an existing token."""
        assert self._secret is not None
        return self._hmacs.get(token_id) or rules.hmac_of(token_id, self._secret)

    def _ids_by_hmac(self) -> dict[bytes, str]:
        assert self._secret is not None
        known, tokens = self._hmacs, self._image.tokens
        if known.keys() != tokens.keys():
            for token_id in known.keys() - tokens.keys():
                del self._ids[known.pop(token_id)]
            for token_id in tokens.keys() - known.keys():
                known[token_id] = hmac = rules.hmac_of(token_id, self._secret)
                self._ids[hmac] = token_id
        return self._ids

    async def credential(self, token_id: str, mechanism: str) -> TokenCredential | None:
        """Return the keys for a login with the token, None if it does not exist. The first login computes the keys."""
        if not self.is_enabled or mechanism not in DIGESTS or token_id not in self._image.tokens:
            return None
        keys = await self._keys(token_id, mechanism)
        token = self._image.tokens.get(token_id)
        if token is None:
            return None
        expires_ms = self._clock.now_ms(Domain.CONNECTIONS) + self._left_ms(token)
        return TokenCredential(*keys, token.owner, expires_ms)

    async def _keys(self, token_id: str, mechanism: str) -> ScramKeys:
        making = self._scram_keys.get((token_id, mechanism))
        if making is None:
            for gone in [key for key in self._scram_keys if key[0] not in self._image.tokens]:
                del self._scram_keys[gone]
            salt = self._random.getrandbits(SALT_BITS).to_bytes(SALT_BITS // 8, "big")
            work = partial(rules.scram_keys, self.hmac_of(token_id), mechanism, salt)
            making = asyncio.get_running_loop().run_in_executor(None, work)
            self._scram_keys[token_id, mechanism] = making
            self._clock.wait_for(making)
        # Shielded, so that a client that disconnects does not cancel the computation for other clients.
        return await asyncio.shield(making)
