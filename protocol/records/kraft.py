"""Raft's own control records in the metadata log and its snapshots.

They are in control batches, each with a key `{int16 version, int16 type}`. The first field of every value is its version.
"""

from collections.abc import Sequence
from struct import Struct
from typing import ClassVar
from uuid import UUID

from protocol.schema import (
    MalformedRecord,
    Structure,
    Value,
    array,
    int16,
    int32,
    int64,
    nested,
    string,
    uint16,
    uuid,
)
from protocol.slotted import slotted

# The calls in these classes are `dataclasses.field` in disguise, which the linter does not recognise for every type.

LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION, KRAFT_VOTERS = range(2, 7)

_KEY = Struct(">hh")


@slotted
class QuorumVoter(Structure):
    voter_id: int = int32()
    voter_directory_id: UUID | None = uuid(since=1)


@slotted
class LeaderChangeMessage(Value):
    VERSIONS: ClassVar[range] = range(2)
    FLEXIBLE: ClassVar[int | None] = 0

    leader_id: int = int32()
    voters: Sequence[QuorumVoter] = array(QuorumVoter)
    granting_voters: Sequence[QuorumVoter] = array(QuorumVoter)


@slotted
class SnapshotHeaderRecord(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    last_contained_log_timestamp_ms: int = int64()


@slotted
class SnapshotFooterRecord(Value):
    FLEXIBLE: ClassVar[int | None] = 0


@slotted
class KRaftVersionRecord(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    kraft_version: int = int16()


@slotted
class VoterEndpoint(Structure):
    name: str = string()
    host: str = string()
    port: int = uint16()


@slotted
class KRaftVersionFeature(Structure):
    min_supported_version: int = int16()
    max_supported_version: int = int16()


@slotted
class Voter(Structure):
    voter_id: int = int32()
    voter_directory_id: UUID | None = uuid()
    endpoints: Sequence[VoterEndpoint] = array(VoterEndpoint)
    kraft_version_feature: KRaftVersionFeature = nested(KRaftVersionFeature)


@slotted
class VotersRecord(Value):
    FLEXIBLE: ClassVar[int | None] = 0

    voters: Sequence[Voter] = array(Voter)


@slotted(frozen=True)
class UnknownControlRecord:
    """A control record that is not Raft's, or of an unknown type. Readers skip it."""

    type: int
    value: bytes | None


_TYPES: dict[int, type[Value]] = {
    LEADER_CHANGE: LeaderChangeMessage,
    SNAPSHOT_HEADER: SnapshotHeaderRecord,
    SNAPSHOT_FOOTER: SnapshotFooterRecord,
    KRAFT_VERSION: KRaftVersionRecord,
    KRAFT_VOTERS: VotersRecord,
}
_TYPE_OF = {cls: kind for kind, cls in _TYPES.items()}


def encode_control_record(record: Value, version: int = 0) -> tuple[bytes, bytes]:
    """(key, value) of a control record."""
    return _KEY.pack(0, _TYPE_OF[type(record)]), record.encode(version)


def decode_control_record(key: bytes | None, value: bytes | None) -> Value | UnknownControlRecord:
    if key is None or len(key) < _KEY.size:
        raise MalformedRecord("the key of a control record is too short")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise MalformedRecord(f"a control record has the invalid version {version}")
    cls = _TYPES.get(kind)
    if cls is None or value is None:
        return UnknownControlRecord(kind, value)
    return cls.decode(value)
