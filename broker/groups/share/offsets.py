"""Administration of a share group's offsets: AlterShareGroupOffsets, DeleteShareGroupOffsets, DeleteGroups. Pure.

The offsets are in the states of the share partitions, at the share coordinator. The group records which share partitions
are being initialized or deleted, before and after the share coordinator is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from broker.groups.consumer.context import Decision
from broker.groups.share import records
from broker.groups.share.context import ShareContext, check_empty, live_group
from broker.groups.share.group import ShareGroup
from broker.groups.share.initializing import initializing
from broker.groups.share.partitions import StatePartitions, TopicPartitions, joined, without_topics
from broker.share.messages import message_of
from broker.share.state import Initialization
from protocol.errors import NONE, ErrorCode
from protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsResponseTopic
from protocol.named_tuple import NamedTuple

NO_OFFSETS: Final = "There is no offset information to delete."

Deletions = Sequence[tuple[UUID, int]]
"""(topic id, partition) of each share partition whose state is to be deleted."""


def alter(
    context: ShareContext,
    found: object | None,
    group_id: str,
    topics: Iterable[AlterShareGroupOffsetsRequestTopic],
) -> Decision[list[AlterShareGroupOffsetsResponseTopic]]:
    """Handle AlterShareGroupOffsets: initialize share partitions with new start offsets. Raises `Refused`.

    The group is created if it does not exist. Any offset is accepted.
    """
    group = ShareGroup(group_id) if found is None else live_group(found, group_id)
    check_empty(group)
    decision: Decision[list[AlterShareGroupOffsetsResponseTopic]] = Decision([])
    started: dict[UUID, TopicPartitions] = {}
    asked: dict[tuple[UUID, int], Initialization] = {}
    for topic in topics:
        topic_id = context.topics.topic_id(topic.topic_name)
        count = 0 if topic_id is None else context.topics.partition_count(topic_id)
        known = [each for each in topic.partitions if each.partition_index < count]
        if topic_id is not None:
            indexes = frozenset(each.partition_index for each in known)
            started[topic_id] = TopicPartitions(topic.topic_name, indexes)
            for each in known:
                index, offset = each.partition_index, each.start_offset
                asked[topic_id, index] = Initialization(topic_id, index, group.epoch, offset)
        decision.response.append(
            AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=topic_id,
                partitions=[_altered(each.partition_index, count) for each in topic.partitions],
            )
        )
    if started:
        decision.records.append(initializing(context, group, started))
    decision.initialize = list(asked.values())
    return decision


def _altered(index: int, count: int) -> AlterShareGroupOffsetsResponsePartition:
    if index < count:
        return AlterShareGroupOffsetsResponsePartition(partition_index=index)
    return AlterShareGroupOffsetsResponsePartition(
        partition_index=index,
        error_code=ErrorCode.unknown_topic_or_partition,
        error_message=message_of(ErrorCode.unknown_topic_or_partition),
    )


class Deletion(NamedTuple):
    """Share partitions to delete at the share coordinator, and the responses of topics that have none."""

    partitions: Deletions
    refused: Sequence[DeleteShareGroupOffsetsResponseTopic] = ()


def delete_offsets(
    context: ShareContext, found: object | None, group_id: str, names: Iterable[str]
) -> Decision[Deletion]:
    """Handle DeleteShareGroupOffsets up to the request to the share coordinator. Raises `Refused`."""
    group = live_group(found, group_id)
    check_empty(group)
    now = group.state_partitions
    if now is None:
        return Decision(Deletion(()))
    doomed: dict[UUID, Iterable[int]] = {}
    refused: list[DeleteShareGroupOffsetsResponseTopic] = []
    for name in names:
        topic_id = context.topics.topic_id(name)
        if topic_id is None:
            refused.append(_refused(name, message_of(ErrorCode.unknown_topic_or_partition)))
        elif topic_id in now.initialized:
            doomed[topic_id] = sorted(now.initialized[topic_id].partitions)
        elif topic_id in now.deleting:
            # An earlier deletion has failed.
            doomed[topic_id] = range(context.topics.partition_count(topic_id))
        else:
            refused.append(_refused(name, NO_OFFSETS))
    after = StatePartitions(
        now.initializing, without_topics(now.initialized, doomed.keys()), now.deleting | doomed.keys()
    )
    partitions = [(topic_id, index) for topic_id, indexes in doomed.items() for index in indexes]
    return Decision(
        Deletion(partitions, refused), [records.state_partitions(group_id, after, context.topics)]
    )


def _refused(name: str, message: str | None) -> DeleteShareGroupOffsetsResponseTopic:
    error = ErrorCode.unknown_topic_or_partition
    return DeleteShareGroupOffsetsResponseTopic(topic_name=name, error_code=error, error_message=message)


def offsets_deleted(
    context: ShareContext, group: ShareGroup | None, deleted: Mapping[UUID, str]
) -> Decision[list[DeleteShareGroupOffsetsResponseTopic]]:
    """The share coordinator has deleted the states of all share partitions of the topics ``deleted`` (id -> name)."""
    if group is None or group.state_partitions is None:
        return Decision([])
    now = group.state_partitions
    after = StatePartitions(now.initializing, now.initialized, now.deleting - deleted.keys())
    return Decision(
        [
            DeleteShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id, error_code=NONE)
            for topic_id, name in deleted.items()
        ],
        [records.state_partitions(group.group_id, after, context.topics)],
    )


def delete_group(context: ShareContext, group: ShareGroup) -> Decision[Deletions]:
    """Handle DeleteGroups up to the request to the share coordinator. Raises `Refused`."""
    check_empty(group)
    now = group.state_partitions
    if now is None:
        return Decision(())
    retried = {
        topic_id: TopicPartitions(name, frozenset(range(context.topics.partition_count(topic_id))))
        for topic_id in sorted(now.deleting)
        if (name := context.topics.topic_name(topic_id)) is not None
    }
    doomed = joined(joined(now.initialized, now.initializing), retried)
    after = StatePartitions(deleting=frozenset(doomed))
    partitions = [
        (topic_id, index) for topic_id, topic in doomed.items() for index in sorted(topic.partitions)
    ]
    return Decision(partitions, [records.state_partitions(group.group_id, after, context.topics)])
