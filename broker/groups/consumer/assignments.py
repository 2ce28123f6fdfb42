"""Assignments as values: partitions by topic id, with or without the epochs at which a member got them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol
from uuid import UUID

TargetAssignment = Mapping[UUID, frozenset[int]]
"""Target assignment of a member: topic id -> partitions. Topics without partitions are not included."""
AssignedPartitions = Mapping[UUID, Mapping[int, int]]
"""Current assignment of a member: topic id -> partition -> epoch at which it was assigned (KIP-1251).

Topics without partitions are not included.
"""
NO_TARGET: Final[TargetAssignment] = {}
NO_PARTITIONS: Final[AssignedPartitions] = {}


class TopicPartitions(Protocol):
    """Partitions of one topic: the interface of all messages and records that have a topic id and its partitions."""

    @property
    def topic_id(self) -> UUID | None: ...
    @property
    def partitions(self) -> Iterable[int]: ...


def at_epoch(target: TargetAssignment, epoch: int) -> AssignedPartitions:
    """Return the target assignment as a current assignment, with ``epoch`` for every partition."""
    return {topic_id: dict.fromkeys(sorted(indexes), epoch) for topic_id, indexes in target.items()}


def without_epochs(assigned: AssignedPartitions) -> TargetAssignment:
    return {topic_id: frozenset(epochs) for topic_id, epochs in assigned.items()}


def has(assigned: AssignedPartitions, topic_id: UUID | None, partition: int) -> bool:
    return topic_id is not None and partition in assigned.get(topic_id, ())


def has_all(assigned: AssignedPartitions, owned: Iterable[TopicPartitions] | None) -> bool:
    """Whether ``owned`` contains only partitions of ``assigned``. False if the request has no owned partitions (None)."""
    if owned is None:
        return False
    return all(
        topic.topic_id in assigned and all(has(assigned, topic.topic_id, index) for index in topic.partitions)
        for topic in owned
    )


def has_any(assigned: AssignedPartitions, owned: Iterable[TopicPartitions] | None) -> bool:
    """Whether ``owned`` contains a partition of ``assigned``. True if the request has no owned partitions (None)."""
    if owned is None:
        return True
    return any(has(assigned, topic.topic_id, index) for topic in owned for index in topic.partitions)
