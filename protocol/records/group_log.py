"""Records of `__consumer_offsets`: committed offsets, classic groups, and the groups of KIP-848.

`decode_key` returns the typed key of a record, `decode_value` its value. The records of share groups are in a module of
their own, `protocol.records.share_group_log`, which is imported with the first of them. Types of streams groups become
`UnknownKey`, and a loader skips them.
"""
# The calls in these classes are `dataclasses.field` in disguise, which the linter does not recognise for every type.

from collections.abc import Sequence
from typing import ClassVar, Final
from uuid import UUID

from protocol.schema import (
    Key,
    Structure,
    Value,
    array,
    binary,
    int8,
    int32,
    int64,
    key_type,
    nullable_array,
    nullable_string,
    string,
    tagged_nested,
    uuid,
)
from protocol.slotted import slotted
from protocol.wire_types import INT32, STRING

# Offsets


@slotted
class LegacyOffsetCommitKey(Key):
    """Key of an offset commit of type 0, written before 2013. It is read like a key of type 1."""

    TYPE: ClassVar[int] = 0

    group: str = string()
    topic: str = string()
    partition: int = int32()


@slotted
class OffsetCommitKey(Key):
    TYPE: ClassVar[int] = 1

    group: str = string()
    topic: str = string()
    partition: int = int32()


@slotted
class OffsetCommitValue(Value):
    VERSIONS: ClassVar[range] = range(5)
    FLEXIBLE: ClassVar[int | None] = 4

    offset: int = int64()
    leader_epoch: int = int32(-1, since=3)
    metadata: str = string()
    commit_timestamp_ms: int = int64()
    # Only in version 1, which is written for a commit with a retention time of its own.
    expire_timestamp_ms: int = int64(-1, since=1, until=1)
    topic_id: UUID | None = uuid(since=4, tag=0)


# Classic groups


@slotted
class GroupMetadataKey(Key):
    TYPE: ClassVar[int] = 2

    group: str = string()


@slotted
class MemberMetadata(Structure):
    member_id: str = string()
    group_instance_id: str | None = nullable_string(since=3)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(-1, since=1)
    session_timeout_ms: int = int32()
    subscription: bytes = binary()
    assignment: bytes = binary()


@slotted
class GroupMetadataValue(Value):
    VERSIONS: ClassVar[range] = range(5)
    FLEXIBLE: ClassVar[int | None] = 4

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = nullable_string()
    leader: str | None = nullable_string()
    current_state_timestamp_ms: int = int64(-1, since=2)
    members: Sequence[MemberMetadata] = array(MemberMetadata)


# Groups of KIP-848. Their values have one version, which is flexible.


@slotted
class ConsumerGroupMetadataKey(Key):
    TYPE: ClassVar[int] = 3

    group_id: str = string()


@slotted
class ConsumerGroupMetadataValue(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


@slotted
class ConsumerGroupPartitionMetadataKey(Key):
    """Key of a consumer group's partition metadata, which Kafka 4.1 replaced by the metadata hash. A loader writes
    tombstones for existing records.
    """

    TYPE: ClassVar[int] = 4

    group_id: str = string()


@slotted
class PartitionRacks(Structure):
    partition: int = int32()
    racks: Sequence[str] = array(STRING)


@slotted
class TopicMetadata(Structure):
    topic_id: UUID | None = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: Sequence[PartitionRacks] = array(PartitionRacks)


@slotted
class ConsumerGroupPartitionMetadataValue(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    topics: Sequence[TopicMetadata] = array(TopicMetadata)


@slotted
class ConsumerGroupMemberMetadataKey(Key):
    TYPE: ClassVar[int] = 5

    group_id: str = string()
    member_id: str = string()


@slotted
class ClassicProtocol(Structure):
    name: str = string()
    metadata: bytes = binary()


@slotted
class ClassicMemberMetadata(Structure):
    """The JoinGroup data of a member that still uses the classic protocol."""

    session_timeout_ms: int = int32()
    supported_protocols: Sequence[ClassicProtocol] = array(ClassicProtocol)


@slotted
class ConsumerGroupMemberMetadataValue(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    instance_id: str | None = nullable_string()
    rack_id: str | None = nullable_string()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: Sequence[str] = array(STRING)
    subscribed_topic_regex: str | None = nullable_string()
    rebalance_timeout_ms: int = int32(-1)
    server_assignor: str | None = nullable_string()
    classic_member_metadata: ClassicMemberMetadata | None = tagged_nested(ClassicMemberMetadata, 0)


@slotted
class ConsumerGroupTargetAssignmentMetadataKey(Key):
    TYPE: ClassVar[int] = 6

    group_id: str = string()


@slotted
class ConsumerGroupTargetAssignmentMetadataValue(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    assignment_epoch: int = int32()
    assignment_timestamp_ms: int = int64(tag=0)


@slotted
class ConsumerGroupTargetAssignmentMemberKey(Key):
    TYPE: ClassVar[int] = 7

    group_id: str = string()
    member_id: str = string()


@slotted
class TargetTopicPartitions(Structure):
    topic_id: UUID | None = uuid()
    partitions: Sequence[int] = array(INT32)


@slotted
class ConsumerGroupTargetAssignmentMemberValue(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    topic_partitions: Sequence[TargetTopicPartitions] = array(TargetTopicPartitions)


@slotted
class ConsumerGroupCurrentMemberAssignmentKey(Key):
    TYPE: ClassVar[int] = 8

    group_id: str = string()
    member_id: str = string()


@slotted
class CurrentTopicPartitions(Structure):
    topic_id: UUID | None = uuid()
    partitions: Sequence[int] = array(INT32)
    # As many as `partitions`. They fence the commits of a member that lost a partition and got it back. The schema has null
    # as default, but the classes that Kafka generates from it leave out an empty array and write a null.
    assignment_epochs: Sequence[int] | None = nullable_array(INT32, (), tag=0)


@slotted
class ConsumerGroupCurrentMemberAssignmentValue(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: Sequence[CurrentTopicPartitions] = array(CurrentTopicPartitions)
    partitions_pending_revocation: Sequence[CurrentTopicPartitions] = array(CurrentTopicPartitions)


@slotted
class ConsumerGroupRegularExpressionKey(Key):
    TYPE: ClassVar[int] = 16

    group_id: str = string()
    regular_expression: str = string()


@slotted
class ConsumerGroupRegularExpressionValue(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    topics: Sequence[str] = array(STRING)
    version: int = int64()
    timestamp_ms: int = int64()


# Reading a record of any type


@slotted(frozen=True)
class UnknownKey:
    """A key of a type that has no class in this module."""

    type: int


VALUE_OF: dict[type[Key], type[Value]] = {
    LegacyOffsetCommitKey: OffsetCommitValue,
    OffsetCommitKey: OffsetCommitValue,
    GroupMetadataKey: GroupMetadataValue,
    ConsumerGroupMetadataKey: ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey: ConsumerGroupPartitionMetadataValue,
    ConsumerGroupMemberMetadataKey: ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupRegularExpressionKey: ConsumerGroupRegularExpressionValue,
}
_KEY_OF_TYPE = {key.TYPE: key for key in VALUE_OF}
SHARE_GROUP_TYPES: Final = range(10, 16)


def decode_key(data: bytes) -> Key | UnknownKey:
    found = key_type(data)
    key = _key_of_share_group(found) if found in SHARE_GROUP_TYPES else _KEY_OF_TYPE.get(found)
    return UnknownKey(found) if key is None else key.decode(data)


def _key_of_share_group(found: int) -> type[Key]:
    from protocol.records import share_group_log

    return {key.TYPE: key for key in share_group_log.VALUE_OF}[found]


def decode_value(key: Key, data: bytes | None) -> Value | None:
    """Decode the value of a record with this key; None for a tombstone."""
    if data is None:
        return None
    if key.TYPE in SHARE_GROUP_TYPES:
        from protocol.records import share_group_log

        return share_group_log.VALUE_OF[type(key)].decode(data)
    return VALUE_OF[type(key)].decode(data)
