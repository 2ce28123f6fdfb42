"""Messages that consumers of a classic group exchange: subscriptions sent to the group's leader, assignments sent by it.

For the broker these messages are opaque bytes; groups of other protocol types use other formats. As in Kafka's
`ConsumerProtocol`, a newer version is read as the newest known one.
"""

from collections.abc import Sequence
from typing import ClassVar, Self

from protocol.schema import (
    MalformedRecord,
    Structure,
    Value,
    array,
    int32,
    nullable_binary,
    nullable_string,
    record_version,
    string,
)
from protocol.slotted import slotted
from protocol.wire_types import INT32, STRING


@slotted
class TopicPartitions(Structure):
    topic: str = string()
    partitions: Sequence[int] = array(INT32)


class _Message(Value):
    """Base of subscription and assignment. A newer version only appends fields, so it is read like the newest known one."""

    __slots__ = ()

    VERSIONS: ClassVar[range] = range(4)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        version = record_version(data)
        if version < 0:
            raise MalformedRecord(f"{cls.__name__} has the invalid version {version}")
        return cls.decode_body(data, min(version, cls.VERSIONS[-1]), 2)[0]


@slotted
class Subscription(_Message):
    topics: Sequence[str] = array(STRING)
    user_data: bytes | None = nullable_binary()
    owned_partitions: Sequence[TopicPartitions] = array(TopicPartitions, since=1)
    generation_id: int = int32(-1, since=2)
    rack_id: str | None = nullable_string(since=3)


@slotted
class Assignment(_Message):
    assigned_partitions: Sequence[TopicPartitions] = array(TopicPartitions)
    user_data: bytes | None = nullable_binary()
