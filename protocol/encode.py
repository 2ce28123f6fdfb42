"""Straight-line encoders, compiled from the field table of one version of one message.

The code for a Produce response of version 9 is, shortened:

    def main(m):
        out = []; push = out.append
        a1 = m.responses
        n2 = len(a1) + 1
        push(V[n2] if n2 < 128 else varint(n2))
        for e3 in a1:
            ...
            push(pack7(e5.index, e5.error_code, e5.base_offset, e5.log_append_time_ms, e5.log_start_offset))
            ...
        push(pack12(m.throttle_time_ms))                  # its last byte is the empty tag section
        return [join(out)]

Consecutive fields of fixed size become one ``Struct.pack``. Records, and bytes above ``INLINE_BYTES_MAX``, become chunks of
their own and are not copied.
"""

import struct
from collections.abc import Callable, Generator, Sequence
from typing import Any
from uuid import UUID

from .messages import Chunk
from .source import ELEMENTS_AT_ONCE, FIXED, LongMessage, Source
from .varint import unsigned_varint
from .versions import WireField
from .wire_types import STRING_BYTES_MAX

Encoder = Callable[[Any], list[Chunk]]
SlicedEncoder = Callable[[Any], Generator[None, None, list[Chunk]]]

INLINE_BYTES_MAX = 4096
MARKER_NULL = b"\xff"


def _uuid_bytes(value: UUID | None) -> bytes:
    return bytes(16) if value is None else value.bytes


def _pack_many(code: str, values: Sequence[Any]) -> bytes:
    return struct.pack(f">{len(values)}{code}", *values)


def _records_size(records: Any) -> int:
    return sum(map(len, records)) if isinstance(records, list | tuple) else len(records)


def _too_long(name: str, length: int) -> ValueError:
    return ValueError(f"{name} is a string of {length} bytes, the maximum is {STRING_BYTES_MAX}")


def _push_records(chunks: list[Chunk], out: list[Chunk], records: Any) -> None:
    """Append the buffers that were written so far as one chunk, then the records as they are."""
    chunks.append(b"".join(out))
    out.clear()
    if isinstance(records, list | tuple):
        chunks.extend(records)
    else:
        chunks.append(records)


NAMESPACE = {
    "V": tuple(bytes((value,)) for value in range(128)),
    "varint": unsigned_varint,
    "join": b"".join,
    "uuid_bytes": _uuid_bytes,
    "pack_many": _pack_many,
    "too_long": _too_long,
    "LongMessage": LongMessage,
    "records_size": _records_size,
    "push_records": _push_records,
}


def compile_encoder(message_class: Any) -> Encoder:
    """Compile the encoder for a class of ``at_version``. It also accepts instances of the class of all versions."""
    return encoder_source(message_class).compile(
        f"encode {message_class.__name__} {message_class.__version__}"
    )


def compile_sliced_encoder(message_class: Any) -> SlicedEncoder:
    """Compile the encoder in steps: it yields after each slice of elements, and returns the chunks."""
    return encoder_source(message_class, sliced=True).compile(
        f"encode {message_class.__name__} {message_class.__version__} in slices"
    )


def encoder_source(message_class: Any, *, sliced: bool = False) -> Source:
    """Source of an encoder that raises ``LongMessage`` above ``ELEMENTS_AT_ONCE`` elements, or of a sliced encoder."""
    source = Source(NAMESPACE)
    with source.block("def main(m):"):
        source.line(f"chunks = []; out = []; push = out.append; slice_left = {ELEMENTS_AT_ONCE}")
        writer = _Writer(source, message_class.__flexible__, "out", "push", may_cut=True, sliced=sliced)
        writer.struct(message_class, "m")
        writer.flush()
        source.line("if out: chunks.append(join(out))")
        if sliced:
            source.line("yield")  # so that it is a generator even for a message without arrays
        source.line("return chunks")
    return source


class _Writer:
    """Emits code that appends to one list of buffers.

    ``_codes`` and ``_values`` describe the consecutive fields of fixed size that are not emitted yet.
    """

    def __init__(
        self, source: Source, flexible: bool, out: str, push: str, *, may_cut: bool, sliced: bool
    ) -> None:
        self._source = source
        self._flexible = flexible
        self._out = out
        self._push = push
        self._may_cut = may_cut
        self._sliced = sliced
        self._codes = ""
        self._values: list[str] = []

    def fixed(self, code: str, value: str) -> None:
        self._codes += code
        self._values.append(value)

    def flush(self) -> None:
        if self._values:
            pack = self._source.struct("pack", self._codes, "pack")
            self._source.line(f"{self._push}({pack}({', '.join(self._values)}))")
        elif self._codes:
            self._source.line(f"{self._push}({bytes(len(self._codes))!r})")
        self._codes, self._values = "", []

    def struct(self, message_class: Any, name: str) -> None:
        tagged: list[WireField] = []
        for field in message_class.__wire__:
            if field.tag is None:
                self.value(field, f"{name}.{field.name}")
            else:
                tagged.append(field)
        if tagged:
            self._tags(sorted(tagged, key=lambda field: field.tag or 0), name)
        elif self._flexible:
            self._codes += "x"  # an empty tag section is a zero byte

    def value(self, field: WireField, value: str) -> None:
        if field.is_array:
            self._array(field, value)
        elif field.kind == "uuid":
            self.fixed("16s", f"uuid_bytes({value})")
        elif field.kind in FIXED:
            self.fixed(FIXED[field.kind], value)
        elif field.kind == "struct":
            self._nested(field, value)
        elif field.kind == "string":
            self._string(field, value)
        else:
            self._buffer(field, value)

    def _length(self, code: str, value: str, size: str, nullable: bool) -> None:
        """Emit a length: -1 for null, or in a flexible version the length + 1 as a varint, and 0 for null."""
        line, length = self._source.line, self._source.fresh("n")
        null, plus = ("0", " + 1") if self._flexible else ("-1", "")
        guard = f"{null} if {value} is None else " if nullable else ""
        line(f"{length} = {guard}{size}{plus}")
        if self._flexible:
            self.flush()
            line(f"{self._push}(V[{length}] if {length} < 128 else varint({length}))")
        else:
            self.fixed(code, length)
            self.flush()

    def _string(self, field: WireField, value: str) -> None:
        text = self._source.fresh("s")
        if field.nullable:
            self._source.line(f"{text} = {value}")
            self._source.line(f"if {text} is not None: {text} = {text}.encode()")
        else:
            self._source.line(f"{text} = {value}.encode()")
        if self._flexible:
            guard = f"{text} is not None and " if field.nullable else ""
            refusal = f"raise too_long({field.name!r}, len({text}))"
            self._source.line(f"if {guard}len({text}) > {STRING_BYTES_MAX}: {refusal}")
        self._length("h", text, f"len({text})", field.nullable)
        self._source.line(f"{f'if {text}: ' if field.nullable else ''}{self._push}({text})")

    def _buffer(self, field: WireField, value: str) -> None:
        data = self._source.fresh("d")
        self._source.line(f"{data} = {value}")
        is_records = field.kind == "records"
        size = f"records_size({data})" if is_records else f"len({data})"
        self._length("i", data, size, field.nullable)
        if not self._may_cut:
            self._source.line(f"if {data}: {self._push}({data})")
            return
        limit = 0 if is_records else INLINE_BYTES_MAX
        guard = f"{data} is not None and " if field.nullable else ""
        with self._source.block(f"if {guard}{size} > {limit}:"):
            self._source.line(f"push_records(chunks, {self._out}, {data})")
        if not is_records:
            self._source.line(f"elif {data}: {self._push}({data})")

    def _array(self, field: WireField, value: str) -> None:
        items, item = self._source.fresh("a"), self._source.fresh("e")
        self._source.line(f"{items} = {value}")
        self._length("i", items, f"len({items})", field.nullable)
        if field.kind in FIXED and field.kind != "uuid":
            self._source.line(f"if {items}: {self._push}(pack_many({FIXED[field.kind]!r}, {items}))")
            return
        if not self._sliced:
            self._source.line(f"slice_left -= len({f'{items} or ()' if field.nullable else items})")
            self._source.line("if slice_left < 0: raise LongMessage")
        with self._source.block(f"for {item} in {f'{items} or ()' if field.nullable else items}:"):
            if field.kind == "struct":
                self.struct(field.nested, item)
            else:
                self.value(WireField(field.name, field.kind, False, False, None, None), item)
            self.flush()
            if self._sliced:
                self._source.line("slice_left -= 1")
                with self._source.block("if not slice_left:"):
                    self._source.line(f"slice_left = {ELEMENTS_AT_ONCE}")
                    self._source.line("yield")

    def _nested(self, field: WireField, value: str) -> None:
        if not field.nullable:
            self.struct(field.nested, value)
            return
        # KIP-893: a nullable struct begins with a byte that is -1 for null.
        self.flush()
        name = self._source.fresh("e")
        self._source.line(f"{name} = {value}")
        self._source.line(f"if {name} is None: {self._push}({MARKER_NULL!r})")
        with self._source.block("else:"):
            self.fixed("b", "1")
            self.struct(field.nested, name)
            self.flush()

    def _tags(self, tagged: list[WireField], name: str) -> None:
        """Emit tagged fields (KIP-482): their count, then number, size and bytes of each. Defaults are left out."""
        self.flush()
        line, tags, count = self._source.line, self._source.fresh("t"), self._source.fresh("c")
        line(f"{tags} = []; {count} = 0")
        for field in tagged:
            value = self._source.fresh("v")
            line(f"{value} = {name}.{field.name}")
            with self._source.block(f"if {self._differs(field, value)}:"):
                self._tag(field, value, tags)
                line(f"{count} += 1")
        line(f"{self._push}(V[{count}])")
        line(f"if {count}: {self._out}.extend({tags})")

    def _differs(self, field: WireField, value: str) -> str:
        if field.default is None:
            return f"{value} is not None"
        if field.is_array:
            return f"len({value})"
        default = self._source.constant("default", field.default)
        return f"{value} is not {default} and {value} != {default}"

    def _tag(self, field: WireField, value: str, tags: str) -> None:
        out, push = self._source.fresh("out"), self._source.fresh("push")
        self._source.line(f"{out} = []; {push} = {out}.append")
        # A tagged field that is null is left out, so what is written is never null (in Kafka's format the absence of the
        # tag means null).
        present = WireField(field.name, field.kind, field.is_array, False, None, None, field.nested)
        writer = _Writer(self._source, self._flexible, out, push, may_cut=False, sliced=self._sliced)
        writer.value(present, value)
        writer.flush()
        body, number = self._source.fresh("b"), unsigned_varint(field.tag or 0)
        self._source.line(f"{body} = join({out})")
        self._source.line(f"{tags} += ({number!r}, varint(len({body})), {body})")
