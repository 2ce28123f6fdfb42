"""Records of `__share_group_state` (KIP-932): the states of share partitions. Each value has one version, which is flexible.

A tombstone with the key of a snapshot deletes the state of its share partition.
"""

from collections.abc import Sequence
from typing import ClassVar
from uuid import UUID

from protocol.schema import (
    Key,
    Structure,
    Value,
    array,
    int8,
    int16,
    int32,
    int64,
    key_type,
    string,
    uuid,
)
from protocol.slotted import slotted


@slotted
class ShareSnapshotKey(Key):
    TYPE: ClassVar[int] = 0

    group_id: str = string()
    topic_id: UUID | None = uuid()
    partition: int = int32()


@slotted
class StateBatch(Structure):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


@slotted
class ShareSnapshotValue(Value):
    """The whole state of a share partition."""

    FLEXIBLE: ClassVar[int | None] = 0

    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(-1, tag=0)
    create_timestamp_ms: int = int64()
    write_timestamp_ms: int = int64()
    state_batches: Sequence[StateBatch] = array(StateBatch)


@slotted
class ShareUpdateKey(Key):
    TYPE: ClassVar[int] = 1

    group_id: str = string()
    topic_id: UUID | None = uuid()
    partition: int = int32()


@slotted
class ShareUpdateValue(Value):
    """A change since the last snapshot of a share partition."""

    FLEXIBLE: ClassVar[int | None] = 0

    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(-1, tag=0)
    state_batches: Sequence[StateBatch] = array(StateBatch)


VALUE_OF: dict[type[Key], type[Value]] = {
    ShareSnapshotKey: ShareSnapshotValue,
    ShareUpdateKey: ShareUpdateValue,
}
_KEY_OF_TYPE = {key.TYPE: key for key in VALUE_OF}


def decode_record(key: bytes, value: bytes | None) -> tuple[Key, Value | None] | None:
    """Decode a record; None for an unknown type. A value of None is a tombstone. Raises MalformedRecord."""
    of_type = _KEY_OF_TYPE.get(key_type(key))
    if of_type is None:
        return None
    return of_type.decode(key), None if value is None else VALUE_OF[of_type].decode(value)
