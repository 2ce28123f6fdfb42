"""Finds the fields of requests that contain topics, partitions, groups and ids, by the names in Kafka's schemas.

Each message class is examined once. The result is the list of its relevant fields.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final

from protocol.messages.index import APIS
from protocol.versions import message_name

FIND_COORDINATOR: Final = 10
SHARE_FETCH: Final = 78
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
LOGINS: Final = frozenset({SASL_HANDSHAKE, SASL_AUTHENTICATE})
"""The APIs by which a client authenticates."""

TOPIC_NAMES: Final = ("name", "topic", "topic_name")
PARTITION_ARRAYS: Final = ("partition_data", "partition_indexes", "partitions")
BATCH_ARRAYS: Final = ("acknowledgement_batches", "state_batches")
"""Arrays of offset ranges in a partition of a share group's request."""
PARTITION_NUMBERS: Final = ("index", "partition", "partition_index")

_TRANSACTIONAL_IDS: Final = {
    "transactional_id",
    "transactional_ids",
    "v3_and_below_transactional_id",
}
_GROUPS: Final = {"group_id", "group_ids", "groups", "groups_names"}
_MEMBERS: Final = {"member_id"}
_NOT_THE_SENDER: Final = {"assignments"}
"""SyncGroup: the assignments that a classic group's leader sends have the ids of all members."""
_TOPIC_ARRAYS: Final = {
    "forgotten_topics_data",
    "subscribed_topic_names",
    "topic_data",
    "topic_names",
    "topic_partitions",
    "topics",
    "v3_and_below_topics",
}

# Names that steps inside the broker have, by the first word of the point. All have a topic, a partition and a node.
_OF_POINTS: Final = {"txn": {"transactional_id"}, "group": {"group"}, "share": {"group", "offset"}}


def _module_of(api_key: int) -> Any:
    return import_module(f"protocol.messages.{APIS[api_key][0]}")


@cache
def roles(union: Any, api_key: int) -> tuple[tuple[str, str, Any], ...]:
    """(field, role, struct of its elements or None) for each relevant field of the message class ``union``.

    The role is ``transactional_id``, ``group`` or ``member`` for a string, ``topics`` or ``resources`` for an array,
    ``nested`` for an array of structs that may contain relevant fields.
    """
    module = _module_of(api_key)
    found: list[tuple[str, str, Any]] = []
    for name, kind, *_ in union.__fields__:
        struct = getattr(module, kind.removeprefix("[]"), None)
        if name in _TOPIC_ARRAYS:
            found.append((name, "topics", struct))
        elif name == "resources":
            found.append((name, "resources", struct))
        elif kind.startswith("[]") and struct is not None and name not in _NOT_THE_SENDER:
            found.append((name, "nested", struct))
        elif name in _TRANSACTIONAL_IDS:
            found.append((name, "transactional_id", None))
        elif name in _GROUPS:
            found.append((name, "group", None))
        elif name in _MEMBERS:
            found.append((name, "member", None))
    return tuple(found)


@cache
def named_by(api_key: int) -> frozenset[str]:
    """Names of the conditions (fields of `lab.faults.declaration.Match`) that an API's requests can meet.

    The names are among ``transactional_id``, ``group``, ``member``, ``topic``, ``partition``, ``offset``, and ``acquired``
    for ShareFetch; for SaslHandshake and SaslAuthenticate the only name is ``mechanism``.
    """
    if api_key in LOGINS:
        return frozenset({"mechanism"})
    if api_key == FIND_COORDINATOR:
        return frozenset({"transactional_id", "group"})
    request = getattr(_module_of(api_key), f"{message_name(APIS[api_key][0])}Request")
    return frozenset(_named_in(request, api_key) | ({"acquired"} if api_key == SHARE_FETCH else set()))


def _named_in(union: Any, api_key: int) -> set[str]:
    found = set()
    for _, role, struct in roles(union, api_key):
        if role == "nested":
            found |= _named_in(struct, api_key)
        elif role == "topics":
            found.add("topic")
            for name, kind, *_ in struct.__fields__ if struct is not None else ():
                if name in PARTITION_ARRAYS:
                    found.add("partition")
                    found |= {"offset"} if _has_batches(kind, api_key) else set()
        elif role == "resources":
            found |= {"topic", "group"}
        else:
            found.add(role)
    return found


def _has_batches(kind: str, api_key: int) -> bool:
    partition = getattr(_module_of(api_key), kind.removeprefix("[]"), None)
    return partition is not None and any(name in BATCH_ARRAYS for name, *_ in partition.__fields__)


def known_at(point: str) -> frozenset[str]:
    """Names of the conditions (fields of `lab.faults.declaration.Match`) that a step at ``point`` can meet.

    The names are among ``transactional_id``, ``group``, ``topic``, ``partition``, ``offset``.
    """
    return frozenset({"topic", "partition"} | _OF_POINTS.get(point.partition(".")[0], set()))
