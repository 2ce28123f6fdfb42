"""Builds an error response for any API and version, as Kafka's ``getErrorResponse`` does.

The response has the error code at the top level, if the version has a top-level error field, and in one entry for each
entry of the request: each partition of a Produce, each key of a FindCoordinator. The entries of request and response are
matched by the shapes of the two messages. Tables below list the APIs for which Kafka differs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from broker.requests.served import SERVED
from protocol.errors import ErrorCode
from protocol.frame import API_VERSIONS
from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from protocol.messages.index import APIS
from protocol.versions import WireField, at_version

_CODES: Final = ("error_code", "partition_error_code")
_TOP_LEVEL_ONLY: Final = {
    ("add_partitions_to_txn", 4),
    ("alter_share_group_offsets", 0),
    ("delete_share_group_offsets", 0),
    ("describe_quorum", 0),
    ("fetch", 13),
    ("leave_group", 0),
    ("offset_delete", 0),
    ("offset_fetch", 2),
    ("list_partition_reassignments", 0),
    ("share_acknowledge", 0),
    ("share_fetch", 0),
    ("update_features", 0),
}
"""(API, first version whose error responses have no entries).

A version without a top-level error code has entries nevertheless.
"""

_NEVER_BY_ENTRY: Final = {"describe_log_dirs"}
"""APIs whose error responses never have entries: a version without a top-level error code reports no error."""

_KEYS: Final = {
    "entity",
    "group_id",
    "index",
    "key",
    "name",
    "partition",
    "partition_id",
    "partition_index",
    "producer_id",
    "resource_name",
    "resource_type",
    "topic",
    "topic_id",
    "topic_name",
    "transactional_id",
    "user",
}
"""Names of the fields that identify an entry of a response: they are copied from the entry of the request."""
_NAMES: Final = ("topic_name", "user")
"""Response fields whose counterpart in the request is called ``name``."""
_PARTITION_NUMBERS: Final = ("partition", "partition_id", "partition_index", "index")

# Field values of error responses in which Kafka's differ from the schema's defaults.
_NOTHING: Final[dict[str, dict[str, Any]]] = {
    "create_delegation_token": {
        "principal_type": "User",
        "principal_name": "ANONYMOUS",
        "token_requester_principal_type": "User",
        "token_requester_principal_name": "ANONYMOUS",
        "issue_timestamp_ms": -1,
        "expiry_timestamp_ms": -1,
        "max_timestamp_ms": -1,
    },
    "describe_client_quotas": {"entries": None},
    "delete_records": {"low_watermark": -1},
    "fetch": {"high_watermark": -1, "records": b""},
    "find_coordinator": {"node_id": -1, "port": -1},
    "init_producer_id": {"producer_id": -1, "producer_epoch": -1},
    "join_group": {"generation_id": -1},
    "list_offsets": {"timestamp": -1, "offset": -1},
    "metadata": {"name": ""},
    "offset_fetch": {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""},
    "offset_for_leader_epoch": {"leader_epoch": -1, "end_offset": -1},
    "produce": {"base_offset": -1, "log_append_time_ms": -1, "log_start_offset": -1},
}


def unsupported_version_response() -> ApiVersionsResponse:
    """Return the version 0 response to an ApiVersions request of an unsupported version (KIP-511).

    It lists only ApiVersions itself, so that the client can send a supported version on the same connection.
    """
    versions = SERVED[API_VERSIONS][1]
    return ApiVersionsResponse(
        error_code=ErrorCode.unsupported_version,
        api_keys=[ApiVersion(api_key=API_VERSIONS, min_version=versions[0], max_version=versions[-1])],
    )


def error_answer(api_key: int, version: int, request: Any, code: ErrorCode) -> Any:
    """Return a response to ``request`` that contains only the error ``code``, for the encoder of ``version``."""
    api = APIS[api_key][0]
    response = at_version(api_key, version, "response")
    values = _nothing(api, response)
    at_top = _code_of(response)
    if at_top is not None:
        values[at_top] = code
    if api == "fetch":
        values["session_id"] = request.session_id
    if not _says_it_at_the_top_only(api, version, at_top):
        asked, answered = _entries_of(at_version(api_key, version, "request")), _answered_in(response)
        if asked is not None and answered is not None:
            asked, entries = _asked_about(api, request, asked)
            values[answered.name] = _entries(api, entries, asked, answered, code)
    if api == "api_versions" and code is ErrorCode.unsupported_version:
        return unsupported_version_response()
    return response.__union__(**values)


def _asked_about(api: str, request: Any, asked: WireField) -> tuple[WireField, Iterable[Any]]:
    """Return (array field of the request, its entries). The response has one entry for each of these entries."""
    entries = getattr(request, asked.name) or ()
    if api == "alter_replica_log_dirs":
        inner = _entries_of(asked.nested)
        assert inner is not None
        return inner, [topic for each in entries for topic in each.topics]
    if api == "describe_user_scram_credentials":
        return asked, ["" for _ in entries]  # Kafka's error response does not contain the user names
    if api == "alter_user_scram_credentials":
        return asked, sorted({each.name for each in (*request.deletions, *request.upsertions)})
    return asked, entries


def _says_it_at_the_top_only(api: str, version: int, at_top: str | None) -> bool:
    if api in _NEVER_BY_ENTRY:
        return True
    return at_top is not None and any(api == name and version >= since for name, since in _TOP_LEVEL_ONLY)


def _nothing(api: str, struct: Any) -> dict[str, Any]:
    """Field name -> value, for fields whose schema default is wrong in an error response or cannot be encoded."""
    said = _NOTHING.get(api, {})
    values = {wire.name: said[wire.name] for wire in struct.__wire__ if wire.name in said}
    for wire in struct.__wire__:
        if wire.name in values:
            continue
        if wire.kind == "string" and not wire.is_array and not wire.nullable and wire.default is None:
            values[wire.name] = ""
    return values


def _code_of(struct: Any) -> str | None:
    return next((wire.name for wire in struct.__wire__ if wire.name in _CODES), None)


def _entries_of(struct: Any) -> WireField | None:
    """The first array field of a request, or of an entry: it has the requested partitions, groups or other entities."""
    return next((wire for wire in struct.__wire__ if wire.is_array), None)


def _answered_in(struct: Any) -> WireField | None:
    """The array field of a response whose entries, or their nested entries, have an error code."""
    return next(
        (wire for wire in struct.__wire__ if wire.is_array and wire.nested and _carries_code(wire.nested)),
        None,
    )


def _carries_code(struct: Any) -> bool:
    return _code_of(struct) is not None or _answered_in(struct) is not None


def _entries(
    api: str, values: Iterable[Any], asked: WireField, answered: WireField, code: ErrorCode
) -> list[Any]:
    return [_entry(api, each, asked.nested, answered.nested, code) for each in values]


def _entry(api: str, value: Any, asked: Any, answered: Any, code: ErrorCode) -> Any:
    values = _nothing(api, answered)
    values |= _key(value, answered)
    name = _code_of(answered)
    if name is not None:
        values[name] = code
    else:
        inner, inner_answered = _entries_of(asked), _answered_in(answered)
        assert inner is not None, "a request whose response has nested entries has nested entries"
        assert inner_answered is not None, "an entry without a code has nested entries with codes"
        values[inner_answered.name] = _entries(api, getattr(value, inner.name), inner, inner_answered, code)
    return answered.__union__(**values)


def _key(value: Any, struct: Any) -> dict[str, Any]:
    """Identifying fields of the response entry, copied from the request entry: a name, a partition number, or a struct."""
    keys = [wire.name for wire in struct.__wire__ if wire.name in _KEYS]
    if isinstance(value, str):
        return {
            next(name for name in keys if name not in ("topic_id", "producer_id", "resource_type")): value
        }
    if isinstance(value, int):
        return {next(name for name in keys if name in _PARTITION_NUMBERS): value}
    values = {}
    for name in keys:
        if name in _PARTITION_NUMBERS:
            values[name] = next(getattr(value, each) for each in _PARTITION_NUMBERS if hasattr(value, each))
        elif hasattr(value, name):
            values[name] = getattr(value, name)
        elif name in _NAMES and hasattr(value, "name"):
            values[name] = value.name
    return {name: value for name, value in values.items() if value is not None}
