"""CreateAcls, DescribeAcls and DeleteAcls. tests/differential compares the responses with those of Apache Kafka."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from broker.apis.create_acls import create_acls
from broker.apis.delete_acls import delete_acls
from broker.apis.describe_acls import describe_acls
from broker.metadata import ClusterMetadata
from broker.requests.api import CloseConnection
from protocol.codec import client_codec, request_codec
from protocol.errors import ErrorCode
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.messages.describe_acls import DescribeAclsRequest
from tests.broker.metadata.world import context_of

OPERATION_ALTER = ("ALTER", "CLUSTER", "kafka-cluster")
OPERATION_DESCRIBE = ("DESCRIBE", "CLUSTER", "kafka-cluster")
VERSIONS = (1, 2, 3)
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4


def creation(name: str = "orders", **changes: Any) -> AclCreation:
    fields = {
        "resource_type": 2,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return AclCreation(**{**fields, **changes})


EVERYTHING: dict[str, Any] = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}


async def ask(
    cluster: ClusterMetadata,
    request: Any,
    version: int = 3,
    *,
    denied: tuple[tuple[str, str, str], ...] = (),
    has_authorizer: bool = True,
) -> Any:
    """Send the request to its handler and return the response. Both are encoded and decoded in ``version``, so
    they have only the fields of this version."""
    handlers: dict[type, tuple[int, Any]] = {
        CreateAclsRequest: (30, create_acls),
        DeleteAclsRequest: (31, delete_acls),
        DescribeAclsRequest: (29, describe_acls),
    }
    key, handler = handlers[type(request)]
    context = context_of(cluster, version, denied=denied)
    if not has_authorizer:
        context.node.authorizer = None
    wire = b"".join(map(bytes, client_codec(key, version).encode(request)))
    response: Any = handler(request_codec(key, version).decode(wire, 0), context)
    if inspect.isawaitable(response):
        response = await response
    encoded = b"".join(map(bytes, request_codec(key, version).encode(response)))
    return client_codec(key, version).decode(encoded, 0)


async def create(cluster: ClusterMetadata, *creations: AclCreation, **circumstances: Any) -> list[Any]:
    """Create ACLs and return (error code, error message) of each."""
    answer = await ask(cluster, CreateAclsRequest(creations=creations), **circumstances)
    return [(each.error_code, each.error_message) for each in answer.results]


async def names(cluster: ClusterMetadata, **wanted: Any) -> list[str]:
    answer = await ask(cluster, DescribeAclsRequest(**{**EVERYTHING, **wanted}))
    assert (answer.error_code, answer.error_message) == (0, "")
    return [each.resource_name for each in answer.resources]


DONE = (0, "")


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_acl_is_created_described_and_deleted(cluster: ClusterMetadata, version: int) -> None:
    acls = [
        creation(),
        creation(host="h"),
        creation(resource_pattern_type=PREFIXED, operation=2, permission_type=2),
    ]
    assert await create(cluster, *acls, creation(), version=version) == [DONE] * 4
    described = await ask(cluster, DescribeAclsRequest(**EVERYTHING), version)
    assert [
        (each.resource_type, each.resource_name, each.pattern_type, [_entry(acl) for acl in each.acls])
        for each in described.resources
    ] == [
        (2, "orders", LITERAL, [("User:alice", "*", 3, 3), ("User:alice", "h", 3, 3)]),
        (2, "orders", PREFIXED, [("User:alice", "*", 2, 2)]),
    ]
    filters = [
        DeleteAclsFilter(**{**EVERYTHING, "host_filter": "h"}),
        DeleteAclsFilter(**{**EVERYTHING, "pattern_type_filter": LITERAL}),
        DeleteAclsFilter(**{**EVERYTHING, "principal_filter": "User:bob"}),
    ]
    deleted = await ask(cluster, DeleteAclsRequest(filters=filters), version)
    assert [
        (each.error_code, each.error_message, [_entry(acl) for acl in each.matching_acls])
        for each in deleted.filter_results
    ] == [
        (0, None, [("User:alice", "h", 3, 3)]),
        (0, None, [("User:alice", "*", 3, 3), ("User:alice", "h", 3, 3)]),
        (0, None, []),
    ]
    [matching] = deleted.filter_results[0].matching_acls
    told = (matching.error_code, matching.error_message, matching.resource_type, matching.resource_name)
    assert (*told, matching.pattern_type) == (0, None, 2, "orders", LITERAL)
    assert [acl.pattern_type for acl in cluster.image.acls.values()] == [PREFIXED]


def _entry(acl: Any) -> tuple[str, str, int, int]:
    return acl.principal, acl.host, acl.operation, acl.permission_type


async def test_invalid_acls_fail_alone_and_the_rest_is_created(cluster: ClusterMetadata) -> None:
    invalid = ErrorCode.invalid_request
    assert await create(
        cluster,
        creation(resource_type=4),
        creation(""),
        creation(operation=99),
        creation("good"),
        creation(""),
        creation(principal="alice"),
        creation("kafka-cluster", resource_type=4),
    ) == [
        (invalid, "The only valid name for the CLUSTER resource is kafka-cluster"),
        (invalid, "Invalid empty resource name"),
        (invalid, "Invalid operation UNKNOWN"),
        DONE,
        (invalid, "Invalid empty resource name"),
        (
            invalid,
            "Could not parse principal from `alice` (no colon is present separating the principal type from the "
            "principal name)",
        ),
        DONE,
    ]
    assert sorted(await names(cluster)) == ["good", "kafka-cluster"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type": ANY},
        {"resource_pattern_type": ANY},
        {"resource_pattern_type": MATCH},
        {"operation": ANY},
        {"permission_type": ANY},
    ],
)
async def test_a_value_that_is_valid_only_in_filters_fails_the_whole_request(
    cluster: ClusterMetadata, wrong: dict[str, Any]
) -> None:
    failed = (ErrorCode.unknown_server_error, None)
    assert await create(cluster, creation(), creation(**wrong)) == [failed, failed]
    assert cluster.image.acls == {}


FIELDS = ("resource_type", "resource_pattern_type", "operation", "permission_type")


@pytest.mark.parametrize("field", FIELDS)
async def test_the_code_unknown_ends_the_connection(cluster: ClusterMetadata, field: str) -> None:
    with pytest.raises(CloseConnection):
        await create(cluster, creation(), creation(**dict[str, Any]({field: 0})), has_authorizer=False)
    of_filters = {"resource_type": "resource_type_filter", "resource_pattern_type": "pattern_type_filter"}
    wrong: dict[str, Any] = {**EVERYTHING, of_filters.get(field, field): 0}
    for request in (DescribeAclsRequest(**wrong), DeleteAclsRequest(filters=[DeleteAclsFilter(**wrong)])):
        with pytest.raises(CloseConnection):
            await ask(cluster, request)


async def test_a_filter_of_an_unknown_code_finds_nothing_and_deletes_nothing(
    cluster: ClusterMetadata,
) -> None:
    await create(cluster, creation())
    for field in EVERYTHING:
        if EVERYTHING[field] == ANY:
            assert await names(cluster, **{field: 99}) == []
    wrong = [
        DeleteAclsFilter(**{**EVERYTHING, "pattern_type_filter": 99}),
        DeleteAclsFilter(**{**EVERYTHING, "operation": 99}),
    ]
    answer = await ask(cluster, DeleteAclsRequest(filters=wrong))
    assert [(each.error_code, each.error_message) for each in answer.filter_results] == [
        (ErrorCode.invalid_request, "Unknown patternFilter."),
        (ErrorCode.invalid_request, "Unknown entryFilter."),
    ]
    assert len(cluster.image.acls) == 1


async def test_without_permission_acls_are_neither_listed_nor_changed(cluster: ClusterMetadata) -> None:
    await create(cluster, creation("kept"))
    [(code, text)] = await create(cluster, creation(), denied=(OPERATION_ALTER,))
    assert code == ErrorCode.cluster_authorization_failed
    assert text.endswith("needs ALTER permission.")
    filters = [DeleteAclsFilter(**EVERYTHING)] * 2
    answer = await ask(cluster, DeleteAclsRequest(filters=filters), denied=(OPERATION_ALTER,))
    assert [each.error_code for each in answer.filter_results] == [code, code]
    described = await ask(cluster, DescribeAclsRequest(**EVERYTHING), denied=(OPERATION_DESCRIBE,))
    assert (described.error_code, described.resources) == (code, ())
    assert described.error_message.endswith("needs DESCRIBE permission.")
    assert await names(cluster) == ["kept"]


async def test_without_an_authorizer_there_are_none(cluster: ClusterMetadata) -> None:
    disabled = ErrorCode.security_disabled
    text = "No Authorizer is configured."
    assert await create(cluster, creation(), creation(""), has_authorizer=False) == [(disabled, text)] * 2
    deletion = DeleteAclsRequest(filters=[DeleteAclsFilter(**EVERYTHING)])
    [result] = (await ask(cluster, deletion, has_authorizer=False)).filter_results
    assert (result.error_code, result.error_message) == (disabled, text)
    described = await ask(cluster, DescribeAclsRequest(**EVERYTHING), has_authorizer=False)
    assert (described.error_code, described.error_message) == (
        disabled,
        "No Authorizer is configured on the broker",
    )
