"""Valid topic names, and the internal topics (Kafka's ``Topic.java``)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

TopicPartition = tuple[str, int]
"""(topic, partition)."""

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
CLUSTER_METADATA: Final = "__cluster_metadata"

INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})

NAME_CHARACTERS_MAX: Final = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def is_internal(name: str | None) -> bool:
    return name in INTERNAL_TOPICS


def invalid_topic_name(name: str) -> str | None:
    """Return Kafka's error message for an invalid topic name; None for a valid name."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > NAME_CHARACTERS_MAX:
        reason = f"the length of '{name}' is longer than the max allowed length {NAME_CHARACTERS_MAX}"
    elif not _NAME.fullmatch(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return None
    return f"Topic name is invalid: {reason}"


def by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Group (topic, partition) pairs: topic -> its partitions, in the given order."""
    found: dict[str, list[int]] = {}
    for name, index in partitions:
        found.setdefault(name, []).append(index)
    return found


def unified_name(name: str) -> str:
    """Return the name for collision checks. Topics with equal unified names collide, as Kafka's metrics map '.' to '_'."""
    return name.replace(".", "_")
