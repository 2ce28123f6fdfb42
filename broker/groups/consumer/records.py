"""Builds and replays the records of a consumer group: types 3, 5 to 8 and 16 of ``__consumer_offsets`` (KIP-848). Pure.

The records and their order are those of Kafka's ``GroupCoordinatorRecordHelpers``; `apply` is Kafka's ``replay``. After
compaction a log may have records that do not fit the group's state. Kafka fails on some of these; `apply` uses as much of
them as possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, get_args
from uuid import UUID

from broker.groups.consumer.assignments import NO_PARTITIONS, AssignedPartitions, TargetAssignment
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import LEAVE_EPOCH, ConsumerGroupMember, MemberState
from broker.groups.consumer.resolved import ResolvedRegex
from broker.groups.records import LogRecord
from protocol.records.group_log import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
    TargetTopicPartitions,
)
from protocol.schema import Value

NO_ASSIGNMENT_EPOCH: Final = -1
"""Assignment epoch of a group after the tombstone of its target assignment metadata."""

ConsumerGroupKey = (
    ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)

CONSUMER_GROUP_KEYS: Final = get_args(ConsumerGroupKey)

# -- writing ------------------------------------------------------------------------------------------------------


def member_subscription(group_id: str, member: ConsumerGroupMember) -> LogRecord:
    return LogRecord(
        ConsumerGroupMemberMetadataKey(group_id, member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_topic_names),
            subscribed_topic_regex=member.subscribed_topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=member.classic,
        ),
    )


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> LogRecord:
    return LogRecord(ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(epoch, metadata_hash))


def target_assignment(group_id: str, member_id: str, target: TargetAssignment) -> LogRecord:
    topics = [TargetTopicPartitions(topic_id, sorted(indexes)) for topic_id, indexes in target.items()]
    return LogRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id, member_id),
        ConsumerGroupTargetAssignmentMemberValue(topics),
    )


def target_assignment_metadata(group_id: str, epoch: int, timestamp_ms: int) -> LogRecord:
    return LogRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id),
        ConsumerGroupTargetAssignmentMetadataValue(epoch, timestamp_ms),
    )


def current_assignment(group_id: str, member: ConsumerGroupMember) -> LogRecord:
    return LogRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id, member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=member.state,
            assigned_partitions=_topics_of(member.assigned),
            partitions_pending_revocation=_topics_of(member.pending_revocation),
        ),
    )


def _topics_of(assigned: AssignedPartitions) -> list[CurrentTopicPartitions]:
    return [
        CurrentTopicPartitions(topic_id, tuple(epochs), tuple(epochs.values()))
        for topic_id, epochs in assigned.items()
    ]


def regular_expression(group_id: str, regex: str, resolved: ResolvedRegex) -> LogRecord:
    return LogRecord(
        ConsumerGroupRegularExpressionKey(group_id, regex),
        ConsumerGroupRegularExpressionValue(sorted(resolved.topics), resolved.version, resolved.timestamp_ms),
    )


def regular_expression_tombstone(group_id: str, regex: str) -> LogRecord:
    return LogRecord(ConsumerGroupRegularExpressionKey(group_id, regex))


def obsolete_metadata_tombstone(group_id: str) -> LogRecord:
    return LogRecord(ConsumerGroupPartitionMetadataKey(group_id))


def member_tombstones(group_id: str, member_id: str) -> list[LogRecord]:
    return [
        LogRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id)),
        LogRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id)),
        LogRecord(ConsumerGroupMemberMetadataKey(group_id, member_id)),
    ]


def group_records(group: ConsumerGroup) -> list[LogRecord]:
    """Return all records of a group, as an upgrade writes them."""
    group_id, members = group.group_id, group.members.values()
    return [
        *(member_subscription(group_id, member) for member in members),
        group_epoch(group_id, group.epoch, group.metadata_hash),
        *(target_assignment(group_id, name, group.target_of(name)) for name in group.members),
        target_assignment_metadata(group_id, group.assignment_epoch, group.assignment_timestamp_ms),
        *(current_assignment(group_id, member) for member in members),
    ]


def group_tombstones(group: ConsumerGroup, renamed: Mapping[str, str] | None = None) -> list[LogRecord]:
    """Return tombstones for all records of a group.

    ``renamed``: old -> new id of members whose records were written under the new id earlier in the same batch.
    """
    group_id = group.group_id
    names = [(renamed or {}).get(name, name) for name in group.members]
    return [
        *(LogRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, name)) for name in names),
        *(LogRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, name)) for name in names),
        LogRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id)),
        *(LogRecord(ConsumerGroupMemberMetadataKey(group_id, name)) for name in names),
        *(regular_expression_tombstone(group_id, regex) for regex in group.resolved),
        obsolete_metadata_tombstone(group_id),
        LogRecord(ConsumerGroupMetadataKey(group_id)),
    ]


# -- reading ------------------------------------------------------------------------------------------------------


def apply(group: ConsumerGroup, key: ConsumerGroupKey, value: Value | None) -> None:
    """Apply one record to its group, except the tombstone that deletes the whole group, which the caller applies."""
    match key, value:
        case ConsumerGroupMetadataKey(), ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash):
            group.epoch, group.metadata_hash = epoch, metadata_hash
        case ConsumerGroupPartitionMetadataKey(), _:
            group.has_obsolete_metadata = value is not None
        case ConsumerGroupMemberMetadataKey(member_id=member_id), _:
            _apply_subscription(group, member_id, value)
        case ConsumerGroupTargetAssignmentMetadataKey(), ConsumerGroupTargetAssignmentMetadataValue():
            assert isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
            group.assignment_epoch = value.assignment_epoch
            group.assignment_timestamp_ms = value.assignment_timestamp_ms
        case ConsumerGroupTargetAssignmentMetadataKey(), None:
            group.assignment_epoch, group.assignment_timestamp_ms = NO_ASSIGNMENT_EPOCH, 0
        case ConsumerGroupTargetAssignmentMemberKey(member_id=member_id), _:
            _apply_target(group, member_id, value)
        case ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id), _:
            _apply_current(group, member_id, value)
        case ConsumerGroupRegularExpressionKey(regular_expression=regex), _:
            _apply_regex(group, regex, value)
        case _:
            pass


def _apply_subscription(group: ConsumerGroup, member_id: str, value: Value | None) -> None:
    if value is None:
        group.remove_member(member_id)
        return
    assert isinstance(value, ConsumerGroupMemberMetadataValue)
    member = group.members.get(member_id) or ConsumerGroupMember(member_id=member_id)
    group.update_member(
        member.evolve(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
            subscribed_topic_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )
    )


def _apply_target(group: ConsumerGroup, member_id: str, value: Value | None) -> None:
    if value is None:
        group.targets.pop(member_id, None)
        return
    assert isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
    group.targets[member_id] = {
        topic.topic_id: frozenset(topic.partitions)
        for topic in value.topic_partitions
        if topic.topic_id is not None and topic.partitions
    }


def _apply_current(group: ConsumerGroup, member_id: str, value: Value | None) -> None:
    member = group.members.get(member_id)
    if value is None:
        if member is not None:
            gone = {"member_epoch": LEAVE_EPOCH, "previous_member_epoch": LEAVE_EPOCH}
            group.update_member(
                member.evolve(**gone, assigned=NO_PARTITIONS, pending_revocation=NO_PARTITIONS)
            )
        return
    assert isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
    member = member or ConsumerGroupMember(member_id=member_id)
    group.update_member(
        member.evolve(
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=_assigned_of(value.assigned_partitions, value.member_epoch),
            pending_revocation=_assigned_of(value.partitions_pending_revocation, value.member_epoch),
        )
    )


def _assigned_of(topics: Iterable[CurrentTopicPartitions], member_epoch: int) -> AssignedPartitions:
    """Return the assigned partitions of a record, with the member's epoch if the record is older than Kafka 4.3."""
    assigned: dict[UUID, dict[int, int]] = {}
    for topic in topics:
        epochs: Sequence[int] = topic.assignment_epochs or ()
        if len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        if topic.topic_id is not None and topic.partitions:
            assigned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return assigned


def _apply_regex(group: ConsumerGroup, regex: str, value: Value | None) -> None:
    if value is None:
        group.resolve(regex, None)
        return
    assert isinstance(value, ConsumerGroupRegularExpressionValue)
    group.resolve(regex, ResolvedRegex(frozenset(value.topics), value.version, value.timestamp_ms))
