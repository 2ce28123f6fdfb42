"""Error responses of fault rules: for each API and version, the error code is in exactly the fields in which Kafka sets
it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader

from broker.requests.api import discover
from broker.requests.error_answers import error_answer
from protocol.codec import client_codec, request_codec
from protocol.errors import ErrorCode
from protocol.generators import kio_schemas
from protocol.versions import at_version, versions_of

APIS = discover()
CODE = ErrorCode.coordinator_load_in_progress
TOP = "error_code"

# From AbstractRequest.getErrorResponse of each API in Kafka: (first version, the fields with the error code).
WHERE: dict[str, list[tuple[int, set[str]]]] = {
    "add_raft_voter": [(0, {TOP})],
    "alter_client_quotas": [(0, {"entries.error_code"})],
    "alter_replica_log_dirs": [(1, {"results.partitions.error_code"})],
    "alter_user_scram_credentials": [(0, {"results.error_code"})],
    "create_acls": [(1, {"results.error_code"})],
    "create_delegation_token": [(1, {TOP})],
    "delete_acls": [(1, {"filter_results.error_code"})],
    "describe_acls": [(1, {TOP})],
    "describe_client_quotas": [(0, {TOP})],
    "describe_delegation_token": [(1, {TOP})],
    "describe_quorum": [(0, {TOP})],
    "describe_user_scram_credentials": [(0, {TOP, "results.error_code"})],
    "expire_delegation_token": [(1, {TOP})],
    "push_telemetry": [(0, {TOP})],
    "alter_share_group_offsets": [(0, {TOP})],
    "delete_share_group_offsets": [(0, {TOP})],
    "describe_share_group_offsets": [(0, {"groups.error_code"})],
    "share_group_describe": [(1, {"groups.error_code"})],
    "share_group_heartbeat": [(1, {TOP})],
    "share_acknowledge": [(1, {TOP})],
    "share_fetch": [(1, {TOP})],
    "delete_share_group_state": [(0, {"results.partitions.error_code"})],
    "initialize_share_group_state": [(0, {"results.partitions.error_code"})],
    "read_share_group_state": [(0, {"results.partitions.error_code"})],
    "read_share_group_state_summary": [(0, {"results.partitions.error_code"})],
    "write_share_group_state": [(0, {"results.partitions.error_code"})],
    "remove_raft_voter": [(0, {TOP})],
    "renew_delegation_token": [(1, {TOP})],
    "unregister_broker": [(0, {TOP})],
    "unregister_controller": [(0, {TOP})],
    "add_offsets_to_txn": [(0, {TOP})],
    "add_partitions_to_txn": [
        (0, {"results_by_topic_v3_and_below.results_by_partition.partition_error_code"}),
        (4, {TOP}),
    ],
    "alter_configs": [(0, {"responses.error_code"})],
    "alter_partition_reassignments": [(0, {TOP, "responses.partitions.error_code"})],
    "api_versions": [(0, {TOP})],
    "consumer_group_describe": [(0, {"groups.error_code"})],
    "consumer_group_heartbeat": [(0, {TOP})],
    "create_partitions": [(0, {"results.error_code"})],
    "create_topics": [(2, {"topics.error_code"})],
    "delete_groups": [(0, {"results.error_code"})],
    "delete_records": [(0, {"topics.partitions.error_code"})],
    "delete_topics": [(1, {"responses.error_code"})],
    "describe_cluster": [(0, {TOP})],
    "describe_configs": [(1, {"results.error_code"})],
    "describe_groups": [(0, {"groups.error_code"})],
    "describe_log_dirs": [(1, set()), (3, {TOP})],
    "describe_producers": [(0, {"topics.partitions.error_code"})],
    "describe_topic_partitions": [(0, {"topics.error_code"})],
    "describe_transactions": [(0, {"transaction_states.error_code"})],
    "elect_leaders": [
        (0, {"replica_election_results.partition_result.error_code"}),
        (1, {TOP, "replica_election_results.partition_result.error_code"}),
    ],
    "end_txn": [(0, {TOP})],
    "fetch": [
        (4, {"responses.partitions.error_code"}),
        (7, {TOP, "responses.partitions.error_code"}),
        (13, {TOP}),
    ],
    "find_coordinator": [(0, {TOP}), (4, {"coordinators.error_code"})],
    "get_telemetry_subscriptions": [(0, {TOP})],
    "heartbeat": [(0, {TOP})],
    "incremental_alter_configs": [(0, {"responses.error_code"})],
    "init_producer_id": [(0, {TOP})],
    "join_group": [(0, {TOP})],
    "leave_group": [(0, {TOP})],
    "list_config_resources": [(0, {TOP})],
    "list_groups": [(0, {TOP})],
    "list_offsets": [(1, {"topics.partitions.error_code"})],
    "list_partition_reassignments": [(0, {TOP})],
    "list_transactions": [(0, {TOP})],
    "metadata": [(0, {"topics.error_code"}), (13, {TOP, "topics.error_code"})],
    "offset_commit": [(2, {"topics.partitions.error_code"})],
    "offset_delete": [(0, {TOP})],
    "offset_fetch": [
        (1, {"topics.partitions.error_code"}),
        (2, {TOP}),
        (8, {"groups.error_code"}),
    ],
    "offset_for_leader_epoch": [(2, {"topics.partitions.error_code"})],
    "produce": [(3, {"responses.partition_responses.error_code"})],
    "sasl_authenticate": [(0, {TOP})],
    "sasl_handshake": [(0, {TOP})],
    "sync_group": [(0, {TOP})],
    "txn_offset_commit": [(0, {"topics.partitions.error_code"})],
    "update_features": [(0, {TOP})],
    "write_txn_markers": [(1, {"markers.topics.partitions.error_code"})],
}
EVERY_VERSION = [(api.name, key, version) for key, api in sorted(APIS.items()) for version in api.versions]


def where(name: str, version: int) -> set[str]:
    return next(paths for since, paths in reversed(WHERE[name]) if version >= since)


OF_ACLS = {
    "resource_type": 2,
    "resource_type_filter": 2,
    "resource_pattern_type": 3,
    "pattern_type_filter": 3,
    "operation": 3,
    "permission_type": 3,
}
"""Valid values for the type fields of ACLs, as Kafka rejects ACLs of an unknown type."""


def sample(struct: Any, number: int = 0, *, sparse: bool = False) -> Any:
    """A request with a value in every field, and two elements in every array.

    A ``sparse`` request has null in each nullable field except records: Kafka cannot make an error response to a request
    without records.
    """
    values: dict[str, Any] = {}
    for wire in struct.__wire__:
        each = [_value(wire, number, sparse), _value(wire, number + 1, sparse)]
        values[wire.name] = each if wire.is_array else each[0]
    return struct.__union__(**values)


def _value(wire: Any, number: int, sparse: bool) -> Any:
    if sparse and wire.nullable and not wire.is_array and wire.kind != "records":
        return None
    if wire.nested is not None:
        return sample(wire.nested, 2 * number, sparse=sparse)
    if wire.kind in ("string", "uuid", "records", "bytes", "bool"):
        return {
            "string": f"{wire.name}-{number}",
            "uuid": UUID(int=number + 1),
            "records": b"",
            "bytes": b"",
            "bool": True,
        }[wire.kind]
    return OF_ACLS.get(wire.name, number)


def codes(value: Any, path: str = "") -> Iterator[tuple[str, int]]:
    """All error codes in a message of kio, with their field paths."""
    assert is_dataclass(value)
    for each in fields(value):
        content = getattr(value, each.name)
        name = f"{path}.{each.name}".lstrip(".")
        if isinstance(content, KioErrorCode):
            yield name, content
        elif isinstance(content, tuple):
            for item in content:
                if is_dataclass(item):
                    yield from codes(item, name)


def encoded(key: int, version: int, answer: Any) -> bytes:
    return b"".join(map(bytes, request_codec(key, version).encode(answer)))


READABLE = [
    (name, key, version)
    for name, key, version in EVERY_VERSION
    if name != "create_delegation_token" and version in kio_schemas.versions(key)
]
"""The versions whose error responses kio can decode. The others contain the time -1 or are not in kio, and
test_error_answers_kafka.py compares them byte for byte."""


@pytest.mark.parametrize(("name", "key", "version"), READABLE)
def test_an_error_stands_where_kafka_puts_it(name: str, key: int, version: int) -> None:
    request = sample(at_version(key, version, "request"))
    data = encoded(key, version, error_answer(key, version, request, CODE))
    kio, size = entity_reader(load_response_schema(key, version))(data, 0)
    assert size == len(data)
    found = list(codes(kio))
    said = {path for path, code in found if code == CODE}
    assert said == where(name, version)
    # If an error code is in the entries, each entry has it, and no other code field says success.
    assert [path for path, code in found if code != CODE and path in said] == []
    assert client_codec(key, version).decode(data) is not None


@pytest.mark.parametrize(("name", "key", "version"), READABLE)
def test_a_request_about_nothing_is_answered_with_what_there_is(name: str, key: int, version: int) -> None:
    struct = at_version(key, version, "request")
    empty = {wire.name: None if wire.nullable else () for wire in struct.__wire__ if wire.is_array}
    data = encoded(key, version, error_answer(key, version, struct.__union__(**empty), CODE))
    found = dict(codes(entity_reader(load_response_schema(key, version))(data, 0)[0]))
    assert found == ({TOP: CODE} if TOP in where(name, version) else {})


@pytest.mark.parametrize(("name", "key", "version"), READABLE)
def test_a_request_with_nulls_is_answered(name: str, key: int, version: int) -> None:
    request = sample(at_version(key, version, "request"), sparse=True)
    data = encoded(key, version, error_answer(key, version, request, CODE))
    found = codes(entity_reader(load_response_schema(key, version))(data, 0)[0])
    assert {path for path, code in found if code == CODE} == where(name, version)


@pytest.mark.parametrize(
    ("key", "version", "keys"),
    [
        (0, 9, ["name-0", "name-2"]),
        (0, 13, [UUID(int=1), UUID(int=3)]),
        (10, 4, ["coordinator_keys-0", "coordinator_keys-1"]),
        (42, 2, ["groups_names-0", "groups_names-1"]),
        (20, 3, ["topic_names-0", "topic_names-1"]),
        (27, 1, [0, 2]),
    ],
)
def test_each_entry_says_what_it_is_about(key: int, version: int, keys: list[object]) -> None:
    request = sample(at_version(key, version, "request"))
    data = encoded(key, version, error_answer(key, version, request, CODE))
    text = repr(client_codec(key, version).decode(data))
    assert all(repr(each) in text for each in keys)


def test_a_produce_error_says_nothing_of_offsets() -> None:
    data = encoded(0, 12, error_answer(0, 12, sample(at_version(0, 12, "request")), CODE))
    topics = client_codec(0, 12).decode(data).responses
    partitions = [partition for topic in topics for partition in topic.partition_responses]
    assert [partition.index for partition in partitions] == [0, 2, 4, 6]
    assert {(each.base_offset, each.log_append_time_ms, each.log_start_offset) for each in partitions} == {
        (-1,) * 3
    }


def test_an_api_versions_of_no_version_is_told_of_api_versions() -> None:
    answer = error_answer(18, 3, sample(at_version(18, 3, "request")), ErrorCode.unsupported_version)
    assert [each.api_key for each in client_codec(18, 3).decode(encoded(18, 3, answer)).api_keys] == [18]


def test_all_versions_of_all_served_apis_are_in_the_table() -> None:
    assert {api.name for api in APIS.values()} <= set(WHERE)
    assert all(set(api.versions) <= set(versions_of(key)) for key, api in APIS.items())
