"""Records of streams groups in `__consumer_offsets` (KIP-1071): members, their tasks, the topology.

The broker's loader skips them, as it has no streams groups. Tools that read files decode them. Each value has one version,
which is flexible.
"""

from collections.abc import Sequence
from typing import ClassVar

from protocol.schema import (
    Key,
    Structure,
    Value,
    array,
    int8,
    int16,
    int32,
    int64,
    nullable_array,
    nullable_nested,
    nullable_string,
    string,
    uint16,
)
from protocol.slotted import slotted
from protocol.wire_types import INT16, INT32, STRING


@slotted
class KeyValue(Structure):
    key: str = string()
    value: str = string()


@slotted
class StreamsGroupMetadataKey(Key):
    TYPE: ClassVar[int] = 17

    group_id: str = string()


@slotted
class StreamsGroupMetadataValue(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = int32(-1, tag=0)
    last_assignment_configs: Sequence[KeyValue] | None = nullable_array(KeyValue, (), tag=1)
    stored_description_topology_epoch: int = int32(-1, tag=2)
    failed_description_topology_epoch: int = int32(-1, tag=3)


@slotted
class StreamsGroupMemberMetadataKey(Key):
    TYPE: ClassVar[int] = 19

    group_id: str = string()
    member_id: str = string()


@slotted
class Endpoint(Structure):
    """The address for interactive queries to the member."""

    host: str = string()
    port: int = uint16()


@slotted
class StreamsGroupMemberMetadataValue(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    instance_id: str | None = nullable_string()
    rack_id: str | None = nullable_string()
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = nullable_nested(Endpoint)
    client_tags: Sequence[KeyValue] = array(KeyValue)


@slotted
class StreamsGroupTargetAssignmentMetadataKey(Key):
    TYPE: ClassVar[int] = 20

    group_id: str = string()


@slotted
class StreamsGroupTargetAssignmentMetadataValue(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    assignment_epoch: int = int32()
    assignment_timestamp_ms: int = int64(tag=0)


@slotted
class StreamsGroupTargetAssignmentMemberKey(Key):
    TYPE: ClassVar[int] = 21

    group_id: str = string()
    member_id: str = string()


@slotted
class TaskIds(Structure):
    subtopology_id: str = string()
    partitions: Sequence[int] = array(INT32)


@slotted
class StreamsGroupTargetAssignmentMemberValue(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    active_tasks: Sequence[TaskIds] = array(TaskIds)
    standby_tasks: Sequence[TaskIds] = array(TaskIds)
    warmup_tasks: Sequence[TaskIds] = array(TaskIds)


@slotted
class StreamsGroupCurrentMemberAssignmentKey(Key):
    TYPE: ClassVar[int] = 22

    group_id: str = string()
    member_id: str = string()


@slotted
class CurrentTaskIds(Structure):
    subtopology_id: str = string()
    partitions: Sequence[int] = array(INT32)
    assignment_epochs: Sequence[int] | None = nullable_array(INT32, (), tag=0)


@slotted
class StreamsGroupCurrentMemberAssignmentValue(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: Sequence[CurrentTaskIds] = array(CurrentTaskIds)
    standby_tasks: Sequence[CurrentTaskIds] = array(CurrentTaskIds)
    warmup_tasks: Sequence[CurrentTaskIds] = array(CurrentTaskIds)
    active_tasks_pending_revocation: Sequence[CurrentTaskIds] = array(CurrentTaskIds)
    standby_tasks_pending_revocation: Sequence[CurrentTaskIds] = array(CurrentTaskIds)
    warmup_tasks_pending_revocation: Sequence[CurrentTaskIds] = array(CurrentTaskIds)


@slotted
class StreamsGroupTopologyKey(Key):
    TYPE: ClassVar[int] = 23

    group_id: str = string()


@slotted
class TopologyTopic(Structure):
    """An internal topic of the group: a changelog or repartition topic."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: Sequence[KeyValue] = array(KeyValue)


@slotted
class CopartitionGroup(Structure):
    """Topics that must be copartitioned, as indexes into the lists of the same name in `Subtopology`."""

    source_topics: Sequence[int] = array(INT16)
    source_topic_regex: Sequence[int] = array(INT16)
    repartition_source_topics: Sequence[int] = array(INT16)


@slotted
class Subtopology(Structure):
    subtopology_id: str = string()
    source_topics: Sequence[str] = array(STRING)
    source_topic_regex: Sequence[str] = array(STRING)
    state_changelog_topics: Sequence[TopologyTopic] = array(TopologyTopic)
    repartition_sink_topics: Sequence[str] = array(STRING)
    repartition_source_topics: Sequence[TopologyTopic] = array(TopologyTopic)
    copartition_groups: Sequence[CopartitionGroup] = array(CopartitionGroup)


@slotted
class StreamsGroupTopologyValue(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    epoch: int = int32()
    subtopologies: Sequence[Subtopology] = array(Subtopology)


VALUE_OF: dict[type[Key], type[Value]] = {
    StreamsGroupMetadataKey: StreamsGroupMetadataValue,
    StreamsGroupMemberMetadataKey: StreamsGroupMemberMetadataValue,
    StreamsGroupTargetAssignmentMetadataKey: StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTargetAssignmentMemberKey: StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupCurrentMemberAssignmentKey: StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupTopologyKey: StreamsGroupTopologyValue,
}
