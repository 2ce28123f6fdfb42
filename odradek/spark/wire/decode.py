"""Answers out of a broker's bytes. Another release, another broker or a proxy may have written them, so:

- tagged fields that are not known are skipped (KIP-482), in the answer and in its header, and error codes stay numbers;
- a length or a count is compared with the bytes that are left before anything is allocated for it;
- everything that does not parse is ``Malformed``, and only that.

kio's compiled reader does none of these (ADR 1).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

Read = Callable[[bytes, int], tuple[Any, int]]

_FIXED = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q"}
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_UUID_BYTES = 16
_VARINT_BYTES_MAX = 5


class Malformed(ValueError):
    """Bytes that are not the answer that they should be."""


def decode(read: Read, frame: bytes, position: int, *, header_tags: bool) -> Any:
    """The answer behind ``position``, by a reader of ``reader``. ``header_tags``: a tag section comes first (response
    header v1). What follows the answer is left alone, as Kafka's clients do."""
    try:
        if header_tags:
            position = _skip_tags(frame, position)
        answer, _ = read(frame, position)
    except (IndexError, struct.error):
        raise Malformed(f"it ends too early, after {len(frame)} bytes") from None
    return answer


def reader(shape: Any, flexible: bool) -> Read:
    """Reads a shape of ``answers.py`` in one version; ``flexible``: with compact lengths and tags (KIP-482)."""
    if isinstance(shape, dict):
        return _struct(shape, flexible)
    if isinstance(shape, list):
        return _array(reader(shape[0], flexible), flexible)
    if shape == "uuid":
        return _uuid
    if shape in _FIXED:
        return _fixed(_FIXED[shape])
    return _sized(shape, flexible)


def _struct(shape: Mapping[str, Any], flexible: bool) -> Read:
    fields = [(name, reader(field, flexible)) for name, field in shape.items()]

    def read(data: bytes, position: int) -> tuple[Any, int]:
        value = SimpleNamespace()
        for name, read_field in fields:
            try:
                field, position = read_field(data, position)
            except Malformed as error:
                raise Malformed(f"{name}: {error}") from None
            setattr(value, name, field)
        if flexible:
            position = _skip_tags(data, position)
        return value, position

    return read


def _array(read_item: Read, flexible: bool) -> Read:
    read_count = _compact_length if flexible else _int32

    def read(data: bytes, position: int) -> tuple[Any, int]:
        count, position = read_count(data, position)
        if count < 0:
            raise Malformed("it is null and must not be")
        # Every element takes a byte at least.
        if count > len(data) - position:
            raise Malformed(f"it claims {count} elements in {len(data) - position} bytes")
        items = []
        for _ in range(count):
            item, position = read_item(data, position)
            items.append(item)
        return items, position

    return read


def _sized(kind: str, flexible: bool) -> Read:
    nullable, kind = kind.startswith("?"), kind.removeprefix("?")
    read_length = _compact_length if flexible else _int16 if kind == "string" else _int32

    def read(data: bytes, position: int) -> tuple[Any, int]:
        length, position = read_length(data, position)
        if length < 0:
            if not nullable:
                raise Malformed("it is null and must not be")
            return None, position
        end = position + length
        if end > len(data):
            raise Malformed(f"it claims {length} bytes, and {len(data) - position} are left")
        raw = data[position:end]
        return raw.decode("utf-8", "replace") if kind == "string" else raw, end

    return read


def _fixed(code: str) -> Read:
    unpack, size = struct.Struct(f">{code}").unpack_from, struct.calcsize(f">{code}")

    def read(data: bytes, position: int) -> tuple[Any, int]:
        return unpack(data, position)[0], position + size

    return read


def _uuid(data: bytes, position: int) -> tuple[bytes, int]:
    """Its 16 bytes; of zeros where a broker has none."""
    end = position + _UUID_BYTES
    if end > len(data):
        raise Malformed(f"it claims {_UUID_BYTES} bytes, and {len(data) - position} are left")
    return data[position:end], end


def _int16(data: bytes, position: int) -> tuple[int, int]:
    return _INT16.unpack_from(data, position)[0], position + 2


def _int32(data: bytes, position: int) -> tuple[int, int]:
    return _INT32.unpack_from(data, position)[0], position + 4


def _compact_length(data: bytes, position: int) -> tuple[int, int]:
    """A length or count; -1 is null."""
    value, position = _unsigned_varint(data, position)
    return value - 1, position


def _unsigned_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index in range(_VARINT_BYTES_MAX):
        byte = data[position + index]
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value, position + index + 1
    raise Malformed(f"a varint has more than {_VARINT_BYTES_MAX} bytes")


def _skip_tags(data: bytes, position: int) -> int:
    count, position = _unsigned_varint(data, position)
    if count > len(data) - position:
        raise Malformed(f"it claims {count} tagged fields in {len(data) - position} bytes")
    for _ in range(count):
        _, position = _unsigned_varint(data, position)
        size, position = _unsigned_varint(data, position)
        position += size
        if position > len(data):
            raise Malformed(f"a tagged field claims {size} bytes, and fewer are left")
    return position
