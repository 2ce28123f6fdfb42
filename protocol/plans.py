"""Plans: functions that write and read a structure of `protocol/schema.py` in one version.

A plan is composed from the declarations of the structure's fields at its first use, and cached.
"""

from collections.abc import Callable
from dataclasses import Field, fields
from itertools import groupby
from operator import attrgetter
from struct import Struct
from typing import Any

from .varint import read_unsigned_varint, unsigned_varint
from .wire_types import TAGS_MAX, Fixed, Push, Read, WireType, Write


class Structure:
    """Base class of records and of the structs inside records."""

    __slots__ = ()


class Nested(WireType):
    """A struct inside a record. A nullable struct is preceded by a byte: -1 for null, else 1."""

    __slots__ = ("nullable", "structure")

    def __init__(self, structure: type[Structure], *, nullable: bool = False) -> None:
        self.structure = structure
        self.nullable = nullable

    def writer(self, version: int, flexible: bool) -> Write:
        write_plain = plan(self.structure, version, flexible).write
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
        read_plain = plan(self.structure, version, flexible).read
        if not self.nullable:
            return read_plain

        def read(data: bytes, position: int) -> tuple[Any, int]:
            if data[position] >= 0x80:
                return None, position + 1
            return read_plain(data, position + 1)

        return read


class TaggedNested(Nested):
    """A nullable struct as the value of a tagged field: 0 for null, else 1 and the struct."""

    __slots__ = ()

    def writer(self, version: int, flexible: bool) -> Write:
        write_plain = plan(self.structure, version, flexible).write

        def write(value: Any, push: Push) -> None:
            push(b"\0" if value is None else b"\x01")
            if value is not None:
                write_plain(value, push)

        return write

    def reader(self, version: int, flexible: bool) -> Read:
        read_plain = plan(self.structure, version, flexible).read

        def read(data: bytes, position: int) -> tuple[Any, int]:
            marker, position = read_unsigned_varint(data, position)
            return (None, position) if marker == 0 else read_plain(data, position)

        return read


# Plans: writing and reading a structure in one version


class Plan:
    """The writer and the reader of one structure in one version."""

    __slots__ = ("read", "write")

    def __init__(self, write: Write, read: Read) -> None:
        self.write = write
        self.read = read


ReadInto = Callable[[bytes, int, dict[str, Any]], int]


_PLANS: dict[tuple[type[Structure], int, bool], Plan] = {}


def plan(structure: type[Structure], version: int, flexible: bool) -> Plan:
    key = (structure, version, flexible)
    made = _PLANS.get(key)
    if made is None:
        made = _PLANS[key] = _make_plan(structure, version, flexible)
    return made


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
        writes.append(_tags_writer([_tag_writer(f, version) for f in sorted(tagged, key=tag_of)]))
        tag_readers = {tag_of(f): (f.name, f.metadata["wire"].type.reader(version, True)) for f in tagged}
        reads.append(
            _tags_reader(tag_readers, {f.name: default for f in tagged if (default := absent_of(f))})
        )
    return Plan(_all_writer(tuple(writes)), _all_reader(structure, tuple(reads)))


def _all_writer(writes: tuple[Write, ...]) -> Write:
    def write(structure: Any, push: Push) -> None:
        for each in writes:
            each(structure, push)

    return write


def _all_reader(structure: type[Structure], reads: tuple[ReadInto, ...]) -> Read:
    def read(data: bytes, position: int) -> tuple[Any, int]:
        values: dict[str, Any] = {}
        for each in reads:
            position = each(data, position, values)
        return structure(**values), position

    return read


def _run_writer(run: list[tuple[str, Any]]) -> Write:
    """A writer for consecutive fields of fixed size, by one `pack`."""
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


def tag_of(declared: "Field[Any]") -> int:
    return declared.metadata["wire"].tag  # type: ignore[no-any-return]


def absent_of(declared: "Field[Any]") -> Structure | None:
    """Value of a tagged field that is missing in the bytes, if it is not the Python field's default; else None.

    This is an empty struct, for fields of type `TaggedNested`.
    """
    wire_type = declared.metadata["wire"].type
    return wire_type.structure() if isinstance(wire_type, TaggedNested) else None


def _tag_writer(declared: "Field[Any]", version: int) -> TagWriter:
    """A writer that returns tag, size and value of a field, or nothing if the value equals the default."""
    write_value = declared.metadata["wire"].type.writer(version, True)
    tag = unsigned_varint(tag_of(declared))
    default = absent_of(declared) or declared.default
    get = attrgetter(declared.name)

    def encode(structure: Any) -> bytes:
        value = get(structure)
        # A list may be an empty array like a tuple. None is not an empty array.
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


def _tags_reader(readers: dict[int, tuple[str, Read]], absent: dict[str, Structure]) -> ReadInto:
    def read(data: bytes, position: int, values: dict[str, Any]) -> int:
        values.update(absent)
        count, position = read_unsigned_varint(data, position)
        if count > TAGS_MAX:
            raise ValueError(f"a struct has more than {TAGS_MAX} tagged fields")
        for _ in range(count):
            tag, position = read_unsigned_varint(data, position)
            size, position = read_unsigned_varint(data, position)
            end = position + size
            if end > len(data):
                raise ValueError(f"a tagged field of {size} bytes does not fit into the rest of the message")
            if tag in readers:
                name, read_value = readers[tag]
                values[name], position = read_value(data, position)
                if position != end:
                    raise ValueError(f"the value of tagged field {tag} does not end after {size} bytes")
            position = end
        return position

    return read
