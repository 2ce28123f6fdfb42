"""A small codec for the versioned records that brokers keep in internal topics and files.

A record is a slotted dataclass. Each field is declared with its wire type, in wire order, with the versions
that have it; the encoder and decoder of a version are put together from that once and kept:

    @slotted
    class OffsetCommitValue(Value):
        VERSIONS = range(5)
        FLEXIBLE = 4  # from this version on: compact lengths and tagged fields

        offset: int = int64()
        leader_epoch: int = int32(-1, since=3)
        topic_id: UUID | None = uuid(since=4, tag=0)

A field that a version lacks is not written and reads as its default. Tagged fields equal to their default are
not written, unknown tags are skipped. All that is wrong with bytes is a `MalformedRecord`.
"""

from collections.abc import Callable, Sequence
from dataclasses import Field, field, fields
from itertools import groupby
from operator import attrgetter
from struct import Struct
from struct import error as StructError
from typing import Any, ClassVar, Self, TypedDict, TypeVar, Unpack
from uuid import UUID

from protocol.varint import read_unsigned_varint, unsigned_varint
from protocol.wire_types import (
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
    Fixed,
    Push,
    Read,
    WireType,
    Write,
)

S = TypeVar("S", bound="Structure")

_INT16 = Struct(">h")


class MalformedRecord(ValueError):
    """Bytes that are not the record they should be."""


class UnsupportedRecordVersion(MalformedRecord):
    """A record in a version that is newer than this software, or older than it reads."""


# Declarations. To a type checker these return the field's value, as `dataclasses.field` does.


class Wire:
    """Where and how a field is written."""

    __slots__ = ("since", "tag", "type", "until")

    def __init__(self, wire_type: WireType, since: int, until: int | None, tag: int | None) -> None:
        self.type = wire_type
        self.since = since
        self.until = until
        self.tag = tag

    def is_in(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)


class Where(TypedDict, total=False):
    """The versions that have a field; with a tag, it is a tagged field."""

    since: int
    until: int
    tag: int


def wire(wire_type: WireType, default: Any, where: Where) -> Any:
    """A field of any wire type. The functions below are its typed forms."""
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


def array(item: "WireType | type[Structure]", **where: Unpack[Where]) -> Sequence[Any]:
    """A sequence, empty by default."""
    return wire(Array(_wire_type(item)), (), where)  # type: ignore[no-any-return]


def nullable_array(
    item: "WireType | type[Structure]", default: tuple[()] | None = None, **where: Unpack[Where]
) -> Sequence[Any] | None:
    """A sequence or None."""
    return wire(Array(_wire_type(item), nullable=True), default, where)  # type: ignore[no-any-return]


def nested(structure: type[S], **where: Unpack[Where]) -> S:
    return wire(Nested(structure), None, where)  # type: ignore[no-any-return]


def nullable_nested(structure: type[S], **where: Unpack[Where]) -> S | None:
    return wire(Nested(structure, nullable=True), None, where)  # type: ignore[no-any-return]


def tagged_nested(structure: type[S], tag: int) -> S | None:
    """A nullable struct in a tagged field whose default on the wire is an empty struct: Kafka writes its null."""
    return wire(TaggedNested(structure, nullable=True), None, {"tag": tag})  # type: ignore[no-any-return]


def _wire_type(item: "WireType | type[Structure]") -> WireType:
    return item if isinstance(item, WireType) else Nested(item)


class Nested(WireType):
    """A struct inside a record. A nullable one has a byte in front: -1 for null, else 1."""

    __slots__ = ("nullable", "structure")

    def __init__(self, structure: "type[Structure]", *, nullable: bool = False) -> None:
        self.structure = structure
        self.nullable = nullable

    def writer(self, version: int, flexible: bool) -> Write:
        write_plain = _plan(self.structure, version, flexible).write
        if not self.nullable:
            return write_plain

        def write(value: Any, push: Push) -> None:
            if value is None:
                push(b"\xff")
            else:
                push(b"\x01")
                write_plain(value, push)

        return write

    def reader(self, version: int, flexible: bool) -> Read:
        read_plain = _plan(self.structure, version, flexible).read
        if not self.nullable:
            return read_plain

        def read(data: bytes, position: int) -> tuple[Any, int]:
            if data[position] >= 0x80:
                return None, position + 1
            return read_plain(data, position + 1)

        return read


class TaggedNested(Nested):
    """The value of a nullable struct in a tagged field: 0 for null, else 1 and the struct."""

    __slots__ = ()

    def writer(self, version: int, flexible: bool) -> Write:
        write_plain = _plan(self.structure, version, flexible).write

        def write(value: Any, push: Push) -> None:
            push(b"\0" if value is None else b"\x01")
            if value is not None:
                write_plain(value, push)

        return write

    def reader(self, version: int, flexible: bool) -> Read:
        read_plain = _plan(self.structure, version, flexible).read

        def read(data: bytes, position: int) -> tuple[Any, int]:
            marker, position = read_unsigned_varint(data, position)
            return (None, position) if marker == 0 else read_plain(data, position)

        return read


# Plans: how a structure is written and read in one version


class Plan:
    """The writer and the reader of one structure in one version."""

    __slots__ = ("read", "write")

    def __init__(self, write: Write, read: Read) -> None:
        self.write = write
        self.read = read


ReadInto = Callable[[bytes, int, dict[str, Any]], int]


_PLANS: "dict[tuple[type[Structure], int, bool], Plan]" = {}


def _plan(structure: "type[Structure]", version: int, flexible: bool) -> Plan:
    key = (structure, version, flexible)
    plan = _PLANS.get(key)
    if plan is None:
        plan = _PLANS[key] = _make_plan(structure, version, flexible)
    return plan


def _make_plan(structure: type[Any], version: int, flexible: bool) -> Plan:
    present = [f for f in fields(structure) if f.metadata["wire"].is_in(version)]
    untagged = [(f.name, f.metadata["wire"].type) for f in present if f.metadata["wire"].tag is None]
    tagged = [f for f in present if f.metadata["wire"].tag is not None]
    writes: list[Write] = []
    reads: list[ReadInto] = []
    for is_fixed, group in groupby(untagged, key=lambda each: isinstance(each[1], Fixed)):
        if is_fixed:
            run = list(group)
            writes.append(_run_writer(run))
            reads.append(_run_reader(run))
        else:
            for name, wire_type in group:
                writes.append(_field_writer(name, wire_type.writer(version, flexible)))
                reads.append(_field_reader(name, wire_type.reader(version, flexible)))
    if flexible:
        writes.append(_tags_writer([_tag_writer(f, version) for f in sorted(tagged, key=_tag_of)]))
        tag_readers = {_tag_of(f): (f.name, f.metadata["wire"].type.reader(version, True)) for f in tagged}
        reads.append(_tags_reader(tag_readers, {f.name: default for f in tagged if (default := _absent(f))}))
    return Plan(_all_writer(tuple(writes)), _all_reader(structure, tuple(reads)))


def _all_writer(writes: tuple[Write, ...]) -> Write:
    def write(structure: Any, push: Push) -> None:
        for each in writes:
            each(structure, push)

    return write


def _all_reader(structure: "type[Structure]", reads: tuple[ReadInto, ...]) -> Read:
    def read(data: bytes, position: int) -> tuple[Any, int]:
        values: dict[str, Any] = {}
        for each in reads:
            position = each(data, position, values)
        return structure(**values), position

    return read


def _run_writer(run: list[tuple[str, Any]]) -> Write:
    """Neighbours of fixed size are one `pack`."""
    pack_run = Struct(">" + "".join(wire_type.code for _, wire_type in run)).pack
    get = attrgetter(*(name for name, _ in run))
    if len(run) == 1:
        return lambda structure, push: push(pack_run(get(structure)))
    return lambda structure, push: push(pack_run(*get(structure)))


def _run_reader(run: list[tuple[str, Any]]) -> ReadInto:
    struct = Struct(">" + "".join(wire_type.code for _, wire_type in run))
    names = tuple(name for name, _ in run)

    def read(data: bytes, position: int, values: dict[str, Any]) -> int:
        values.update(zip(names, struct.unpack_from(data, position), strict=True))
        return position + struct.size

    return read


def _field_writer(name: str, write_value: Write) -> Write:
    get = attrgetter(name)
    return lambda structure, push: write_value(get(structure), push)


def _field_reader(name: str, read_value: Read) -> ReadInto:
    def read(data: bytes, position: int, values: dict[str, Any]) -> int:
        values[name], position = read_value(data, position)
        return position

    return read


# Tagged fields


TagWriter = Callable[[Any], bytes]


def _tag_of(declared: "Field[Any]") -> int:
    return declared.metadata["wire"].tag  # type: ignore[no-any-return]


def _absent(declared: "Field[Any]") -> "Structure | None":
    """What a missing tagged field stands for, where that is not the default of the Python field."""
    wire_type = declared.metadata["wire"].type
    return wire_type.structure() if isinstance(wire_type, TaggedNested) else None


def _tag_writer(declared: "Field[Any]", version: int) -> TagWriter:
    """Gives the tag, size and value, or nothing for a value that equals the default."""
    write_value = declared.metadata["wire"].type.writer(version, True)
    tag = unsigned_varint(_tag_of(declared))
    default = _absent(declared) or declared.default
    get = attrgetter(declared.name)

    def encode(structure: Any) -> bytes:
        value = get(structure)
        # A list is an empty array as well as a tuple is; None is not.
        if value == default or (default == () and value == []):
            return b""
        parts: list[bytes] = []
        write_value(value, parts.append)
        body = b"".join(parts)
        return tag + unsigned_varint(len(body)) + body

    return encode


def _tags_writer(encoders: list[TagWriter]) -> Write:
    if not encoders:
        return lambda structure, push: push(b"\0")

    def write(structure: Any, push: Push) -> None:
        present = [encoded for encode in encoders if (encoded := encode(structure))]
        push(unsigned_varint(len(present)))
        for encoded in present:
            push(encoded)

    return write


def _tags_reader(readers: dict[int, tuple[str, Read]], absent: "dict[str, Structure]") -> ReadInto:
    def read(data: bytes, position: int, values: dict[str, Any]) -> int:
        values.update(absent)
        count, position = read_unsigned_varint(data, position)
        for _ in range(count):
            tag, position = read_unsigned_varint(data, position)
            size, position = read_unsigned_varint(data, position)
            end = position + size
            if end > len(data):
                raise ValueError(f"a tagged field of {size} bytes cannot follow")
            if tag in readers:
                name, read_value = readers[tag]
                values[name], position = read_value(data, position)
                if position != end:
                    raise ValueError(f"tagged field {tag} does not have {size} bytes")
            position = end
        return position

    return read


# Records


class Structure:
    """A part of a record."""

    __slots__ = ()


class VersionedRecord(Structure):
    """A structure with versions of its own and nothing in front."""

    __slots__ = ()

    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE: ClassVar[int | None] = None

    def encode_body(self, version: int) -> bytes:
        """The fields alone."""
        parts: list[bytes] = []
        self._write(version, parts.append)
        return b"".join(parts)

    @classmethod
    def decode_body(cls, data: bytes, version: int, position: int = 0) -> tuple[Self, int]:
        """The fields from `position` on, and the position after them."""
        if version not in cls.VERSIONS:
            raise UnsupportedRecordVersion(
                f"{cls.__name__} version {version} is not one of {cls.VERSIONS[0]}-{cls.VERSIONS[-1]}"
            )
        try:
            return cls._plan(version).read(data, position)
        except MalformedRecord:
            raise
        except (ValueError, IndexError, StructError) as error:
            raise MalformedRecord(f"{cls.__name__} version {version}: {error}") from None

    def _write(self, version: int, push: Push) -> None:
        if version not in self.VERSIONS:
            raise ValueError(f"{type(self).__name__} has no version {version}")
        try:
            self._plan(version).write(self, push)
        except StructError as error:
            raise ValueError(f"{self!r} cannot be written as version {version}: {error}") from None

    @classmethod
    def _plan(cls, version: int) -> Plan:
        return _plan(cls, version, cls.FLEXIBLE is not None and version >= cls.FLEXIBLE)


class Value(VersionedRecord):
    """A record behind its version: the value of an internal topic, the body of a control record."""

    __slots__ = ()

    def encode(self, version: int) -> bytes:
        parts = [_INT16.pack(version)]
        self._write(version, parts.append)
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """What follows the last field is left alone, as Kafka does."""
        return cls.decode_body(data, record_version(data), 2)[0]


class Key(VersionedRecord):
    """The key of an internal topic: behind the type of the record, never flexible, always version 0."""

    __slots__ = ()

    TYPE: ClassVar[int]

    def encode(self) -> bytes:
        parts = [_INT16.pack(self.TYPE)]
        self._write(0, parts.append)
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        found = key_type(data)
        if found != cls.TYPE:
            raise MalformedRecord(f"a key of type {found} is not a {cls.__name__}")
        return cls.decode_body(data, 0, 2)[0]


def record_version(data: bytes) -> int:
    """The version in front of a value."""
    if len(data) < 2:
        raise MalformedRecord(f"{len(data)} bytes have no room for a version or a type")
    return _INT16.unpack_from(data)[0]  # type: ignore[no-any-return]


# The type in front of a key stands where a value has its version.
key_type = record_version
