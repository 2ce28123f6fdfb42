"""Builds and replays the records of a share group: types 10 to 15 of ``__consumer_offsets`` (KIP-932). Pure.

The records and their order are those of Kafka's ``GroupCoordinatorRecordHelpers``; `apply` is Kafka's ``replay``. After
compaction a log may have records that do not fit the group's state. Kafka fails on some of these; `apply` uses as much of
them as possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from broker.groups.consumer.assignments import TargetAssignment
from broker.groups.consumer.member import LEAVE_EPOCH
from broker.groups.consumer.records import NO_ASSIGNMENT_EPOCH
from broker.groups.consumer.topics import TopicsImage
from broker.groups.records import LogRecord
from broker.groups.share.group import ShareGroup
from broker.groups.share.member import ShareGroupMember
from broker.groups.share.partitions import UNKNOWN_TOPIC, StatePartitions, TopicPartitions, Topics
from protocol.records.share_group_log import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    ShareTopicPartitions,
    TopicInfo,
    TopicPartitionsInfo,
)
from protocol.schema import Key, Value

# -- writing ------------------------------------------------------------------------------------------------------


def member_subscription(group_id: str, member: ShareGroupMember) -> LogRecord:
    return LogRecord(
        ShareGroupMemberMetadataKey(group_id, member.member_id),
        ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_topic_names),
        ),
    )


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> LogRecord:
    return LogRecord(ShareGroupMetadataKey(group_id), ShareGroupMetadataValue(epoch, metadata_hash))


def target_assignment(group_id: str, member_id: str, target: TargetAssignment) -> LogRecord:
    return LogRecord(
        ShareGroupTargetAssignmentMemberKey(group_id, member_id),
        ShareGroupTargetAssignmentMemberValue(_topics_of(target)),
    )


def target_assignment_metadata(group_id: str, epoch: int, timestamp_ms: int) -> LogRecord:
    return LogRecord(
        ShareGroupTargetAssignmentMetadataKey(group_id),
        ShareGroupTargetAssignmentMetadataValue(epoch, timestamp_ms),
    )


def current_assignment(group_id: str, member: ShareGroupMember) -> LogRecord:
    return LogRecord(
        ShareGroupCurrentMemberAssignmentKey(group_id, member.member_id),
        ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            assigned_partitions=_topics_of(member.assigned),
        ),
    )


def _topics_of(assigned: TargetAssignment) -> list[ShareTopicPartitions]:
    return [ShareTopicPartitions(topic_id, sorted(indexes)) for topic_id, indexes in assigned.items()]


def state_partitions(group_id: str, partitions: StatePartitions, topics: TopicsImage) -> LogRecord:
    return LogRecord(
        ShareGroupStatePartitionMetadataKey(group_id),
        ShareGroupStatePartitionMetadataValue(
            _infos_of(partitions.initializing),
            _infos_of(partitions.initialized),
            [
                TopicInfo(topic_id, topics.topic_name(topic_id) or UNKNOWN_TOPIC)
                for topic_id in sorted(partitions.deleting)
            ],
        ),
    )


def _infos_of(topics: Topics) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id, name, sorted(indexes)) for topic_id, (name, indexes) in topics.items()
    ]


def member_tombstones(group_id: str, member_id: str) -> list[LogRecord]:
    return [
        LogRecord(ShareGroupCurrentMemberAssignmentKey(group_id, member_id)),
        LogRecord(ShareGroupTargetAssignmentMemberKey(group_id, member_id)),
        LogRecord(ShareGroupMemberMetadataKey(group_id, member_id)),
    ]


def empty_group_keys(group_id: str) -> list[Key]:
    """The keys of all records that a group without members has."""
    return [
        ShareGroupTargetAssignmentMetadataKey(group_id),
        ShareGroupStatePartitionMetadataKey(group_id),
        ShareGroupMetadataKey(group_id),
    ]


# -- reading ------------------------------------------------------------------------------------------------------


def apply(group: ShareGroup, key: Key, value: Value | None) -> None:
    """Apply one record to its group, except the tombstone that deletes the whole group, which the caller applies."""
    match key:
        case ShareGroupMetadataKey():
            if isinstance(value, ShareGroupMetadataValue):
                group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
        case ShareGroupMemberMetadataKey(member_id=member_id):
            _apply_subscription(group, member_id, value)
        case ShareGroupTargetAssignmentMetadataKey():
            group.assignment_epoch, group.assignment_timestamp_ms = _assignment_of(value)
        case ShareGroupTargetAssignmentMemberKey(member_id=member_id):
            group.targets.pop(member_id, None)
            if isinstance(value, ShareGroupTargetAssignmentMemberValue):
                group.targets[member_id] = _assigned_of(value.topic_partitions)
        case ShareGroupCurrentMemberAssignmentKey(member_id=member_id):
            _apply_current(group, member_id, value)
        case ShareGroupStatePartitionMetadataKey():
            group.state_partitions = _partitions_of(value)
        case _:
            pass


def _apply_subscription(group: ShareGroup, member_id: str, value: Value | None) -> None:
    if value is None:
        group.remove_member(member_id)
        return
    assert isinstance(value, ShareGroupMemberMetadataValue)
    member = group.members.get(member_id) or ShareGroupMember(member_id=member_id)
    group.update_member(
        member.evolve(
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
        )
    )


def _apply_current(group: ShareGroup, member_id: str, value: Value | None) -> None:
    member = group.members.get(member_id)
    if value is None:
        if member is not None:
            gone = {"member_epoch": LEAVE_EPOCH, "previous_member_epoch": LEAVE_EPOCH}
            group.update_member(member.evolve(**gone, assigned={}))
        return
    assert isinstance(value, ShareGroupCurrentMemberAssignmentValue)
    group.update_member(
        (member or ShareGroupMember(member_id=member_id)).evolve(
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            assigned=_assigned_of(value.assigned_partitions),
        )
    )


def _assignment_of(value: Value | None) -> tuple[int, int]:
    if isinstance(value, ShareGroupTargetAssignmentMetadataValue):
        return value.assignment_epoch, value.assignment_timestamp_ms
    return NO_ASSIGNMENT_EPOCH, 0


def _partitions_of(value: Value | None) -> StatePartitions | None:
    if not isinstance(value, ShareGroupStatePartitionMetadataValue):
        return None
    return StatePartitions(
        _named(value.initializing_topics),
        _named(value.initialized_topics),
        frozenset(topic.topic_id for topic in value.deleting_topics if topic.topic_id is not None),
    )


def _assigned_of(topics: Sequence[ShareTopicPartitions]) -> Mapping[UUID, frozenset[int]]:
    """The partitions of a record. Unlike in a consumer group, a topic may be left without partitions."""
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics if topic.topic_id is not None}


def _named(topics: Sequence[TopicPartitionsInfo]) -> Topics:
    return {
        topic.topic_id: TopicPartitions(topic.topic_name, frozenset(topic.partitions))
        for topic in topics
        if topic.topic_id is not None
    }
