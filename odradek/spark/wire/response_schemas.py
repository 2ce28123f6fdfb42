"""The answers that this client reads, field by field as in Kafka's message definitions (clients/…/common/message/*.json).

A dict is a struct with its fields in the order of the wire, a list of one an array of that, ``"?string"`` may be null.
``Since`` and ``Until`` name the versions that have a field, of those that this client speaks. Times are milliseconds. Tagged
fields are left out: they are skipped. A test compares all of it with kio's schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Since(NamedTuple):
    """A field that this version brought."""

    version: int
    shape: Any


class Until(NamedTuple):
    """A field that this version had last."""

    version: int
    shape: Any


class NullableSince(NamedTuple):
    """A field that may be null from this version on."""

    version: int
    shape: str


_PRODUCE = {
    "responses": [
        {
            "name": "string",
            "partition_responses": [
                {
                    "index": "int32",
                    "error_code": "int16",
                    "base_offset": "int64",
                    "log_append_time": "int64",
                    "log_start_offset": "int64",
                    "record_errors": [{"batch_index": "int32", "batch_index_error_message": "?string"}],
                    "error_message": "?string",
                }
            ],
        }
    ],
    "throttle_time": "int32",
}

_METADATA = {
    "throttle_time": "int32",
    "brokers": [{"node_id": "int32", "host": "string", "port": "int32", "rack": "?string"}],
    "cluster_id": "?string",
    "controller_id": "int32",
    "topics": [
        {
            "error_code": "int16",
            "name": NullableSince(12, "string"),
            "topic_id": Since(10, "uuid"),
            "is_internal": "bool",
            "partitions": [
                {
                    "error_code": "int16",
                    "partition_index": "int32",
                    "leader_id": "int32",
                    "leader_epoch": "int32",
                    "replica_nodes": ["int32"],
                    "isr_nodes": ["int32"],
                    "offline_replicas": ["int32"],
                }
            ],
            "topic_authorized_operations": "int32",
        }
    ],
    "cluster_authorized_operations": Until(10, "int32"),
}

_OFFSETS = [
    {
        "name": "string",
        "partitions": [
            {
                "partition_index": "int32",
                "committed_offset": "int64",
                "committed_leader_epoch": "int32",
                "metadata": "?string",
                "error_code": "int16",
            }
        ],
    }
]

_COORDINATOR = {
    "node_id": "int32",
    "host": "string",
    "port": "int32",
}

# By the name of the API (messages.Api).
RESPONSE_SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "produce": _PRODUCE,
    "metadata": _METADATA,
    "offset_fetch": {
        "throttle_time": "int32",
        "topics": Until(7, _OFFSETS),
        "error_code": Until(7, "int16"),
        "groups": Since(8, [{"group_id": "string", "topics": _OFFSETS, "error_code": "int16"}]),
    },
    "find_coordinator": {
        "throttle_time": "int32",
        "error_code": Until(3, "int16"),
        "error_message": Until(3, "?string"),
        **{name: Until(3, shape) for name, shape in _COORDINATOR.items()},
        "coordinators": Since(
            4, [{"key": "string", **_COORDINATOR, "error_code": "int16", "error_message": "?string"}]
        ),
    },
    "sasl_handshake": {"error_code": "int16", "mechanisms": ["string"]},
    "api_versions": {
        "error_code": "int16",
        "api_keys": [{"api_key": "int16", "min_version": "int16", "max_version": "int16"}],
        "throttle_time": "int32",
    },
    "init_producer_id": {
        "throttle_time": "int32",
        "error_code": "int16",
        "producer_id": "int64",
        "producer_epoch": "int16",
    },
    "add_partitions_to_txn": {
        "throttle_time": "int32",
        "results_by_topic_v3_and_below": [
            {
                "name": "string",
                "results_by_partition": [{"partition_index": "int32", "partition_error_code": "int16"}],
            }
        ],
    },
    "add_offsets_to_txn": {"throttle_time": "int32", "error_code": "int16"},
    "end_txn": {"throttle_time": "int32", "error_code": "int16"},
    "txn_offset_commit": {
        "throttle_time": "int32",
        "topics": [
            {"name": "string", "partitions": [{"partition_index": "int32", "error_code": "int16"}]},
        ],
    },
    "sasl_authenticate": {
        "error_code": "int16",
        "error_message": "?string",
        "auth_bytes": "bytes",
        "session_lifetime": "int64",
    },
    "list_transactions": {
        "throttle_time": "int32",
        "error_code": "int16",
        "unknown_state_filters": ["string"],
        "transaction_states": [
            {"transactional_id": "string", "producer_id": "int64", "transaction_state": "string"}
        ],
    },
    "describe_transactions": {
        "throttle_time": "int32",
        "transaction_states": [
            {
                "error_code": "int16",
                "transactional_id": "string",
                "transaction_state": "string",
                "transaction_timeout": "int32",
                "transaction_start_time": "int64",
                "producer_id": "int64",
                "producer_epoch": "int16",
                "topics": [{"topic": "string", "partitions": ["int32"]}],
            }
        ],
    },
}


def at_version(shape: Any, version: int) -> Any:
    """A shape as that version has it: of dicts, lists and names of types only."""
    if isinstance(shape, list):
        return [at_version(shape[0], version)]
    if not isinstance(shape, dict):
        return shape
    here = {}
    for name, field in shape.items():
        if isinstance(field, Since):
            if version < field.version:
                continue
            field = field.shape
        elif isinstance(field, Until):
            if version > field.version:
                continue
            field = field.shape
        elif isinstance(field, NullableSince):
            field = f"?{field.shape}" if version >= field.version else field.shape
        here[name] = at_version(field, version)
    return here
