"""The encodings of single values in versioned records: numbers, strings, arrays.

A type creates one writer and one reader per version. In flexible versions lengths are compact. Readers return the value and
the position after it. They raise `ValueError`, `IndexError` or `struct.error` for invalid bytes.
"""

from collections.abc import Callable, Sequence
from struct import Struct, pack
from typing import Any
from uuid import UUID

from .varint import read_unsigned_varint, unsigned_varint

Push = Callable[[bytes], None]
Write = Callable[[Any, Push], None]
Read = Callable[[bytes, int], tuple[Any, int]]

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_ZERO_UUID = bytes(16)

STRING_BYTES_MAX = 32_767
"""Largest string of the protocol, in UTF-8 bytes. A compact length could be larger, but Kafka's generated classes neither
read nor write larger strings (``MessageDataGenerator``)."""
ARRAY_ELEMENTS_MAX = 1_000_000
TAGS_MAX = 10_000
"""Largest number of tagged fields in one section. Kafka 4.4's generated classes have this limit, and
``ARRAY_ELEMENTS_MAX`` for each array."""


class WireType:
    """The encoding of a value. `flexible` selects the compact form of lengths."""

    __slots__ = ()

    def writer(self, version: int, flexible: bool) -> Write:
        raise NotImplementedError

    def reader(self, version: int, flexible: bool) -> Read:
        raise NotImplementedError


class Fixed(WireType):
    """A number of fixed size. Consecutive fields of this kind are packed together."""

    __slots__ = ("code", "struct")

    def __init__(self, code: str) -> None:
        self.code = code
        self.struct = Struct(">" + code)

    def writer(self, version: int, flexible: bool) -> Write:
        pack = self.struct.pack

        def write(value: Any, push: Push) -> None:
            push(pack(value))

        return write

    def reader(self, version: int, flexible: bool) -> Read:
        unpack, size = self.struct.unpack_from, self.struct.size

        def read(data: bytes, position: int) -> tuple[Any, int]:
            return unpack(data, position)[0], position + size

        return read


class Uuid(WireType):
    """A uuid of 16 bytes; None is the zero uuid."""

    __slots__ = ()

    def writer(self, version: int, flexible: bool) -> Write:
        def write(value: UUID | None, push: Push) -> None:
            push(_ZERO_UUID if value is None else value.bytes)

        return write

    def reader(self, version: int, flexible: bool) -> Read:
        def read(data: bytes, position: int) -> tuple[UUID | None, int]:
            raw, position = _cut(data, position, 16)
            return (None if raw == _ZERO_UUID else UUID(bytes=raw)), position

        return read


class Bytes(WireType):
    """Bytes, or with `text` a string, preceded by their length."""

    __slots__ = ("nullable", "text")

    def __init__(self, *, text: bool = False, nullable: bool = False) -> None:
        self.text = text
        self.nullable = nullable

    def writer(self, version: int, flexible: bool) -> Write:
        write_length = _length_writer(flexible, _INT16 if self.text else _INT32)
        text, nullable = self.text, self.nullable

        def write(value: Any, push: Push) -> None:
            if value is None:
                _refuse_null(nullable)
                push(write_length(-1))
                return
            raw = value.encode() if text else value
            if text:
                _refuse_long(len(raw))
            push(write_length(len(raw)))
            push(raw)

        return write

    def reader(self, version: int, flexible: bool) -> Read:
        read_length = _length_reader(flexible, _INT16 if self.text else _INT32)
        text, nullable = self.text, self.nullable

        def read(data: bytes, position: int) -> tuple[Any, int]:
            length, position = read_length(data, position)
            if length < 0:
                _refuse_null(nullable)
                return None, position
            if text:
                _refuse_long(length)
            raw, position = _cut(data, position, length)
            return (raw.decode() if text else raw), position

        return read


class Array(WireType):
    """A sequence of one type, preceded by its length. It is read as a tuple."""

    __slots__ = ("item", "nullable")

    def __init__(self, item: WireType, *, nullable: bool = False) -> None:
        self.item = item
        self.nullable = nullable

    def writer(self, version: int, flexible: bool) -> Write:
        write_length = _length_writer(flexible, _INT32)
        write_items = self._items_writer(version, flexible)
        nullable = self.nullable

        def write(value: Sequence[Any] | None, push: Push) -> None:
            if value is None:
                _refuse_null(nullable)
                push(write_length(-1))
            else:
                push(write_length(len(value)))
                write_items(value, push)

        return write

    def _items_writer(self, version: int, flexible: bool) -> Write:
        if isinstance(self.item, Fixed):
            code = self.item.code
            return lambda values, push: push(pack(f">{len(values)}{code}", *values))
        write_item = self.item.writer(version, flexible)

        def write(values: Sequence[Any], push: Push) -> None:
            for value in values:
                write_item(value, push)

        return write

    def reader(self, version: int, flexible: bool) -> Read:
        read_length = _length_reader(flexible, _INT32)
        read_item = self.item.reader(version, flexible)
        nullable = self.nullable

        def read(data: bytes, position: int) -> tuple[tuple[Any, ...] | None, int]:
            count, position = read_length(data, position)
            if count < 0:
                _refuse_null(nullable)
                return None, position
            if count > len(data) - position:  # every item takes at least one byte
                raise ValueError(f"{count} items do not fit into the rest of the message")
            if count > ARRAY_ELEMENTS_MAX:
                raise ValueError(f"an array has {count} elements; the maximum is {ARRAY_ELEMENTS_MAX}")
            items = []
            for _ in range(count):
                item, position = read_item(data, position)
                items.append(item)
            return tuple(items), position

        return read


INT8, INT16, INT32, INT64 = Fixed("b"), Fixed("h"), Fixed("i"), Fixed("q")
UINT16, FLOAT64, BOOLEAN = Fixed("H"), Fixed("d"), Fixed("?")
UUID_TYPE = Uuid()
STRING, NULLABLE_STRING = Bytes(text=True), Bytes(text=True, nullable=True)
BYTES, NULLABLE_BYTES = Bytes(), Bytes(nullable=True)


def _cut(data: bytes, position: int, length: int) -> tuple[bytes, int]:
    end = position + length
    if end > len(data):
        raise ValueError(f"{length} bytes do not fit into the rest of the message")
    return data[position:end], end


def _refuse_null(nullable: bool) -> None:
    if not nullable:
        raise ValueError("a field that cannot be null is null")


def _refuse_long(length: int) -> None:
    if length > STRING_BYTES_MAX:
        raise ValueError(f"a string of {length} bytes, the maximum is {STRING_BYTES_MAX}")


def _length_writer(flexible: bool, plain: Struct) -> Callable[[int], bytes]:
    if flexible:
        return lambda length: unsigned_varint(length + 1)
    return plain.pack


def _length_reader(flexible: bool, plain: Struct) -> Callable[[bytes, int], tuple[int, int]]:
    unpack, size = plain.unpack_from, plain.size

    def read_compact(data: bytes, position: int) -> tuple[int, int]:
        length, position = read_unsigned_varint(data, position)
        return length - 1, position

    def read_plain(data: bytes, position: int) -> tuple[int, int]:
        return unpack(data, position)[0], position + size

    return read_compact if flexible else read_plain
