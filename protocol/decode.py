"""Straight-line decoders, compiled from the field table of one version of one message.

They accept what Kafka accepts: unknown tags are skipped (KIP-482), text that is not UTF-8 is decoded with replacement
characters, any negative length is null, a boolean is any byte. Everything else raises ``MalformedRequest``. No length or
count is used before it has been compared with the remaining bytes.

The compiled reader of kio (a package of Kafka's schemas) would be faster, but it is not safe for bytes from any client:
it allocates eight bytes for each element that an array claims before it reads the first one, and if that allocation
fails, the process aborts (kio 0.6.5: ten bytes are enough). It also raises on unknown tags.

Bounds are not checked for each string. A position only ever grows, and a struct or a single byte cannot be read beyond the
end. So one check of the position at the end finds every string that was cut off.
"""

import struct
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Any
from uuid import UUID

from .source import ELEMENTS_AT_ONCE, FIXED, LongMessage, Source
from .versions import WireField
from .wire_types import ARRAY_ELEMENTS_MAX, STRING_BYTES_MAX, TAGS_MAX

Decoder = Callable[[bytes | memoryview, int], Any]
SlicedDecoder = Callable[[bytes | memoryview, int, int], Generator[None, None, Any]]


class MalformedRequest(ValueError):
    """Bytes that are not a valid message."""


# Cached, because the same topic ids occur again and again, and creating a UUID takes a microsecond.
@lru_cache(maxsize=4096)
def uuid_of_bytes(raw: bytes) -> UUID | None:
    return UUID(bytes=raw) if any(raw) else None


def _varint_rest(buffer: bytes | memoryview, position: int, value: int) -> tuple[int, int]:
    """(number, position after it) of an unsigned varint of 32 bits. ``value`` is its first byte, which has been read."""
    value &= 127
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
    else:
        raise MalformedRequest("a varint of more than five bytes")
    if value > 0x7FFFFFFF:
        raise MalformedRequest(f"the varint {value} is too large for a size")
    return value, position


def _varint(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    first = buffer[position]
    if first < 128:
        return first, position + 1
    return _varint_rest(buffer, position + 1, first)


def _tag_count(buffer: bytes | memoryview, position: int, first: int) -> tuple[int, int]:
    """(number of fields, position after it) of a tag section whose first byte, above 127, has been read."""
    count, position = _varint_rest(buffer, position, first)
    if count > TAGS_MAX:
        raise MalformedRequest(f"a struct has more than {TAGS_MAX} tagged fields")
    return count, position


def _skip_tags(buffer: bytes | memoryview, position: int, count: int) -> int:
    """Skip a tag section. ``count`` is its first byte, which was read already. Returns the position after the section."""
    if count > 127:
        count, position = _tag_count(buffer, position, count)
    for _ in range(count):
        _, position = _varint(buffer, position)
        size, position = _varint(buffer, position)
        position += size
    return position


def skip_tag_section(buffer: bytes | memoryview, position: int) -> int:
    """Position after a tag section, whose content is ignored."""
    try:
        end = _skip_tags(buffer, position + 1, buffer[position])
    except IndexError:
        raise _cut() from None
    if end > len(buffer):
        raise _cut()
    return end


def _null(name: str) -> MalformedRequest:
    return MalformedRequest(f"{name} is null, but is not nullable")


def _too_many(name: str, count: int, remaining: int) -> MalformedRequest:
    if count > remaining:
        return MalformedRequest(
            f"{name} claims to have {count} elements, but only {remaining} bytes are left"
        )
    return MalformedRequest(f"{name} is an array of {count} elements; the maximum is {ARRAY_ELEMENTS_MAX}")


def _too_many_in_all(name: str) -> MalformedRequest:
    return MalformedRequest(f"with {name} there are more elements than a message may have")


def _too_long(name: str, length: int) -> MalformedRequest:
    return MalformedRequest(f"{name} is a string of {length} bytes; the maximum is {STRING_BYTES_MAX}")


def _cut() -> MalformedRequest:
    return MalformedRequest("the message ends too early")


def _text(data: bytes | memoryview) -> str:
    return str(data, "utf-8", "replace")


def _unpack_many(codes: str, buffer: bytes | memoryview, position: int) -> tuple[Any, ...]:
    return struct.unpack_from(codes, buffer, position)


NAMESPACE = {
    "new": object.__new__,
    "uuid": uuid_of_bytes,
    "varint": _varint,
    "varint_rest": _varint_rest,
    "skip_tags": _skip_tags,
    "tag_count": _tag_count,
    "null": _null,
    "too_many": _too_many,
    "too_many_in_all": _too_many_in_all,
    "LongMessage": LongMessage,
    "too_long": _too_long,
    "cut": _cut,
    "text": _text,
    "unpack_many": _unpack_many,
}


def compile_decoder(message_class: Any) -> Decoder:
    """Compile ``decode(buffer, position) -> message`` for a class of ``at_version``."""
    return decoder_source(message_class).compile(
        f"decode {message_class.__name__} {message_class.__version__}"
    )


def compile_sliced_decoder(message_class: Any) -> SlicedDecoder:
    """Compile ``steps(buffer, position, elements_max)``: it yields after each slice of elements, and returns the message."""
    return decoder_source(message_class, sliced=True).compile(
        f"decode {message_class.__name__} {message_class.__version__} in slices"
    )


def decoder_source(message_class: Any, *, sliced: bool = False) -> Source:
    """Source of a decoder that raises ``LongMessage`` above ``ELEMENTS_AT_ONCE`` elements, or of a sliced decoder."""
    source = Source(NAMESPACE)
    tag_readers: dict[Any, str] = {}
    _tag_functions(source, message_class, tag_readers, _SLICED_TAG if sliced else _WITHIN_TAG)
    with source.block("def main(b, p, left):" if sliced else "def main(b, p):"):
        source.line(f"end = len(b); slice_left = {ELEMENTS_AT_ONCE}")
        reader = _Reader(source, message_class.__flexible__, tag_readers, _IN_SLICES if sliced else _AT_ONCE)
        reader.struct(message_class, "m")
        source.line("if p > end: raise cut()")
        if sliced:
            source.line("yield")  # so that it is a generator even for a message without arrays
        source.line("return m")
    return source


def _tag_functions(source: Source, message_class: Any, tag_readers: dict[Any, str], counting: int) -> None:
    """Emit a function for each class with tagged fields, which reads these fields.

    Each function must precede the function that calls it.
    """
    for field in message_class.__wire__:
        if field.nested is not None and field.nested not in tag_readers:
            _tag_functions(source, field.nested, tag_readers, counting)
    tagged = [field for field in message_class.__wire__ if field.tag is not None]
    if not tagged:
        return
    tag_readers[message_class] = name = source.fresh("tags")
    with source.block(f"def {name}(b, p, count, m):"):
        source.line("end = len(b)")
        source.line("if count > 127: count, p = tag_count(b, p, count)")
        with source.block("for _ in range(count):"):
            source.line("tag, p = varint(b, p)")
            source.line("size, p = varint(b, p)")
            for position, field in enumerate(tagged):
                with source.block(f"{'elif' if position else 'if'} tag == {field.tag}:"):
                    reader = _Reader(source, message_class.__flexible__, tag_readers, counting)
                    reader.value(field, f"m.{field.name}")
                    reader.flush()
            source.line("else: p += size")
        source.line("return p")


# How a reader counts elements: in a tag each array by itself, since the arrays in tags are short in every message.
_WITHIN_TAG, _SLICED_TAG, _AT_ONCE, _IN_SLICES = range(4)


class _Reader:
    """Emits code that reads a message in the buffer ``b``, from position ``p`` on.

    ``_codes`` and ``_targets`` describe the consecutive fields of fixed size that are not emitted yet, and ``_after`` has
    the lines that must follow them.
    """

    def __init__(self, source: Source, flexible: bool, tag_readers: dict[Any, str], counting: int) -> None:
        self._source = source
        self._flexible = flexible
        self._tag_readers = tag_readers
        self._counting = counting
        self._codes = ""
        self._targets: list[str] = []
        self._after: list[str] = []

    def fixed(self, code: str, target: str) -> None:
        self._codes += code
        self._targets.append(target)

    def flush(self) -> None:
        if self._codes == "B":
            self._source.line(f"{self._targets[0]} = b[p]; p += 1")
        elif self._codes:
            unpack = self._source.struct("unpack", self._codes, "unpack_from")
            self._source.line(f"{', '.join(self._targets)}, = {unpack}(b, p)")
            self._source.line(f"p += {struct.calcsize('>' + self._codes)}")
        for line in self._after:
            self._source.line(line)
        self._codes, self._targets, self._after = "", [], []

    def struct(self, message_class: Any, name: str) -> None:
        self._source.line(f"{name} = new({self._source.constant('class_', message_class)})")
        for field in message_class.__wire__:
            if field.tag is None:
                self.value(field, f"{name}.{field.name}")
            else:
                default = self._source.constant("default", field.default)
                self._source.line(f"{name}.{field.name} = {default}")
        if self._flexible:
            count = self._source.fresh("n")
            self.fixed("B", count)
            self.flush()
            function = self._tag_readers.get(message_class)
            skip = f"{function}(b, p, {count}, {name})" if function else f"skip_tags(b, p, {count})"
            self._source.line(f"if {count}: p = {skip}")
        self.flush()

    def value(self, field: WireField, target: str) -> None:
        if field.is_array:
            self._array(field, target)
        elif field.kind == "uuid":
            raw = self._source.fresh("u")
            self.fixed("16s", raw)
            self._after.append(f"{target} = uuid({raw})")
        elif field.kind in FIXED:
            self.fixed(FIXED[field.kind], target)
        elif field.kind == "struct":
            self._nested(field, target)
        else:
            self._sized(field, target)

    def _length(self, code: str) -> str:
        """Emit code that reads a length, which is negative for null. Returns the name of the variable."""
        length = self._source.fresh("n")
        self.fixed("B" if self._flexible else code, length)
        self.flush()
        if self._flexible:
            self._source.line(f"if {length} > 127: {length}, p = varint_rest(b, p, {length})")
            self._source.line(f"{length} -= 1")
        return length

    def _if_null(self, field: WireField, length: str, target: str) -> None:
        consequence = f"{target} = None" if field.nullable else f"raise null({field.name!r})"
        self._source.line(f"if {length} < 0: {consequence}")

    def _sized(self, field: WireField, target: str) -> None:
        """Emit code that reads a string, bytes or records, and assigns the value to ``target``."""
        length = self._length("h" if field.kind == "string" else "i")
        self._if_null(field, length, target)
        if self._flexible and field.kind == "string":
            refusal = f"raise too_long({field.name!r}, {length})"
            self._source.line(f"elif {length} > {STRING_BYTES_MAX}: {refusal}")
        data = f"b[p : p + {length}]"
        # Records in a memoryview stay a view of it. Everything else is small and is copied.
        wrap = {"string": f"text({data})", "bytes": f"bytes({data})", "records": data}[field.kind]
        with self._source.block("else:"):
            self._source.line(f"{target} = {wrap}")
            self._source.line(f"p += {length}")

    def _array(self, field: WireField, target: str) -> None:
        count = self._length("i")
        self._if_null(field, count, target)
        # Kafka rejects it, too: every element takes at least one byte.
        wrong = f"{count} > end - p"
        if self._counting in (_SLICED_TAG, _IN_SLICES):
            wrong += f" or {count} > {ARRAY_ELEMENTS_MAX}"
        self._source.line(f"elif {wrong}: raise too_many({field.name!r}, {count}, end - p)")
        with self._source.block("else:"):
            self._count(field, count)
            code = FIXED.get(field.kind, "16s")
            if code != "16s":
                self._source.line(f"{target} = unpack_many(f'>{{{count}}}{code}', b, p)")
                self._source.line(f"p += {count} * {struct.calcsize('>' + code)}")
                return
            self._elements(field, count, target)

    def _count(self, field: WireField, count: str) -> None:
        if self._counting == _WITHIN_TAG:
            self._source.line(f"if {count} > {ELEMENTS_AT_ONCE}: raise LongMessage")
        elif self._counting == _AT_ONCE:
            self._source.line(f"slice_left -= {count}")
            self._source.line("if slice_left < 0: raise LongMessage")
        elif self._counting == _IN_SLICES:
            self._source.line(f"left -= {count}")
            self._source.line(f"if left < 0: raise too_many_in_all({field.name!r})")

    def _elements(self, field: WireField, count: str, target: str) -> None:
        items, item = self._source.fresh("a"), self._source.fresh("e")
        self._source.line(f"{items} = []")
        with self._source.block(f"for _ in range({count}):"):
            if field.kind == "struct":
                self.struct(field.nested, item)
            else:
                self.value(WireField(field.name, field.kind, False, False, None, None), item)
                self.flush()
            self._source.line(f"{items}.append({item})")
            if self._counting == _IN_SLICES:
                self._source.line("slice_left -= 1")
                with self._source.block("if not slice_left:"):
                    self._source.line(f"slice_left = {ELEMENTS_AT_ONCE}")
                    self._source.line("yield")
        self._source.line(f"{target} = tuple({items})")

    def _nested(self, field: WireField, target: str) -> None:
        self.flush()
        name = self._source.fresh("e")
        if not field.nullable:
            self.struct(field.nested, name)
            self._source.line(f"{target} = {name}")
            return
        # KIP-893: a nullable struct begins with a byte that is negative for null.
        marker = self._source.fresh("n")
        self.fixed("b", marker)
        self.flush()
        self._source.line(f"if {marker} < 0: {target} = None")
        with self._source.block("else:"):
            self.struct(field.nested, name)
            self._source.line(f"{target} = {name}")
