"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken (KIP-48, KIP-373)."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from broker.apis.create_delegation_token import create_delegation_token
from broker.apis.describe_delegation_token import describe_delegation_token
from broker.apis.expire_delegation_token import expire_delegation_token
from broker.apis.renew_delegation_token import renew_delegation_token
from broker.metadata import ClusterMetadata
from broker.node.context import ClientInformation
from protocol.codec import client_codec, request_codec
from protocol.errors import ErrorCode
from protocol.messages import create_delegation_token as create
from protocol.messages import describe_delegation_token as describe
from protocol.messages import expire_delegation_token as expire
from protocol.messages import renew_delegation_token as renew
from tests.broker.metadata.world import LISTENER, NOW_MS, context_of, open_cluster

ALICE, BOB = "User:alice", "User:bob"
DAY_MS = 86_400_000
OF_BOB: dict[str, Any] = {"owner_principal_type": "User", "owner_principal_name": "bob"}
HANDLERS = {
    "create": (38, create_delegation_token),
    "renew": (39, renew_delegation_token),
    "expire": (40, expire_delegation_token),
    "describe": (41, describe_delegation_token),
}


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClusterMetadata]:
    opened = open_cluster(tmp_path / "node", delegation_token_secret_key="the-secret-key")
    yield opened
    await opened.close()


async def ask(
    cluster: ClusterMetadata,
    what: str,
    version: int,
    *,
    principal: str = ALICE,
    protocol: str = "SASL_PLAINTEXT",
    by_token: bool = False,
    denied: tuple[tuple[str, str, str], ...] = (),
    **fields: Any,
) -> Any:
    """Send the request ``what`` to its handler and return the response. Both are encoded and decoded in
    ``version``, so they have only the fields of this version."""
    key, handle = HANDLERS[what]
    handler: Any = handle
    context = context_of(cluster, version, denied=denied)
    context.listener = replace(LISTENER, security_protocol=protocol)
    context.principal, context.client = principal, ClientInformation(by_token=by_token)
    wire = b"".join(map(bytes, client_codec(key, version).encode(request_of(what, **fields))))
    response: Any = handler(request_codec(key, version).decode(wire, 0), context)
    if inspect.isawaitable(response):
        response = await response
    encoded = b"".join(map(bytes, request_codec(key, version).encode(response)))
    return client_codec(key, version).decode(encoded, 0)


def request_of(what: str, **fields: Any) -> Any:
    pairs = [each.split(":") for each in fields.get("renewers", ())]
    if what == "create":
        fields["renewers"] = [
            create.CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in pairs
        ]
        return create.CreateDelegationTokenRequest(**{"max_lifetime_ms": -1, **fields})
    if what == "describe":
        asked = fields.get("owners")
        owners = None
        if asked is not None:
            owners = [
                describe.DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
                for kind, name in (each.split(":") for each in asked)
            ]
        return describe.DescribeDelegationTokenRequest(owners=owners)
    if what == "renew":
        return renew.RenewDelegationTokenRequest(**{"hmac": b"h", "renew_period_ms": -1, **fields})
    return expire.ExpireDelegationTokenRequest(**{"hmac": b"h", "expiry_time_period_ms": -1, **fields})


def times_of(answer: Any) -> tuple[int, int, int]:
    return answer.issue_timestamp_ms, answer.expiry_timestamp_ms, answer.max_timestamp_ms


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_a_token_is_created_described_renewed_and_expired(cluster, version):
    older = min(version, 2)
    created = await ask(cluster, "create", version, renewers=["User:carol"])
    assert created.error_code == 0
    assert (created.principal_type, created.principal_name) == ("User", "alice")
    assert times_of(created) == (NOW_MS, NOW_MS + DAY_MS, NOW_MS + 7 * DAY_MS)
    assert len(created.token_id) == 22
    assert len(created.hmac) == 64
    renewed = await ask(cluster, "renew", older, hmac=created.hmac, renew_period_ms=1000)
    assert (renewed.error_code, renewed.expiry_timestamp_ms) == (0, NOW_MS + 1000)
    [described] = (await ask(cluster, "describe", version)).tokens
    assert (described.token_id, bytes(described.hmac)) == (created.token_id, bytes(created.hmac))
    assert (described.issue_timestamp, described.max_timestamp) == (NOW_MS, NOW_MS + 7 * DAY_MS)
    assert described.expiry_timestamp == NOW_MS + 1000
    assert [(each.principal_type, each.principal_name) for each in described.renewers] == [("User", "carol")]
    if version == 3:
        assert (created.token_requester_principal_type, created.token_requester_principal_name) == (
            "User",
            "alice",
        )
        assert described.token_requester_principal_name == "alice"
    expired = await ask(cluster, "expire", older, hmac=created.hmac)
    assert (expired.error_code, expired.expiry_timestamp_ms) == (0, NOW_MS)
    assert list((await ask(cluster, "describe", version)).tokens) == []


@pytest.mark.parametrize(
    ("circumstances", "allowed"),
    [
        ({"protocol": "PLAINTEXT"}, False),
        ({"protocol": "SSL", "principal": "User:ANONYMOUS"}, False),
        ({"protocol": "SSL", "principal": "User:CN=alice"}, True),
        ({"protocol": "SASL_SSL"}, True),
        ({"protocol": "SASL_SSL", "principal": "User:ANONYMOUS"}, True),
        ({"protocol": "SASL_SSL", "by_token": True}, False),
    ],
)
async def test_a_client_must_be_authenticated_and_not_by_a_token(cluster, circumstances, allowed):
    created = await ask(cluster, "create", 3, **circumstances)
    described = await ask(cluster, "describe", 3, **circumstances)
    changed = [await ask(cluster, what, 2, **circumstances) for what in ("renew", "expire")]
    if allowed:
        assert (created.error_code, described.error_code, len(described.tokens)) == (0, 0, 1)
        assert {each.error_code for each in changed} == {ErrorCode.delegation_token_not_found}
        return
    answers = [created, described, *changed]
    assert {each.error_code for each in answers} == {ErrorCode.delegation_token_request_not_allowed}
    assert (times_of(created), created.token_id, created.hmac) == ((-1, -1, -1), "", b"")
    assert [each.expiry_timestamp_ms for each in changed] == [-1, -1]


async def test_without_a_key_there_are_no_tokens(tmp_path):
    cluster = open_cluster(tmp_path / "node")
    created = await ask(cluster, "create", 3)
    answers = [created, await ask(cluster, "describe", 3), *[await ask(cluster, "renew", 2)]]
    answers += [await ask(cluster, "expire", 2)]
    assert {each.error_code for each in answers} == {ErrorCode.delegation_token_auth_disabled}
    # The controller responds to a failed creation, with 0 for these times where a broker sets -1.
    assert (times_of(created), created.principal_name) == ((0, 0, 0), "alice")
    assert [each.expiry_timestamp_ms for each in answers[2:]] == [0, 0]
    # The broker checks the renewers before it forwards the request to the controller.
    refused = await ask(cluster, "create", 3, renewers=["Group:g"])
    assert (refused.error_code, times_of(refused)) == (ErrorCode.invalid_principal_type, (-1, -1, -1))
    await cluster.close()


async def test_a_token_for_another_owner(cluster):
    created = await ask(cluster, "create", 3, **OF_BOB)
    assert (created.error_code, created.principal_name) == (0, "bob")
    assert created.token_requester_principal_name == "alice"
    # The requester of a token may describe it, but not renew it.
    [described] = (await ask(cluster, "describe", 3)).tokens
    assert (described.principal_name, described.token_requester_principal_name) == ("bob", "alice")
    mismatch = ErrorCode.delegation_token_owner_mismatch
    assert (await ask(cluster, "renew", 2, hmac=created.hmac)).error_code == mismatch
    assert (await ask(cluster, "expire", 2, hmac=created.hmac)).error_code == mismatch
    assert (await ask(cluster, "renew", 2, hmac=created.hmac, principal=BOB)).error_code == 0


async def test_a_token_for_another_owner_needs_permission(cluster):
    denied = (("CREATE_TOKENS", "USER", BOB),)
    refused = await ask(cluster, "create", 3, denied=denied, **OF_BOB, renewers=["Group:g"])
    assert refused.error_code == ErrorCode.delegation_token_authorization_failed
    assert (times_of(refused), refused.principal_name) == ((-1, -1, -1), "bob")
    assert refused.token_requester_principal_name == "alice"
    # A client that creates a token for itself needs no permission.
    own = await ask(cluster, "create", 3, denied=denied, principal=BOB, **OF_BOB)
    assert own.error_code == 0


async def test_an_owner_without_a_name_is_the_client_and_one_without_a_type_an_error(cluster):
    unnamed: dict[str, Any] = {"owner_principal_type": "Group", "owner_principal_name": ""}
    created = await ask(cluster, "create", 3, **unnamed)
    assert (created.error_code, created.principal_type, created.principal_name) == (0, "User", "alice")
    untyped: dict[str, Any] = {"owner_principal_type": None, "owner_principal_name": "bob"}
    refused = await ask(cluster, "create", 3, **untyped)
    assert (refused.error_code, refused.principal_name) == (ErrorCode.unknown_server_error, "ANONYMOUS")
    assert refused.token_requester_principal_name == "ANONYMOUS"
    assert times_of(refused) == (-1, -1, -1)


async def test_only_users_renew(cluster):
    refused = await ask(cluster, "create", 3, renewers=["User:carol", "Group:g"])
    assert refused.error_code == ErrorCode.invalid_principal_type
    assert cluster.image.tokens == {}


async def test_which_clients_may_describe_which_tokens(cluster):
    own = (await ask(cluster, "create", 3, renewers=["User:carol"])).token_id
    other = (await ask(cluster, "create", 3, principal=BOB)).token_id

    async def seen(**fields: Any) -> set[str]:
        answer = await ask(cluster, "describe", 3, **fields)
        assert answer.error_code == 0
        return {each.token_id for each in answer.tokens}

    # Without an authorizer every client may describe all tokens.
    assert await seen() == {own, other}
    assert await seen(owners=["User:alice", "User:dave"]) == {own}
    assert await seen(owners=["User:carol"]) == {own}
    assert await seen(owners=[]) == set()
    of_bob = (("DESCRIBE", "DELEGATION_TOKEN", other), ("DESCRIBE_TOKENS", "USER", BOB))
    assert await seen(denied=of_bob) == {own}
    assert await seen(denied=of_bob[:1]) == {own, other}
    assert await seen(denied=of_bob[1:]) == {own, other}
    assert await seen(denied=of_bob, owners=["User:bob"]) == set()


async def test_the_secret_key_is_shown_to_no_client(cluster):
    [setting] = [each for each in cluster.settings.of_broker() if each.name == "delegation.token.secret.key"]
    assert (setting.value, setting.sensitive) == (None, True)
    assert [each.value for each in setting.synonyms] == [None]
    assert "the-secret-key" not in repr(cluster.settings.static)
