"""Initialization of share partitions at the share coordinator, as the group records it (KIP-932). Pure.

A heartbeat notes partitions as initializing, and starts the initialization after its response. The partitions become
initialized, and with that assignable, once the share coordinator has written their states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from broker.groups.consumer.context import Decision
from broker.groups.records import LogRecord
from broker.groups.share import records
from broker.groups.share.context import ShareContext
from broker.groups.share.group import ShareGroup
from broker.groups.share.partitions import (
    UNKNOWN_TOPIC,
    StatePartitions,
    TopicPartitions,
    Topics,
    by_topic,
    joined,
    without,
    without_topics,
)
from broker.share.state import NO_START_OFFSET, Initialization

ADDED_START_OFFSET: Final = 0
"""Start offset of partitions that were added to a topic which the group knows: all of their records are new to it."""


def initialize(
    context: ShareContext, group: ShareGroup, epoch: int, names: Iterable[str], decision: Decision[Any]
) -> None:
    """Add to a decision the partitions of the subscribed topics ``names`` that must be initialized."""
    found = _uninitialized(context, group, names)
    if not found:
        return
    known = group.partitions.initialized.keys() | group.partitions.initializing.keys()
    decision.records.append(initializing(context, group, found))
    decision.initialize = [
        Initialization(
            topic_id, partition, epoch, ADDED_START_OFFSET if topic_id in known else NO_START_OFFSET
        )
        for topic_id, topic in found.items()
        for partition in sorted(topic.partitions)
    ]


def _uninitialized(context: ShareContext, group: ShareGroup, names: Iterable[str]) -> Topics:
    """The partitions that are neither initialized, nor being initialized for less than the retry interval."""
    known = group.partitions.initialized
    if context.now_ms - group.initializing_since_ms < context.initialize_retry_interval_ms:
        known = joined(known, group.partitions.initializing)
    found: dict[UUID, TopicPartitions] = {}
    for name in names:
        topic_id = context.topics.topic_id(name)
        if topic_id is None:
            continue
        done = known[topic_id].partitions if topic_id in known else frozenset()
        count = context.topics.partition_count(topic_id)
        if len(done) < count:
            found[topic_id] = TopicPartitions(name, frozenset(range(count)) - done)
    return found


def initializing(context: ShareContext, group: ShareGroup, found: Topics) -> LogRecord:
    """The record that adds ``found`` to the initializing partitions."""
    now = group.partitions
    after = StatePartitions(
        joined(now.initializing, found),
        now.initialized,
        now.deleting - found.keys() - now.initializing.keys(),
    )
    return records.state_partitions(group.group_id, after, context.topics)


def initialized(
    context: ShareContext, group: ShareGroup, partitions: Sequence[Initialization]
) -> Decision[None]:
    """The share coordinator has initialized all of ``partitions``."""
    done = by_topic((each.topic_id, each.partition) for each in partitions)
    named = {
        topic_id: TopicPartitions(context.topics.topic_name(topic_id) or UNKNOWN_TOPIC, frozenset(indexes))
        for topic_id, indexes in done.items()
    }
    now = group.partitions
    after = StatePartitions(without(now.initializing, done), joined(now.initialized, named), now.deleting)
    return Decision(None, [records.state_partitions(group.group_id, after, context.topics)])


def uninitialized(
    context: ShareContext, group: ShareGroup, partitions: Sequence[Initialization]
) -> Decision[None]:
    """The share coordinator has not initialized all of ``partitions``: a later heartbeat tries all of them again."""
    now = group.partitions
    if not now.initializing:
        return Decision(None)
    failed = by_topic((each.topic_id, each.partition) for each in partitions)
    after = StatePartitions(without(now.initializing, failed), now.initialized, now.deleting)
    return Decision(None, [records.state_partitions(group.group_id, after, context.topics)])


def forget_topics(
    context: ShareContext, groups: Iterable[ShareGroup], deleted: frozenset[UUID]
) -> Decision[None]:
    """The topics were deleted; the share coordinator deletes the states of their partitions by itself."""
    decision: Decision[None] = Decision(None)
    for group in groups:
        now = group.partitions
        if deleted.isdisjoint(now.topic_ids()):
            continue
        after = StatePartitions(
            without_topics(now.initializing, deleted),
            without_topics(now.initialized, deleted),
            now.deleting - deleted,
        )
        decision.records.append(records.state_partitions(group.group_id, after, context.topics))
    return decision
