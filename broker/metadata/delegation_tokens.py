"""Delegation tokens in the image (KIP-48, KIP-373): how long they live, and who may renew and see them. Pure.

As Kafka's ``DelegationTokenControlManager`` and ``DelegationTokenManager``. The metadata has no secret of a token. What its
holder has is the HMAC of its id, made with ``delegation.token.secret.key``; a SCRAM login takes that for the password.
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
"""By token id."""

TIMESTAMP_MS_MAX: Final = 2**63 - 1


class Lifetimes(NamedTuple):
    """What the broker's settings allow."""

    max_lifetime_ms: int
    expiry_time_ms: int
    """Until it must be renewed."""


def new_token(
    token_id: str,
    owner: str,
    requester: str,
    renewers: Iterable[str],
    max_lifetime_ms: int,
    lifetimes: Lifetimes,
    now_ms: int,
) -> Token:
    """``max_lifetime_ms`` is what the client asks for; below 1 it leaves that to the broker."""
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
    """The token with its new time of expiry; ``period_ms`` below 1 asks for as long as the broker allows."""
    _check_alive(token, now_ms)
    _check_renewer(token, principal)
    return _until(token, _later(now_ms, _shorter(lifetimes.expiry_time_ms, period_ms)))


def shortened(token: Token, principal: str, period_ms: int, now_ms: int) -> Token | None:
    """The token with its new time of expiry; None if the period is negative: the token is to be removed."""
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
    """Who asked for the token of another may not renew it."""
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
    """May the principal see the token? ``owners`` are the principals that it asks about, None for all."""
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
    """What the holder of a token has."""
    return hmac.digest(secret, token_id.encode(), "sha512")


def scram_keys(token_hmac: bytes, mechanism: str, salt: bytes) -> ScramKeys:
    """Of the password that a holder logs in with, the HMAC in base64. It takes milliseconds: not for the loop."""
    return keys_of(b64encode(token_hmac), mechanism, salt, ITERATIONS_MIN)


# -- records ------------------------------------------------------------------------------------------------------


def apply(tokens: Tokens, record: Token | schema.RemoveDelegationTokenRecord) -> None:
    if isinstance(record, Token):
        tokens[record.token_id] = record
    else:
        tokens.pop(record.token_id, None)


def records_between(now: Tokens, then: Tokens) -> Iterable[schema.MetadataRecord]:
    """Back from what there is now to what there was then."""
    for token_id in now.keys() - then.keys():
        yield schema.RemoveDelegationTokenRecord(token_id)
    yield from (record for token_id, record in then.items() if now.get(token_id) != record)
