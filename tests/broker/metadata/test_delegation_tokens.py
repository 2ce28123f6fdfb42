"""The rules for delegation tokens, which are those of Kafka's ``DelegationTokenControlManager``."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace

import pytest
from scramp import ScramMechanism

from broker.metadata.delegation_tokens import (
    TIMESTAMP_MS_MAX,
    Lifetimes,
    Token,
    apply,
    hmac_of,
    is_expired,
    may_describe,
    new_token,
    records_between,
    renewed,
    scram_keys,
    shortened,
)
from broker.metadata.results import ApiError
from broker.metadata.scram_credentials import DIGESTS
from protocol.errors import ErrorCode
from protocol.records import cluster_metadata as schema

NOW_MS = 1_000_000
ALICE, BOB, CAROL, DAVE = "User:alice", "User:bob", "User:carol", "User:dave"
LIFETIMES = Lifetimes(max_lifetime_ms=700, expiry_time_ms=100)
TOKEN = Token(
    owner=ALICE,
    requester=BOB,
    renewers=(CAROL,),
    issue_timestamp_ms=NOW_MS - 50,
    max_timestamp_ms=NOW_MS + 650,
    expiration_timestamp_ms=NOW_MS + 50,
    token_id="t",
)


@pytest.mark.parametrize(
    ("asked_ms", "max_ms", "expires_ms"),
    [(-1, 700, 100), (0, 700, 100), (800, 700, 100), (300, 300, 100), (40, 40, 40)],
)
def test_a_token_lives_as_long_as_was_asked_and_is_allowed(asked_ms, max_ms, expires_ms):
    token = new_token("t", ALICE, BOB, [CAROL], asked_ms, LIFETIMES, NOW_MS)
    assert token == Token(
        owner=ALICE,
        requester=BOB,
        renewers=(CAROL,),
        issue_timestamp_ms=NOW_MS,
        max_timestamp_ms=NOW_MS + max_ms,
        expiration_timestamp_ms=NOW_MS + expires_ms,
        token_id="t",
    )


def test_no_time_is_too_long():
    longest = Lifetimes(TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX)
    token = new_token("t", ALICE, ALICE, [], -1, longest, NOW_MS)
    assert (token.max_timestamp_ms, token.expiration_timestamp_ms) == (TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX)
    changed = shortened(token, ALICE, TIMESTAMP_MS_MAX, NOW_MS)
    assert changed is not None
    assert changed.expiration_timestamp_ms == TIMESTAMP_MS_MAX


@pytest.mark.parametrize(
    ("period_ms", "later_ms", "expires_ms"),
    [(-1, 0, 100), (0, 0, 100), (20, 0, 20), (500, 0, 100), (-1, 50, 150), (-1, 49, 149)],
)
def test_a_renewal_counts_from_now(period_ms, later_ms, expires_ms):
    token = renewed(TOKEN, ALICE, period_ms, LIFETIMES, NOW_MS + later_ms)
    assert token == replace(TOKEN, expiration_timestamp_ms=NOW_MS + expires_ms)


def test_a_renewal_ends_with_the_longest_lifetime():
    token = replace(TOKEN, max_timestamp_ms=NOW_MS + 60)
    assert renewed(token, CAROL, -1, LIFETIMES, NOW_MS).expiration_timestamp_ms == NOW_MS + 60


@pytest.mark.parametrize(("period_ms", "expires_ms"), [(0, 0), (20, 20), (500, 500), (651, 650)])
def test_a_token_may_expire_at_another_time(period_ms, expires_ms):
    token = shortened(TOKEN, CAROL, period_ms, NOW_MS)
    assert token == replace(TOKEN, expiration_timestamp_ms=NOW_MS + expires_ms)


def test_a_negative_period_removes_even_an_expired_token():
    assert shortened(TOKEN, ALICE, -1, NOW_MS + 1_000) is None


def refused(call, *arguments) -> ErrorCode:
    with pytest.raises(ApiError) as refusal:
        call(*arguments)
    return refusal.value.error


def test_who_may_renew_and_when():
    expired, mismatch = ErrorCode.delegation_token_expired, ErrorCode.delegation_token_owner_mismatch
    assert refused(renewed, TOKEN, BOB, -1, LIFETIMES, NOW_MS) is mismatch
    assert refused(renewed, TOKEN, ALICE, -1, LIFETIMES, NOW_MS + 51) is expired
    # If two errors apply, renewing and expiring a token check them in different order.
    assert refused(renewed, TOKEN, BOB, -1, LIFETIMES, NOW_MS + 51) is expired
    assert refused(shortened, TOKEN, BOB, 0, NOW_MS + 51) is mismatch
    assert refused(shortened, TOKEN, BOB, -1, NOW_MS) is mismatch
    assert refused(shortened, TOKEN, ALICE, 0, NOW_MS + 51) is expired


def test_a_token_expires_after_its_last_millisecond():
    assert not is_expired(TOKEN, NOW_MS + 50)
    assert is_expired(TOKEN, NOW_MS + 51)
    assert is_expired(replace(TOKEN, max_timestamp_ms=NOW_MS - 1), NOW_MS)


@pytest.mark.parametrize(
    ("principal", "owners", "rights", "sees"),
    [
        (ALICE, None, (), True),
        (BOB, None, (), True),
        (CAROL, None, (), True),
        (DAVE, None, (), False),
        (DAVE, None, ("DESCRIBE DELEGATION_TOKEN t",), True),
        (DAVE, None, ("DESCRIBE_TOKENS USER User:alice",), True),
        (DAVE, None, ("DESCRIBE_TOKENS USER User:bob",), False),
        (ALICE, {ALICE}, (), True),
        (ALICE, {BOB}, (), True),
        (ALICE, {CAROL, DAVE}, (), True),
        (ALICE, {DAVE}, (), False),
        (ALICE, set(), (), False),
        (DAVE, {ALICE}, (), False),
        (DAVE, {ALICE}, ("DESCRIBE DELEGATION_TOKEN t",), True),
        (DAVE, {DAVE}, ("DESCRIBE DELEGATION_TOKEN t",), False),
    ],
)
def test_who_sees_a_token(principal, owners, rights, sees):
    assert may_describe(TOKEN, principal, owners, lambda *right: " ".join(right) in rights) is sees


def test_the_hmac_is_sha_512_of_the_id():
    """The HMAC of a token is the SHA-512 HMAC of its id, as ``openssl dgst -sha512 -hmac`` computes it."""
    assert hmac_of("VZ7qyQwXRyWTnGyJbQZC1w", b"secret-key").hex() == (
        "45c62e3b8b6b5c418fcc8b62abb9514ee9b68c719222d54990eb22e0caa1a351"
        "3f7c01e0bfafc55bf8441103c635a6506d3994d4464c2963c378f7478e487b0f"
    )


@pytest.mark.parametrize("mechanism", DIGESTS)
def test_the_password_is_the_hmac_in_base64(mechanism):
    """The password of a token is its HMAC in base64: scramp computes the token's SCRAM keys from it."""
    token_hmac, salt = hmac_of("t", b"secret"), b"0123456789abcdef"
    keys = scram_keys(token_hmac, mechanism, salt)
    password = b64encode(token_hmac).decode()
    assert tuple(keys) == ScramMechanism(mechanism).make_auth_info(password, 4096, salt)
    assert repr(keys) == "ScramKeys([hidden])"


def test_back_to_the_tokens_of_then():
    kept, changed = replace(TOKEN, token_id="kept"), replace(TOKEN, token_id="changed")
    gone, new = replace(TOKEN, token_id="gone"), replace(TOKEN, token_id="new")
    then = {each.token_id: each for each in (kept, changed, gone)}
    later = replace(changed, expiration_timestamp_ms=NOW_MS + 500)
    now = {each.token_id: each for each in (kept, later, new)}
    records = list(records_between(now, then))
    assert len(records) == 3
    for record in records:
        assert isinstance(record, (Token, schema.RemoveDelegationTokenRecord))
        apply(now, record)
    assert now == then
