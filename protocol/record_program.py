"""The field tables of records in the format of the compiled core, and its writers of coordinator records."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final

from .core import compiled
from .plans import Nested, Structure, TaggedNested, absent_of
from .program import KINDS
from .wire_types import Array, Bytes, Fixed, Uuid, WireType

RecordWriter = Callable[[Any, int | None], bytes]

_OF_CODES: Final = {
    "?": "bool",
    "b": "int8",
    "h": "int16",
    "i": "int32",
    "q": "int64",
    "H": "uint16",
    "d": "float64",
}


class _NotInTheCore(Exception):
    """A declaration of a record's fields that the compiled core does not support."""


def record_writer(
    record: type[Structure], version: int, flexible: bool, in_python: RecordWriter
) -> RecordWriter:
    """The compiled core's writer of ``record``; ``in_python`` if the core was not built or does not support ``record``."""
    if compiled is None:
        return in_python
    try:
        table = _table(record, version)
    except _NotInTheCore:
        return in_python
    program = compiled.Program(table, flexible=flexible, strict=True, fallback=in_python)
    return program.encode_record  # type: ignore[no-any-return]


def _table(structure: type[Any], version: int) -> tuple[Any, ...]:
    entries = []
    for declared in fields(structure):
        wire = declared.metadata["wire"]
        if wire.is_in(version):
            kind, is_array, nullable, nested = _kind(wire.type)
            tag = -1 if wire.tag is None else wire.tag
            default = absent_of(declared) or declared.default
            inner = None if nested is None else _table(nested, version)
            entries.append((declared.name, KINDS.index(kind), is_array, nullable, tag, default, inner))
    return (structure, structure, tuple(entries))


def _kind(wire_type: WireType) -> tuple[str, bool, bool, type[Structure] | None]:
    """(name of the wire type's kind, whether it is an array, whether it may be null, the class of its struct or None)."""
    match wire_type:
        case Array():
            word, is_array, nullable, nested = _kind(wire_type.item)
            if is_array or nullable:
                raise _NotInTheCore
            return word, True, wire_type.nullable, nested
        case Fixed():
            return _OF_CODES[wire_type.code], False, False, None
        case Uuid():
            return "uuid", False, False, None
        case Bytes():
            return "string" if wire_type.text else "bytes", False, wire_type.nullable, None
        case TaggedNested():
            return "tagged struct", False, wire_type.nullable, wire_type.structure
        case Nested():
            return "struct", False, wire_type.nullable, wire_type.structure
    raise _NotInTheCore
