"""The share partitions of a group, by the progress of their initialization at the share coordinator (KIP-932). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import field
from typing import Final
from uuid import UUID

from protocol.named_tuple import NamedTuple
from protocol.slotted import slotted

UNKNOWN_TOPIC: Final = "<UNKNOWN>"
"""Name that Kafka writes for a topic that was deleted."""


class TopicPartitions(NamedTuple):
    """Partitions of one topic, with the topic's name."""

    name: str
    partitions: frozenset[int]


Topics = Mapping[UUID, TopicPartitions]


@slotted(frozen=True)
class StatePartitions:
    """The value of a group's ShareGroupStatePartitionMetadata, which always has the whole state."""

    initializing: Topics = field(default_factory=dict)
    initialized: Topics = field(default_factory=dict)
    deleting: frozenset[UUID] = frozenset()
    """Topics whose share partitions the share coordinator is asked to delete."""

    def topic_ids(self) -> frozenset[UUID]:
        return self.deleting.union(self.initializing, self.initialized)


NOTHING: Final = StatePartitions()


def joined(first: Topics, second: Topics) -> Topics:
    """The partitions of both; the names of ``second`` replace those of ``first``."""
    found = dict(first)
    for topic_id, (name, partitions) in second.items():
        before = first[topic_id].partitions if topic_id in first else frozenset()
        found[topic_id] = TopicPartitions(name, before | partitions)
    return found


def without(topics: Topics, gone: Mapping[UUID, AbstractSet[int]]) -> Topics:
    """The topics without the partitions in ``gone``. Topics that have no partitions then are left out."""
    left = {
        topic_id: TopicPartitions(name, partitions - gone.get(topic_id, frozenset()))
        for topic_id, (name, partitions) in topics.items()
    }
    return {topic_id: topic for topic_id, topic in left.items() if topic.partitions}


def without_topics(topics: Topics, gone: AbstractSet[UUID]) -> Topics:
    return {topic_id: topic for topic_id, topic in topics.items() if topic_id not in gone}


def by_topic(partitions: Iterable[tuple[UUID, int]]) -> dict[UUID, set[int]]:
    found: dict[UUID, set[int]] = {}
    for topic_id, partition in partitions:
        found.setdefault(topic_id, set()).add(partition)
    return found
