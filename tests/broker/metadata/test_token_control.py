"""Delegation tokens in the cluster metadata: restarts, expiration, and the credentials of their holders."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_asyncio
from scramp import ScramMechanism

from broker.clock import Clock, Domain
from broker.clock.virtual import VirtualClock
from broker.config import broker_config
from broker.metadata import ApiError, ClusterMetadata
from broker.metadata.token_control import REMOVED_AT_ONCE_MAX
from protocol.errors import ErrorCode
from tests.support.clock import NOW_MS, FakeClock

ALICE, BOB = "User:alice", "User:bob"
SECRET = "the-secret-key"
DAY_MS, HOUR_MS = 86_400_000, 3_600_000
UNKNOWN = b"\0" * 64


def opened(directory: Path, clock: Clock, secret: str = SECRET, features: dict[str, int] | None = None):
    return ClusterMetadata.open(
        directory,
        config=broker_config({"delegation.token.secret.key": secret}),
        clock=clock,
        random=Random(1),
        features=features,
    )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest_asyncio.fixture
async def cluster(tmp_path: Path, clock: FakeClock) -> AsyncIterator[ClusterMetadata]:
    cluster = opened(tmp_path / "node", clock)
    yield cluster
    await cluster.close()


async def refused(work: Coroutine[Any, Any, Any]) -> ErrorCode:
    with pytest.raises(ApiError) as refusal:
        await work
    return refusal.value.error


async def test_a_token_is_created_renewed_and_expired(cluster, clock):
    control = cluster.token_control
    token = await control.create(ALICE, ALICE, [BOB], -1)
    assert cluster.image.tokens == {token.token_id: token}
    assert (token.issue_timestamp_ms, token.max_timestamp_ms) == (NOW_MS, NOW_MS + 7 * DAY_MS)
    hmac = control.hmac_of(token.token_id)
    clock.advance(HOUR_MS)
    assert await control.renew(hmac, BOB, -1) == clock.now + DAY_MS
    assert await control.expire(hmac, ALICE, 5) == clock.now + 5
    assert cluster.image.tokens[token.token_id].expiration_timestamp_ms == clock.now + 5
    assert await control.expire(hmac, ALICE, -1) == clock.now
    assert cluster.image.tokens == {}
    not_found = ErrorCode.delegation_token_not_found
    assert await refused(control.renew(hmac, ALICE, -1)) is not_found
    assert await refused(control.expire(UNKNOWN, ALICE, -1)) is not_found


async def test_a_token_that_is_being_removed_is_not_renewed(cluster):
    control = cluster.token_control
    token = await control.create(ALICE, ALICE, [], -1)
    hmac = control.hmac_of(token.token_id)
    removal, renewal = control.expire(hmac, ALICE, -1), control.renew(hmac, ALICE, -1)
    results = await asyncio.gather(removal, renewal, return_exceptions=True)
    assert isinstance(results[1], ApiError)
    assert results[1].error is ErrorCode.delegation_token_not_found
    assert cluster.image.tokens == {}


async def test_tokens_outlive_a_restart_but_not_another_secret_key(tmp_path, clock):
    directory = tmp_path / "node"
    before = opened(directory, clock)
    token = await before.token_control.create(ALICE, BOB, [BOB], 1000)
    hmac = before.token_control.hmac_of(token.token_id)
    await before.close()
    after = opened(directory, clock)
    assert after.image.tokens == {token.token_id: token}
    assert after.token_control.hmac_of(token.token_id) == hmac
    assert await after.token_control.renew(hmac, ALICE, -1) == NOW_MS + 1000
    await after.close()
    changed = opened(directory, clock, "another-key")
    renewal = changed.token_control.renew(hmac, ALICE, -1)
    assert await refused(renewal) is ErrorCode.delegation_token_not_found
    await changed.close()


@pytest.mark.parametrize(
    ("secret", "features", "error"),
    [
        ("", None, ErrorCode.delegation_token_auth_disabled),
        (SECRET, {"metadata.version": 13}, ErrorCode.unsupported_version),
    ],
)
async def test_there_are_no_tokens_without_a_key_or_in_an_old_cluster(
    tmp_path, clock, secret, features, error
):
    cluster = opened(tmp_path / "node", clock, secret, features)
    control = cluster.token_control
    assert await refused(control.create(ALICE, ALICE, [], -1)) is error
    assert await refused(control.renew(UNKNOWN, ALICE, -1)) is error
    assert await refused(control.expire(UNKNOWN, ALICE, -1)) is error
    assert await control.credential("t", "SCRAM-SHA-256") is None
    await cluster.close()


async def test_expired_tokens_are_removed_at_the_interval(cluster, clock):
    control = cluster.token_control
    first = await control.create(ALICE, ALICE, [], 90 * 60_000)
    last = await control.create(ALICE, ALICE, [], -1)
    begun: list[Coroutine[object, object, None]] = []
    check = control.expiry_check(begun.append)
    clock.advance(HOUR_MS)
    assert begun == []
    clock.advance(HOUR_MS)
    await begun.pop()
    assert list(cluster.image.tokens) == [last.token_id]
    assert await refused(control.renew(UNKNOWN, ALICE, -1)) is ErrorCode.delegation_token_not_found
    assert first.token_id not in control._hmacs
    check.cancel()


async def test_a_thousand_tokens_are_removed_in_one_batch(cluster, clock):
    control = cluster.token_control
    count = REMOVED_AT_ONCE_MAX + 1
    await asyncio.gather(*(control.create(ALICE, ALICE, [], 1) for _ in range(count)))
    clock.advance(2)
    before = cluster.epoch
    await control.remove_expired()
    assert cluster.image.tokens == {}
    assert cluster.epoch == before + count


async def test_only_credentials_make_a_token_older(tmp_path):
    clock = VirtualClock()
    cluster = opened(tmp_path / "node", clock)
    control, loop = cluster.token_control, asyncio.get_running_loop()
    check = control.expiry_check(loop.create_task)
    token = await control.create(ALICE, ALICE, [], -1)
    hmac = control.hmac_of(token.token_id)
    await clock.advance(30 * DAY_MS)
    assert await control.renew(hmac, ALICE, -1) < token.expiration_timestamp_ms + HOUR_MS
    later = await control.create(ALICE, ALICE, [], -1)
    assert later.issue_timestamp_ms > token.issue_timestamp_ms + 29 * DAY_MS
    credential = await control.credential(later.token_id, "SCRAM-SHA-256")
    left_ms = credential.expires_ms - clock.now_ms(Domain.CONNECTIONS)
    assert DAY_MS - HOUR_MS < left_ms <= DAY_MS
    await clock.advance(DAY_MS - HOUR_MS, [Domain.CREDENTIALS])
    assert set(cluster.image.tokens) == {token.token_id, later.token_id}
    await clock.advance(3 * HOUR_MS, [Domain.CREDENTIALS])
    assert cluster.image.tokens == {}
    check.cancel()
    await cluster.close()


async def test_the_check_skips_the_time_in_which_no_token_expires(cluster, clock):
    control = cluster.token_control
    check = control.expiry_check(lambda work: work.close())
    assert check.busy_at_ms() is None
    await control.create(ALICE, ALICE, [], -1)
    await control.create(ALICE, ALICE, [], HOUR_MS)
    clock.advance(60_000)
    assert check.busy_at_ms() == NOW_MS + HOUR_MS + 1
    check.cancel()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_holder_logs_in_with_the_hmac_as_the_password(cluster, clock, mechanism):
    control = cluster.token_control
    token = await control.create(ALICE, BOB, [], -1)
    credential = await control.credential(token.token_id, mechanism)
    assert credential is not None
    password = b64encode(control.hmac_of(token.token_id)).decode()
    scram = ScramMechanism(mechanism).make_auth_info(password, 4096, credential.salt)
    assert tuple(credential)[:4] == scram
    assert (credential.owner, credential.expires_ms) == (ALICE, NOW_MS + DAY_MS)
    secrets = (repr(part) for part in (credential.salt, credential.stored_key, credential.server_key))
    assert not any(secret in repr(credential) for secret in secrets)


async def test_a_credential_is_made_once_and_expires_with_its_token(cluster, clock):
    control = cluster.token_control
    token = await control.create(ALICE, ALICE, [], -1)
    name = token.token_id, "SCRAM-SHA-256"
    first, second = await asyncio.gather(control.credential(*name), control.credential(*name))
    assert first == second
    await control.expire(control.hmac_of(token.token_id), ALICE, 5)
    assert await control.credential(*name) == first._replace(expires_ms=clock.now + 5)
    # As in Kafka, a login with an expired token succeeds until the token is removed, but its session is over at once.
    clock.advance(10)
    assert await control.credential(*name) == first._replace(expires_ms=clock.now - 5)
    await control.remove_expired()
    assert await control.credential(*name) is None


async def test_the_keys_of_removed_tokens_are_forgotten(cluster):
    control = cluster.token_control
    gone, kept = [await control.create(ALICE, ALICE, [], -1) for _ in range(2)]
    await control.credential(gone.token_id, "SCRAM-SHA-256")
    await control.expire(control.hmac_of(gone.token_id), ALICE, -1)
    await control.credential(kept.token_id, "SCRAM-SHA-256")
    assert set(control._scram_keys) == {(kept.token_id, "SCRAM-SHA-256")}


async def test_an_unknown_token_has_no_credential(cluster):
    control = cluster.token_control
    token = await control.create(ALICE, ALICE, [], -1)
    assert await control.credential(token.token_id, "PLAIN") is None
    assert await control.credential("another", "SCRAM-SHA-256") is None


async def test_a_cancelled_client_does_not_drop_the_keys(cluster):
    control = cluster.token_control
    token = await control.create(ALICE, ALICE, [], -1)
    leaving = asyncio.ensure_future(control.credential(token.token_id, "SCRAM-SHA-256"))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await control.credential(token.token_id, "SCRAM-SHA-256") is not None
