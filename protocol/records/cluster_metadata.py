"""Records of `__cluster_metadata`: the state of the cluster, as the controller quorum writes it.

A record is preceded by three unsigned varints: the frame version (1), the record's type and its version
(`AbstractApiMessageSerde`). All are flexible. The field names and versions are those of Kafka 4.4. Deprecated
types are included, so that older logs can be read.
"""

from collections.abc import Sequence
from typing import ClassVar
from uuid import UUID

from protocol.schema import (
    MalformedRecord,
    Structure,
    VersionedRecord,
    array,
    binary,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    nullable_array,
    nullable_string,
    string,
    uint16,
    uuid,
)
from protocol.slotted import slotted
from protocol.varint import read_unsigned_varint, unsigned_varint
from protocol.wire_types import INT32, STRING, UUID_TYPE

# The calls in these classes are `dataclasses.field` in disguise, which the linter does not recognise for every type.

FRAME_VERSION = 1


class MetadataRecord(VersionedRecord):
    """A record of the metadata log."""

    __slots__ = ()

    FLEXIBLE: ClassVar[int | None] = 0
    TYPE: ClassVar[int]


@slotted(frozen=True)
class UnknownMetadataRecord:
    """A record of an unknown type. A loader skips it."""

    type: int
    version: int
    body: bytes


# Brokers


@slotted
class BrokerEndpoint(Structure):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


@slotted
class BrokerFeature(Structure):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@slotted
class RegisterBrokerRecord(MetadataRecord):
    TYPE: ClassVar[int] = 0
    VERSIONS: ClassVar[range] = range(5)

    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean(since=2)
    incarnation_id: UUID | None = uuid()
    broker_epoch: int = int64()
    endpoints: Sequence[BrokerEndpoint] = array(BrokerEndpoint)
    features: Sequence[BrokerFeature] = array(BrokerFeature)
    rack: str | None = nullable_string()
    fenced: bool = boolean(True)
    in_controlled_shutdown: bool = boolean(since=1)
    log_dirs: Sequence[UUID | None] = array(UUID_TYPE, since=3, tag=0)
    cordoned_log_dirs: Sequence[UUID | None] | None = nullable_array(UUID_TYPE, since=4, tag=1)


@slotted
class UnregisterBrokerRecord(MetadataRecord):
    TYPE: ClassVar[int] = 1

    broker_id: int = int32()
    broker_epoch: int = int64()


@slotted
class TopicRecord(MetadataRecord):
    TYPE: ClassVar[int] = 2

    name: str = string()
    topic_id: UUID | None = uuid()


@slotted
class PartitionRecord(MetadataRecord):
    TYPE: ClassVar[int] = 3
    VERSIONS: ClassVar[range] = range(3)

    partition_id: int = int32(-1)
    topic_id: UUID | None = uuid()
    replicas: Sequence[int] = array(INT32)
    isr: Sequence[int] = array(INT32)
    removing_replicas: Sequence[int] = array(INT32)
    adding_replicas: Sequence[int] = array(INT32)
    leader: int = int32(-1)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: int = int32(-1)
    partition_epoch: int = int32(-1)
    directories: Sequence[UUID | None] = array(UUID_TYPE, since=1)
    eligible_leader_replicas: Sequence[int] | None = nullable_array(INT32, since=2, tag=1)
    last_known_elr: Sequence[int] | None = nullable_array(INT32, since=2, tag=2)


@slotted
class ConfigRecord(MetadataRecord):
    TYPE: ClassVar[int] = 4

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = nullable_string()


@slotted
class PartitionChangeRecord(MetadataRecord):
    TYPE: ClassVar[int] = 5
    VERSIONS: ClassVar[range] = range(3)

    partition_id: int = int32(-1)
    topic_id: UUID | None = uuid()
    isr: Sequence[int] | None = nullable_array(INT32, tag=0)
    leader: int = int32(-2, tag=1)
    replicas: Sequence[int] | None = nullable_array(INT32, tag=2)
    removing_replicas: Sequence[int] | None = nullable_array(INT32, tag=3)
    adding_replicas: Sequence[int] | None = nullable_array(INT32, tag=4)
    leader_recovery_state: int = int8(-1, tag=5)
    directories: Sequence[UUID | None] | None = nullable_array(UUID_TYPE, since=1, tag=8)
    eligible_leader_replicas: Sequence[int] | None = nullable_array(INT32, since=2, tag=6)
    last_known_elr: Sequence[int] | None = nullable_array(INT32, since=2, tag=7)


@slotted
class FenceBrokerRecord(MetadataRecord):
    TYPE: ClassVar[int] = 7

    id: int = int32()
    epoch: int = int64()


@slotted
class UnfenceBrokerRecord(MetadataRecord):
    TYPE: ClassVar[int] = 8

    id: int = int32()
    epoch: int = int64()


@slotted
class RemoveTopicRecord(MetadataRecord):
    TYPE: ClassVar[int] = 9

    topic_id: UUID | None = uuid()


@slotted
class DelegationTokenRecord(MetadataRecord):
    TYPE: ClassVar[int] = 10

    owner: str = string()
    requester: str = string()
    renewers: Sequence[str] = array(STRING)
    issue_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    expiration_timestamp_ms: int = int64()
    token_id: str = string()


@slotted
class UserScramCredentialRecord(MetadataRecord):
    TYPE: ClassVar[int] = 11

    name: str = string()
    mechanism: int = int8()
    salt: bytes = binary()
    stored_key: bytes = binary()
    server_key: bytes = binary()
    iterations: int = int32()


@slotted
class FeatureLevelRecord(MetadataRecord):
    TYPE: ClassVar[int] = 12

    name: str = string()
    feature_level: int = int16()


@slotted
class EntityData(Structure):
    entity_type: str = string()
    entity_name: str | None = nullable_string()


@slotted
class ClientQuotaRecord(MetadataRecord):
    TYPE: ClassVar[int] = 14

    entity: Sequence[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@slotted
class ProducerIdsRecord(MetadataRecord):
    TYPE: ClassVar[int] = 15

    broker_id: int = int32()
    broker_epoch: int = int64(-1)
    next_producer_id: int = int64()


@slotted
class BrokerRegistrationChangeRecord(MetadataRecord):
    TYPE: ClassVar[int] = 17
    VERSIONS: ClassVar[range] = range(4)

    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0)
    in_controlled_shutdown: int = int8(since=1, tag=1)
    log_dirs: Sequence[UUID | None] = array(UUID_TYPE, since=2, tag=2)
    cordoned_log_dirs: Sequence[UUID | None] | None = nullable_array(UUID_TYPE, since=3, tag=3)


@slotted
class AccessControlEntryRecord(MetadataRecord):
    TYPE: ClassVar[int] = 18

    id: UUID | None = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@slotted
class RemoveAccessControlEntryRecord(MetadataRecord):
    TYPE: ClassVar[int] = 19

    id: UUID | None = uuid()


@slotted
class NoOpRecord(MetadataRecord):
    TYPE: ClassVar[int] = 20


@slotted
class ZkMigrationStateRecord(MetadataRecord):
    TYPE: ClassVar[int] = 21

    zk_migration_state: int = int8()


@slotted
class RemoveUserScramCredentialRecord(MetadataRecord):
    TYPE: ClassVar[int] = 22

    name: str = string()
    mechanism: int = int8()


@slotted
class BeginTransactionRecord(MetadataRecord):
    TYPE: ClassVar[int] = 23

    name: str | None = nullable_string(tag=0)


@slotted
class EndTransactionRecord(MetadataRecord):
    TYPE: ClassVar[int] = 24


@slotted
class AbortTransactionRecord(MetadataRecord):
    TYPE: ClassVar[int] = 25

    reason: str | None = nullable_string(tag=0)


@slotted
class RemoveDelegationTokenRecord(MetadataRecord):
    TYPE: ClassVar[int] = 26

    token_id: str = string()


@slotted
class ControllerEndpoint(Structure):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


@slotted
class ControllerFeature(Structure):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@slotted
class RegisterControllerRecord(MetadataRecord):
    TYPE: ClassVar[int] = 27

    controller_id: int = int32()
    incarnation_id: UUID | None = uuid()
    zk_migration_ready: bool = boolean()
    endpoints: Sequence[ControllerEndpoint] = array(ControllerEndpoint)
    features: Sequence[ControllerFeature] = array(ControllerFeature)


@slotted
class ClearElrRecord(MetadataRecord):
    TYPE: ClassVar[int] = 28

    topic_name: str = string()


@slotted
class UnregisterControllerRecord(MetadataRecord):
    TYPE: ClassVar[int] = 29

    controller_id: int = int32()


_RECORDS: tuple[type[MetadataRecord], ...] = (
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    TopicRecord,
    PartitionRecord,
    ConfigRecord,
    PartitionChangeRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
    RemoveTopicRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
    FeatureLevelRecord,
    ClientQuotaRecord,
    ProducerIdsRecord,
    BrokerRegistrationChangeRecord,
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    NoOpRecord,
    ZkMigrationStateRecord,
    RemoveUserScramCredentialRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    AbortTransactionRecord,
    RemoveDelegationTokenRecord,
    RegisterControllerRecord,
    ClearElrRecord,
    UnregisterControllerRecord,
)
_RECORD_OF_TYPE = {record.TYPE: record for record in _RECORDS}


def encode_metadata_record(record: MetadataRecord, version: int | None = None) -> bytes:
    """Encode a record of the metadata log, by default in its newest version."""
    chosen = record.VERSIONS[-1] if version is None else version
    frame = unsigned_varint(FRAME_VERSION) + unsigned_varint(record.TYPE) + unsigned_varint(chosen)
    return frame + record.encode_body(chosen)


def decode_metadata_record(data: bytes) -> MetadataRecord | UnknownMetadataRecord:
    """Decode a record. Raises `UnsupportedRecordVersion` for a known type in an unknown version."""
    try:
        frame_version, position = read_unsigned_varint(data, 0)
        kind, position = read_unsigned_varint(data, position)
        version, position = read_unsigned_varint(data, position)
    except (IndexError, ValueError) as error:
        raise MalformedRecord(f"the frame of a metadata record is invalid: {error}") from None
    if frame_version != FRAME_VERSION:
        raise MalformedRecord(
            f"unknown frame version {frame_version}; only frame version {FRAME_VERSION} can be read"
        )
    cls = _RECORD_OF_TYPE.get(kind)
    if cls is None:
        return UnknownMetadataRecord(kind, version, data[position:])
    record, end = cls.decode_body(data, version, position)
    if end != len(data):
        raise MalformedRecord(f"{len(data) - end} bytes follow a {cls.__name__}")
    return record
