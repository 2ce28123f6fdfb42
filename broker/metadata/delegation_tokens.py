"""Delegation tokens in the image (KIP-48, KIP-373): lifetimes, and who may renew and describe them. Pure.

The counterpart of Kafka's ``DelegationTokenControlManager`` and ``DelegationTokenManager``. The metadata contains no
secret. The holder of a token knows the HMAC of its id, computed with ``delegation.token.secret.key``, and uses the HMAC as
the password of a SCRAM login.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Final

from broker.metadata.results import ApiError
from broker.metadata.scram_credentials import ITERATIONS_MIN, ScramKeys, keys_of
from protocol.errors import ErrorCode
from protocol.named_tuple import NamedTuple
from protocol.records import cluster_metadata as schema

Token = schema.DelegationTokenRecord
Tokens = dict[str, Token]
"""Tokens by token id."""

TIMESTAMP_MS_MAX: Final = 2**63 - 1


class Lifetimes(NamedTuple):
    """The broker's limits for the lifetime of a token."""

    max_lifetime_ms: int
    expiry_time_ms: int
    """Time in milliseconds after which a token expires unless it is renewed."""


def new_token(
    token_id: str,
    owner: str,
    requester: str,
    renewers: Iterable[str],
    max_lifetime_ms: int,
    lifetimes: Lifetimes,
    now_ms: int,
) -> Token:
    """Create a token. ``max_lifetime_ms`` is the lifetime that the client requests; below 1 the broker's limit is used."""
    longest_ms = _shorter(lifetimes.max_lifetime_ms, max_lifetime_ms)
    max_timestamp_ms = _later(now_ms, longest_ms)
    return Token(
        owner=owner,
        requester=requester,
        renewers=tuple(renewers),
        issue_timestamp_ms=now_ms,
        max_timestamp_ms=max_timestamp_ms,
        expiration_timestamp_ms=min(max_timestamp_ms, _later(now_ms, lifetimes.expiry_time_ms)),
        token_id=token_id,
    )


def renewed(token: Token, principal: str, period_ms: int, lifetimes: Lifetimes, now_ms: int) -> Token:
    """Return the token with its new expiration time.

    ``period_ms`` is the requested time until the token expires; below 1, the broker's limit is used.
    """
    _check_alive(token, now_ms)
    _check_renewer(token, principal)
    return _until(token, _later(now_ms, _shorter(lifetimes.expiry_time_ms, period_ms)))


def shortened(token: Token, principal: str, period_ms: int, now_ms: int) -> Token | None:
    """Return the token with an expiry ``period_ms`` from now; None for a negative period: remove the token."""
    _check_renewer(token, principal)
    if period_ms < 0:
        return None
    _check_alive(token, now_ms)
    return _until(token, _later(now_ms, period_ms))


def is_expired(token: Token, now_ms: int) -> bool:
    return min(token.max_timestamp_ms, token.expiration_timestamp_ms) < now_ms


def _check_alive(token: Token, now_ms: int) -> None:
    if is_expired(token, now_ms):
        raise ApiError(ErrorCode.delegation_token_expired)


def _check_renewer(token: Token, principal: str) -> None:
    """Raise `ApiError` unless the principal is the owner or a renewer. A requester who is not the owner may not renew."""
    if principal != token.owner and principal not in token.renewers:
        raise ApiError(ErrorCode.delegation_token_owner_mismatch)


def _until(token: Token, expiration_ms: int) -> Token:
    return replace(token, expiration_timestamp_ms=min(token.max_timestamp_ms, expiration_ms))


def _shorter(allowed_ms: int, wanted_ms: int) -> int:
    return min(allowed_ms, wanted_ms) if wanted_ms > 0 else allowed_ms


def _later(now_ms: int, duration_ms: int) -> int:
    return min(now_ms + duration_ms, TIMESTAMP_MS_MAX)


def may_describe(
    token: Token,
    principal: str,
    owners: Collection[str] | None,
    authorize: Callable[[str, str, str], bool],
) -> bool:
    """Whether the principal may describe the token. ``owners`` are the principals in the request's filter; None: all."""
    if owners is not None and not any(_is_of(token, each) for each in owners):
        return False
    return (
        _is_of(token, principal)
        or authorize("DESCRIBE", "DELEGATION_TOKEN", token.token_id)
        or authorize("DESCRIBE_TOKENS", "USER", token.owner)
    )


def _is_of(token: Token, principal: str) -> bool:
    return principal in (token.owner, token.requester) or principal in token.renewers


# -- secrets ------------------------------------------------------------------------------------------------------


def hmac_of(token_id: str, secret: bytes) -> bytes:
    """Return the HMAC of a token, which the token's holder knows."""
    return hmac.digest(secret, token_id.encode(), "sha512")


def scram_keys(token_hmac: bytes, mechanism: str, salt: bytes) -> ScramKeys:
    """Derive the SCRAM keys for a token from the password, which is the HMAC in base64.

    The computation takes milliseconds: do not call this function in the event loop.
    """
    return keys_of(b64encode(token_hmac), mechanism, salt, ITERATIONS_MIN)


# -- records ------------------------------------------------------------------------------------------------------


def apply(tokens: Tokens, record: Token | schema.RemoveDelegationTokenRecord) -> None:
    if isinstance(record, Token):
        tokens[record.token_id] = record
    else:
        tokens.pop(record.token_id, None)


def records_between(now: Tokens, then: Tokens) -> Iterable[schema.MetadataRecord]:
    """Return the reverse delta: the records that lead from the current tokens to those of ``then``."""
    for token_id in now.keys() - then.keys():
        yield schema.RemoveDelegationTokenRecord(token_id)
    yield from (record for token_id, record in then.items() if now.get(token_id) != record)
