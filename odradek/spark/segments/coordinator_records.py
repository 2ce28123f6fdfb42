"""Decode the records of ``__transaction_state`` and ``__consumer_offsets``: every key and value of Apache Kafka 4.4.0.

One small reader follows the tables of fields in `coordinator_tables.py`. A key begins with its type, a value with its
version (both int16). From the version ``flexible`` on, lengths are unsigned varints, and tagged fields follow each
structure. The module shares no code with the broker's own reader, which it checks.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from struct import Struct, error
from typing import Any, NamedTuple

from odradek.spark.segments.coordinator_schema import Field, RecordSchema
from odradek.spark.segments.coordinator_tables import TOPICS


class Malformed(ValueError):
    """Bytes that are not a key or value of the topic, or that have an unknown version."""


_KEYS_KEPT = 1 << 14


class Decoded(NamedTuple):
    """A decoded record: its kind, the fields of its key, and the version and fields of its value (None for a tombstone).

    The key's fields are shared between records, so do not modify them.
    """

    kind: str
    key: dict[str, Any]
    version: int | None
    value: dict[str, Any] | None


def decode(topic: str, key: bytes | None, value: bytes | None) -> Decoded:
    """Decode one record of ``topic``. Raises ``Malformed`` if Kafka 4.4.0 writes no such record."""
    if key is None:
        raise Malformed("the record has no key")
    record, fields = _key(topic, key)
    if value is None:
        return Decoded(record.kind, fields, None, None)
    reader = _Reader(value)
    with _plainly_said():
        version = reader.number("int16")
        if not 0 <= version <= record.value.highest:
            raise Malformed(f"version {version} of the value of {record.kind} is unknown")
        found = reader.structure(record.value.fields, version, version >= record.value.flexible)
    return Decoded(record.kind, fields, version, found)


@lru_cache(maxsize=_KEYS_KEPT)
def _key(topic: str, key: bytes) -> tuple[RecordSchema, dict[str, Any]]:
    """Decode a key. Few different keys occur, and they occur often, so each key is decoded once and cached."""
    reader = _Reader(key)
    with _plainly_said():
        kind = reader.number("int16")
        record = TOPICS[topic].get(kind)
        if record is None:
            raise Malformed(f"a key of type {kind} is unknown")
        return record, reader.structure(record.key, 0, False)


@contextmanager
def _plainly_said() -> Iterator[None]:
    try:
        yield
    except (error, IndexError):
        raise Malformed("the record ends early") from None
    except UnicodeDecodeError:
        raise Malformed("a string is not UTF-8") from None


_NUMBERS = {
    "int8": Struct(">b"),
    "int16": Struct(">h"),
    "uint16": Struct(">H"),
    "int32": Struct(">i"),
    "int64": Struct(">q"),
}


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, kind: str) -> int:
        packed = _NUMBERS[kind]
        (found,) = packed.unpack_from(self._data, self._at)
        self._at += packed.size
        return int(found)

    def structure(self, fields: Sequence[Field], version: int, flexible: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        tagged = {}
        for one in fields:
            if not one.since <= version <= one.until:
                found[one.name] = one.default
            elif one.tag is not None:
                found[one.name] = one.default
                tagged[one.tag] = one
            else:
                found[one.name] = self._field(one, version, flexible)
        if flexible:
            self._tags(tagged, found, version)
        return found

    def _tags(self, known: dict[int, Field], found: dict[str, Any], version: int) -> None:
        for _ in range(self._varint()):
            tag, size = self._varint(), self._varint()
            end = self._at + size
            if end > len(self._data):
                raise Malformed("a tagged field ends early")
            if tag in known:
                found[known[tag].name] = self._field(known[tag], version, True)
            self._at = end

    def _field(self, one: Field, version: int, flexible: bool) -> Any:
        if not one.array:
            if one.nullable and isinstance(one.kind, tuple) and not self._is_there(one):
                return None
            return self._single(one, version, flexible)
        count = self._varint() - 1 if flexible else self.number("int32")
        if count < 0:
            if not one.nullable:
                raise Malformed(f"{one.name} is null")
            return None
        if count > len(self._data) - self._at:
            raise Malformed(f"{one.name} cannot have {count} elements: the record is too short")
        element = one._replace(array=False, nullable=False)
        return [self._single(element, version, flexible) for _ in range(count)]

    def _is_there(self, one: Field) -> bool:
        """Read whether a nullable structure is present: an int8, or in a tagged field an unsigned varint."""
        return self.number("int8") >= 0 if one.tag is None else self._varint() > 0

    def _single(self, one: Field, version: int, flexible: bool) -> Any:
        if isinstance(one.kind, tuple):
            return self.structure(one.kind, version, flexible)
        if one.kind in _NUMBERS:
            return self.number(one.kind)
        if one.kind == "uuid":
            return str(uuid.UUID(bytes=self._bytes(16)))
        size = self._size(one.kind, flexible)
        if size < 0:
            if not one.nullable:
                raise Malformed(f"{one.name} is null")
            return None
        data = self._bytes(size)
        return data.decode() if one.kind == "string" else data

    def _size(self, kind: str, flexible: bool) -> int:
        if flexible:
            return self._varint() - 1
        return self.number("int16" if kind == "string" else "int32")

    def _bytes(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise Malformed("the record ends early")
        found = self._data[self._at : end]
        self._at = end
        return found

    def _varint(self) -> int:
        found = shift = 0
        while shift < 35:
            byte = self._data[self._at]
            self._at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7
        raise Malformed("the varint of a length has more than 5 bytes")
