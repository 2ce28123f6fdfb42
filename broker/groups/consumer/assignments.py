"""Assignments as values: partitions by topic id, with or without the epochs at which a member got them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol
from uuid import UUID

TargetAssignment = Mapping[UUID, frozenset[int]]
"""What a member shall have: topic id -> partitions. No topic without partitions."""
AssignedPartitions = Mapping[UUID, Mapping[int, int]]
"""What a member has: topic id -> partition -> the epoch at which it was assigned (KIP-1251). No topic without partitions."""
NO_TARGET: Final[TargetAssignment] = {}
NO_PARTITIONS: Final[AssignedPartitions] = {}


class TopicPartitions(Protocol):
    """Partitions of one topic, as several messages and records have them."""

    @property
    def topic_id(self) -> UUID | None: ...
    @property
    def partitions(self) -> Iterable[int]: ...


def at_epoch(target: TargetAssignment, epoch: int) -> AssignedPartitions:
    """All partitions, assigned at one epoch."""
    return {topic_id: dict.fromkeys(sorted(indexes), epoch) for topic_id, indexes in target.items()}


def without_epochs(assigned: AssignedPartitions) -> TargetAssignment:
    return {topic_id: frozenset(epochs) for topic_id, epochs in assigned.items()}


def has(assigned: AssignedPartitions, topic_id: UUID | None, partition: int) -> bool:
    return topic_id is not None and partition in assigned.get(topic_id, ())


def has_all(assigned: AssignedPartitions, owned: Iterable[TopicPartitions] | None) -> bool:
    """Whether a member owns nothing but this. False where it does not say what it owns (None)."""
    if owned is None:
        return False
    return all(
        topic.topic_id in assigned and all(has(assigned, topic.topic_id, index) for index in topic.partitions)
        for topic in owned
    )


def has_any(assigned: AssignedPartitions, owned: Iterable[TopicPartitions] | None) -> bool:
    """Whether a member still owns some of this. True where it does not say what it owns (None)."""
    if owned is None:
        return True
    return any(has(assigned, topic.topic_id, index) for topic in owned for index in topic.partitions)
