"""A small codec for the versioned records in brokers' internal topics and files.

A record is a slotted dataclass. Each field is declared with its wire type, in wire order, with the versions that have it.
The encoder and the decoder of a version are composed from the declarations once, and cached:

    @slotted
    class OffsetCommitValue(Value):
        VERSIONS = range(5)
        FLEXIBLE = 4  # from this version on: compact lengths and tagged fields

        offset: int = int64()
        leader_epoch: int = int32(-1, since=3)
        topic_id: UUID | None = uuid(since=4, tag=0)

A field that a version lacks is not written, and has its default after reading. Tagged fields equal to their default are not
written, unknown tags are skipped. Invalid bytes raise `MalformedRecord`.
"""

from collections.abc import Sequence
from dataclasses import field
from struct import Struct
from struct import error as StructError
from typing import Any, ClassVar, Self, TypedDict, TypeVar, Unpack
from uuid import UUID

from .plans import (
    Nested as Nested,
)  # exported here, because the generators import them from the declarations' module
from .plans import Plan, TaggedNested, plan
from .plans import Structure as Structure
from .record_program import RecordWriter, record_writer
from .wire_types import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_BYTES,
    NULLABLE_STRING,
    STRING,
    UINT16,
    UUID_TYPE,
    Array,
    WireType,
    Write,
)

S = TypeVar("S", bound="Structure")

_INT16 = Struct(">h")


class MalformedRecord(ValueError):
    """Bytes that are not a valid record."""


class UnsupportedRecordVersion(MalformedRecord):
    """A record in a version that is newer than this software, or older than it supports."""


# Declarations. For a type checker they return the field's value, as `dataclasses.field` does.


class Wire:
    """Wire type, versions and tag of a field."""

    __slots__ = ("since", "tag", "type", "until")

    def __init__(self, wire_type: WireType, since: int, until: int | None, tag: int | None) -> None:
        self.type = wire_type
        self.since = since
        self.until = until
        self.tag = tag

    def is_in(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)


class Where(TypedDict, total=False):
    """Keyword arguments of a declaration: the versions that have the field, and its tag if it is a tagged field."""

    since: int
    until: int
    tag: int


def wire(wire_type: WireType, default: Any, where: Where) -> Any:
    """Declare a field of any wire type. The functions below declare fields of one wire type each, by calling `wire`."""
    declared = Wire(wire_type, where.get("since", 0), where.get("until"), where.get("tag"))
    if isinstance(wire_type, Nested) and not wire_type.nullable:
        return field(default_factory=wire_type.structure, metadata={"wire": declared})
    return field(default=default, metadata={"wire": declared})


def int8(default: int = 0, **where: Unpack[Where]) -> int:
    return wire(INT8, default, where)  # type: ignore[no-any-return]


def int16(default: int = 0, **where: Unpack[Where]) -> int:
    return wire(INT16, default, where)  # type: ignore[no-any-return]


def int32(default: int = 0, **where: Unpack[Where]) -> int:
    return wire(INT32, default, where)  # type: ignore[no-any-return]


def int64(default: int = 0, **where: Unpack[Where]) -> int:
    return wire(INT64, default, where)  # type: ignore[no-any-return]


def uint16(default: int = 0, **where: Unpack[Where]) -> int:
    return wire(UINT16, default, where)  # type: ignore[no-any-return]


def float64(default: float = 0.0, **where: Unpack[Where]) -> float:
    return wire(FLOAT64, default, where)  # type: ignore[no-any-return]


def boolean(default: bool = False, **where: Unpack[Where]) -> bool:
    return wire(BOOLEAN, default, where)  # type: ignore[no-any-return]


def string(default: str = "", **where: Unpack[Where]) -> str:
    return wire(STRING, default, where)  # type: ignore[no-any-return]


def nullable_string(default: str | None = None, **where: Unpack[Where]) -> str | None:
    return wire(NULLABLE_STRING, default, where)  # type: ignore[no-any-return]


def binary(default: bytes = b"", **where: Unpack[Where]) -> bytes:
    return wire(BYTES, default, where)  # type: ignore[no-any-return]


def nullable_binary(default: bytes | None = None, **where: Unpack[Where]) -> bytes | None:
    return wire(NULLABLE_BYTES, default, where)  # type: ignore[no-any-return]


def uuid(**where: Unpack[Where]) -> UUID | None:
    return wire(UUID_TYPE, None, where)  # type: ignore[no-any-return]


def array(item: WireType | type[Structure], **where: Unpack[Where]) -> Sequence[Any]:
    """Declare a field that is a sequence, empty by default."""
    return wire(Array(_wire_type(item)), (), where)  # type: ignore[no-any-return]


def nullable_array(
    item: WireType | type[Structure], default: tuple[()] | None = None, **where: Unpack[Where]
) -> Sequence[Any] | None:
    """Declare a field that is a sequence or None."""
    return wire(Array(_wire_type(item), nullable=True), default, where)  # type: ignore[no-any-return]


def nested(structure: type[S], **where: Unpack[Where]) -> S:
    return wire(Nested(structure), None, where)  # type: ignore[no-any-return]


def nullable_nested(structure: type[S], **where: Unpack[Where]) -> S | None:
    return wire(Nested(structure, nullable=True), None, where)  # type: ignore[no-any-return]


def tagged_nested(structure: type[S], tag: int) -> S | None:
    """Declare a nullable struct in a tagged field. A missing field is an empty struct, so null must be written."""
    return wire(TaggedNested(structure, nullable=True), None, {"tag": tag})  # type: ignore[no-any-return]


def _wire_type(item: WireType | type[Structure]) -> WireType:
    return item if isinstance(item, WireType) else Nested(item)


# Records


class VersionedRecord(Structure):
    """A structure with versions of its own. Its encoding has nothing in front of the fields."""

    __slots__ = ()

    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE: ClassVar[int | None] = None

    def encode_body(self, version: int) -> bytes:
        """Encode the record's fields without the version."""
        return _writer(type(self), version)(self, None)

    @classmethod
    def decode_body(cls, data: bytes, version: int, position: int = 0) -> tuple[Self, int]:
        """Decode the fields from `position` on; returns (record, position after them)."""
        if version not in cls.VERSIONS:
            raise UnsupportedRecordVersion(
                f"{cls.__name__} version {version} is not one of {cls.VERSIONS[0]}-{cls.VERSIONS[-1]}"
            )
        try:
            return cls.plan(version).read(data, position)
        except MalformedRecord:
            raise
        except (ValueError, IndexError, StructError) as error:
            raise MalformedRecord(f"{cls.__name__} version {version}: {error}") from None

    @classmethod
    def plan(cls, version: int) -> Plan:
        """The writer and reader, in Python, of one version of the record."""
        return plan(cls, version, cls._is_flexible(version))

    @classmethod
    def _is_flexible(cls, version: int) -> bool:
        return cls.FLEXIBLE is not None and version >= cls.FLEXIBLE


_WRITERS: dict[tuple[type[VersionedRecord], int], RecordWriter] = {}


def _writer(record: type[VersionedRecord], version: int) -> RecordWriter:
    """Return the writer of a class in one version. It writes a 16-bit prefix in front of the fields, unless the prefix is
    None.
    """
    writer = _WRITERS.get((record, version))
    if writer is None:
        if version not in record.VERSIONS:
            raise ValueError(f"{record.__name__} has no version {version}")
        in_python = python_writer(record, version)
        writer = record_writer(record, version, record._is_flexible(version), in_python)
        _WRITERS[record, version] = writer
    return writer


def python_writer(record: type[VersionedRecord], version: int) -> RecordWriter:
    write: Write | None = None

    def encode(written: VersionedRecord, prefix: int | None) -> bytes:
        nonlocal write
        if write is None:  # it stays None if a compiled core writes all records
            write = record.plan(version).write
        parts = [] if prefix is None else [_INT16.pack(prefix)]
        try:
            write(written, parts.append)
        except StructError as error:
            raise ValueError(f"{written!r} cannot be written as version {version}: {error}") from None
        return b"".join(parts)

    return encode


class Value(VersionedRecord):
    """A record preceded by its version: the value in an internal topic, the body of a control record."""

    __slots__ = ()

    def encode(self, version: int) -> bytes:
        return _writer(type(self), version)(self, version)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode a value. Bytes after the last field are ignored, as in Kafka."""
        return cls.decode_body(data, record_version(data), 2)[0]


class Key(VersionedRecord):
    """The key in an internal topic. It is preceded by the record's type, never flexible, and always of version 0."""

    __slots__ = ()

    TYPE: ClassVar[int]

    def encode(self) -> bytes:
        return _writer(type(self), 0)(self, self.TYPE)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        found = key_type(data)
        if found != cls.TYPE:
            raise MalformedRecord(f"a key of type {found} is not a {cls.__name__}")
        return cls.decode_body(data, 0, 2)[0]


def record_version(data: bytes) -> int:
    """The version in front of a value."""
    if len(data) < 2:
        raise MalformedRecord(f"{len(data)} bytes are too short for a version or a type")
    return _INT16.unpack_from(data)[0]  # type: ignore[no-any-return]


# A key has its type where a value has its version.
key_type = record_version
