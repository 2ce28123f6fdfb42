"""Records of share groups in `__consumer_offsets` (KIP-932): members, assignments, the group's partitions.

Each value has one version, which is flexible.
"""

from collections.abc import Sequence
from typing import ClassVar
from uuid import UUID

from protocol.schema import Key, Structure, Value, array, int8, int32, int64, nullable_string, string, uuid
from protocol.slotted import slotted
from protocol.wire_types import INT32, STRING


@slotted
class ShareGroupMemberMetadataKey(Key):
    TYPE: ClassVar[int] = 10

    group_id: str = string()
    member_id: str = string()


@slotted
class ShareGroupMemberMetadataValue(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    rack_id: str | None = nullable_string()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: Sequence[str] = array(STRING)


@slotted
class ShareGroupMetadataKey(Key):
    TYPE: ClassVar[int] = 11

    group_id: str = string()


@slotted
class ShareGroupMetadataValue(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    epoch: int = int32()
    metadata_hash: int = int64()


@slotted
class ShareGroupTargetAssignmentMetadataKey(Key):
    TYPE: ClassVar[int] = 12

    group_id: str = string()


@slotted
class ShareGroupTargetAssignmentMetadataValue(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    assignment_epoch: int = int32()
    assignment_timestamp_ms: int = int64(tag=0)


@slotted
class ShareGroupTargetAssignmentMemberKey(Key):
    TYPE: ClassVar[int] = 13

    group_id: str = string()
    member_id: str = string()


@slotted
class ShareTopicPartitions(Structure):
    topic_id: UUID | None = uuid()
    partitions: Sequence[int] = array(INT32)


@slotted
class ShareGroupTargetAssignmentMemberValue(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    topic_partitions: Sequence[ShareTopicPartitions] = array(ShareTopicPartitions)


@slotted
class ShareGroupCurrentMemberAssignmentKey(Key):
    TYPE: ClassVar[int] = 14

    group_id: str = string()
    member_id: str = string()


@slotted
class ShareGroupCurrentMemberAssignmentValue(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: Sequence[ShareTopicPartitions] = array(ShareTopicPartitions)


@slotted
class ShareGroupStatePartitionMetadataKey(Key):
    TYPE: ClassVar[int] = 15

    group_id: str = string()


@slotted
class TopicPartitionsInfo(Structure):
    topic_id: UUID | None = uuid()
    topic_name: str = string()
    partitions: Sequence[int] = array(INT32)


@slotted
class TopicInfo(Structure):
    topic_id: UUID | None = uuid()
    topic_name: str = string()


@slotted
class ShareGroupStatePartitionMetadataValue(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    initializing_topics: Sequence[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: Sequence[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: Sequence[TopicInfo] = array(TopicInfo)


VALUE_OF: dict[type[Key], type[Value]] = {
    ShareGroupMemberMetadataKey: ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey: ShareGroupMetadataValue,
    ShareGroupTargetAssignmentMetadataKey: ShareGroupTargetAssignmentMetadataValue,
    ShareGroupTargetAssignmentMemberKey: ShareGroupTargetAssignmentMemberValue,
    ShareGroupCurrentMemberAssignmentKey: ShareGroupCurrentMemberAssignmentValue,
    ShareGroupStatePartitionMetadataKey: ShareGroupStatePartitionMetadataValue,
}
