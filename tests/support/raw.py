"""A raw protocol client: blocking sockets, one frame at a time.

This module decodes the wire format independently of our protocol package: the layout of each message comes from kio's
dataclasses (field order, types, tags and versions), walked by the small codec below. kio's own reader is not used because it
refuses what tests want to see: negative times, unknown tagged fields.

Messages are dicts by kio's field names. Times are ints in milliseconds, error codes are ints, the zero uuid is None. Fields
with a default may be left out of a request. A decoded response has every field of its version, and a tagged field only if it
was on the wire.
"""

from __future__ import annotations

import dataclasses
import functools
import socket
import struct
import types
import typing
import uuid
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pkgutil import resolve_name
from typing import Any, Literal

from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from odradek.process import _free_port
from protocol.messages.index import APIS
from protocol.versions import at_version, versions_of
from tests.support.deadlines import HANG_S, Deadline

API_KEYS = {name: key for key, name in api_key_map.items()} | {name: key for key, (name, *_) in APIS.items()}
API_VERSIONS = "api_versions"
"""Its response header has no tagged fields in any version."""
Kind = Literal[EntityType.request, EntityType.response]
ZERO_UUID = uuid.UUID(int=0)
FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}


class Malformed(Exception):
    """A response does not match its schema, or has bytes left over."""


class Closed(Exception):
    """The peer closed the connection."""


class Silence(Exception):
    """No response came before the timeout."""


@dataclasses.dataclass(frozen=True)
class Field:
    name: str
    kind: str
    nested: Shape | None
    array: bool
    nullable: bool
    tag: int | None
    default: Any


@dataclasses.dataclass(frozen=True)
class Shape:
    name: str
    flexible: bool
    plain: tuple[Field, ...]
    tagged: tuple[Field, ...]


CLIENT_ID = Field("client_id", "string", None, False, True, None, None)
NO_FIELDS = Shape("header", True, (), ())


def _peel(annotation: Any) -> tuple[Any, bool, bool]:
    """(inner type, whether it is an array, whether it may be null) of a type annotation."""
    nullable = False
    if isinstance(annotation, types.UnionType):
        nullable = True
        (annotation,) = (a for a in typing.get_args(annotation) if a is not types.NoneType)
    if typing.get_origin(annotation) is not tuple:
        return annotation, False, nullable
    inner, _, inner_nullable = _peel(typing.get_args(annotation)[0])
    return inner, True, nullable or inner_nullable


def _plain_value(value: Any) -> Any:
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, tuple):
        return [_plain_value(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {f.name: _plain_value(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _default(field: dataclasses.Field[Any], kind: str, array: bool, nullable: bool) -> Any:
    if field.default is not dataclasses.MISSING:
        return _plain_value(field.default)
    if nullable:
        return None
    if array:
        return []
    return {"string": "", "bytes": b"", "records": b"", "uuid": None, "bool": False}.get(kind, 0)


@functools.cache
def _shape(cls: Any) -> Shape:
    fields = []
    for field in dataclasses.fields(cls):
        inner, array, nullable = _peel(field.type)
        nested = _shape(inner) if isinstance(inner, type) and dataclasses.is_dataclass(inner) else None
        kind = "struct" if nested else field.metadata["kafka_type"]
        default = _default(field, kind, array, nullable)
        fields.append(Field(field.name, kind, nested, array, nullable, field.metadata.get("tag"), default))
    return Shape(
        cls.__name__,
        bool(cls.__flexible__),
        tuple(f for f in fields if f.tag is None),
        tuple(f for f in fields if f.tag is not None),
    )


def _declared(cls: Any) -> Shape:
    """The shape of a message class in the package protocol, for versions that kio lacks. These classes are generated from
    Kafka's own schemas."""
    fields = [
        Field(
            wire.name.removesuffix("_ms"),  # as in kio
            wire.kind,
            _declared(wire.nested) if wire.nested else None,
            wire.is_array,
            wire.nullable,
            wire.tag,
            [] if wire.default == () else wire.default,
        )
        for wire in cls.__wire__
    ]
    return Shape(
        cls.__name__,
        cls.__flexible__,
        tuple(f for f in fields if f.tag is None),
        tuple(f for f in fields if f.tag is not None),
    )


@functools.cache
def _message(api: str, version: int, kind: Kind) -> Shape:
    """The shape of a message in one version."""
    if version in schema_name_map.get(api, ()):
        return _shape(resolve_name(schema_name_map[api][version][kind]))
    return _declared(
        at_version(API_KEYS[api], version, "request" if kind is EntityType.request else "response")
    )


def versions(api: str) -> list[int]:
    """The versions that have a schema."""
    return sorted({*schema_name_map.get(api, ()), *versions_of(API_KEYS[api])})


def _names(shape: Shape) -> set[str]:
    found = set()
    for field in (*shape.plain, *shape.tagged):
        found.add(field.name)
        if field.nested:
            found |= _names(field.nested)
    return found


@functools.cache
def _known_names(api: str) -> frozenset[str]:
    """Field names in any version of a request.

    A field that the used version lacks is dropped; an unknown name is an error.
    """
    return frozenset().union(*(_names(_message(api, v, EntityType.request)) for v in versions(api)))


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Writer:
    def __init__(self, flexible: bool, known: frozenset[str]) -> None:
        self.flexible, self.known, self.out = flexible, known, bytearray()

    def length(self, size: int | None, narrow: bool = False) -> None:
        if self.flexible:
            self.out += uvarint(0 if size is None else size + 1)
        else:
            self.out += struct.pack(">h" if narrow else ">i", -1 if size is None else size)

    def struct(self, shape: Shape, body: Mapping[str, Any]) -> None:
        names = {f.name for f in (*shape.plain, *shape.tagged)}
        wrong = set(body) - names - self.known - {"_tags"}
        if wrong:
            raise KeyError(f"{shape.name} has no fields {sorted(wrong)}; its fields are {sorted(names)}")
        for field in shape.plain:
            self.field(field, body.get(field.name, field.default))
        if shape.flexible:
            self.tags(shape, body)

    def tags(self, shape: Shape, body: Mapping[str, Any]) -> None:
        sections = dict(body.get("_tags", {}))
        for field in shape.tagged:
            if field.name in body:
                inner = _Writer(True, self.known)
                inner.field(field, body[field.name], tagged=True)
                sections[field.tag] = bytes(inner.out)
        self.out += uvarint(len(sections))
        for tag, content in sorted(sections.items()):
            self.out += uvarint(tag) + uvarint(len(content)) + content

    def field(self, field: Field, value: Any, tagged: bool = False) -> None:
        if field.array:
            self.length(None if value is None else len(value))
            for item in value or ():
                self.value(field, item)
        elif field.kind == "struct" and field.nullable and not tagged:
            self.out += b"\xff" if value is None else b"\x01"
            if value is not None:
                self.value(field, value)
        else:
            self.value(field, value)

    def value(self, field: Field, value: Any) -> None:
        if field.nested:
            self.struct(field.nested, value)
        elif field.kind == "string":
            raw = value.encode("utf-8", "surrogateescape") if value is not None else None
            self.length(None if raw is None else len(raw), narrow=True)
            self.out += raw or b""
        elif field.kind in ("bytes", "records"):
            self.length(None if value is None else len(value))
            self.out += value or b""
        elif field.kind == "uuid":
            self.out += (value or ZERO_UUID).bytes
        else:
            self.out += struct.pack(">" + FORMATS[field.kind], value)


class _Reader:
    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise Malformed(
                f"{size} bytes expected at position {self.at}, but the message has {len(self.data)} bytes"
            )
        self.at += size
        return self.data[self.at - size : self.at]

    def unpack(self, code: str) -> Any:
        return struct.unpack(">" + code, self.take(struct.calcsize(">" + code)))[0]

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def length(self, flexible: bool, narrow: bool = False) -> int | None:
        size = self.uvarint() - 1 if flexible else self.unpack("h" if narrow else "i")
        if size < -1:
            raise Malformed(f"invalid length {size} of a string, bytes or array")
        return None if size == -1 else size

    def struct(self, shape: Shape) -> dict[str, Any]:
        body = {field.name: self.field(field, shape.flexible) for field in shape.plain}
        if shape.flexible:
            body |= self.tags(shape)
        return body

    def tags(self, shape: Shape) -> dict[str, Any]:
        body: dict[str, Any] = {}
        by_tag = {field.tag: field for field in shape.tagged}
        for _ in range(self.uvarint()):
            tag, size = self.uvarint(), self.uvarint()
            inner = _Reader(self.take(size))
            if tag not in by_tag:
                body.setdefault("_tags", {})[tag] = inner.data.hex()
                continue
            body[by_tag[tag].name] = inner.field(by_tag[tag], True, tagged=True)
            inner.finish()
        return body

    def field(self, field: Field, flexible: bool, tagged: bool = False) -> Any:
        if field.array:
            size = self.length(flexible)
            if size is None:
                return None
            return [self.value(field, flexible) for _ in range(size)]
        if field.kind == "struct" and field.nullable and not tagged and self.unpack("b") < 0:
            return None
        return self.value(field, flexible)

    def value(self, field: Field, flexible: bool) -> Any:
        if field.nested:
            return self.struct(field.nested)
        if field.kind in ("string", "bytes", "records"):
            size = self.length(flexible, narrow=field.kind == "string")
            if size is None:
                return None
            raw = self.take(size)
            return raw.decode() if field.kind == "string" else raw
        if field.kind == "uuid":
            return (
                uuid.UUID(bytes=self.take(16))
                if self.data[self.at : self.at + 16] != bytes(16)
                else self.zero()
            )
        return self.unpack(FORMATS[field.kind])

    def zero(self) -> None:
        self.take(16)

    def finish(self) -> None:
        if self.at != len(self.data):
            raise Malformed(f"{len(self.data) - self.at} bytes left over: {self.data[self.at :].hex()}")


def encode_body(api: str, version: int, body: Mapping[str, Any]) -> bytes:
    shape = _message(api, version, EntityType.request)
    writer = _Writer(shape.flexible, _known_names(api))
    writer.struct(shape, body)
    return bytes(writer.out)


def encode_header(
    key: int,
    version: int,
    correlation: int,
    client_id: str | None,
    flexible: bool,
    tags: Mapping[int, bytes] = {},
) -> bytes:
    client = client_id.encode() if client_id is not None else None
    out = struct.pack(">hhih", key, version, correlation, -1 if client is None else len(client)) + (
        client or b""
    )
    return out + encode_tags(tags) if flexible else out


def encode_tags(tags: Mapping[int, bytes]) -> bytes:
    return uvarint(len(tags)) + b"".join(uvarint(t) + uvarint(len(c)) + c for t, c in sorted(tags.items()))


def encode_request(
    api: str, version: int, body: Mapping[str, Any], correlation: int, client_id: str | None = "raw"
) -> bytes:
    flexible = _message(api, version, EntityType.request).flexible
    header = encode_header(API_KEYS[api], version, correlation, client_id, flexible)
    return header + encode_body(api, version, body)


def decode_request(api: str, version: int, frame: bytes) -> dict[str, Any]:
    """Body of a request frame, which begins with the request header."""
    shape = _message(api, version, EntityType.request)
    reader = _Reader(frame, 8)
    reader.value(CLIENT_ID, False)
    if shape.flexible:
        reader.tags(NO_FIELDS)
    body = reader.struct(shape)
    reader.finish()
    return body


def decode_response(api: str, version: int, frame: bytes) -> tuple[int, dict[str, Any]]:
    """(correlation id, body) of a response. The response to ApiVersions of an unsupported version has version 0."""
    if api == API_VERSIONS and version not in versions(api):
        version = 0
    shape = _message(api, version, EntityType.response)
    reader = _Reader(frame)
    correlation = reader.unpack("i")
    if shape.flexible and api != API_VERSIONS:
        tags = reader.uvarint()
        if tags:
            raise Malformed(f"{tags} tagged fields in the response header, expected none")
    if api == API_VERSIONS and struct.unpack_from(">h", frame, 4)[0] == 35:
        shape = _message(api, 0, EntityType.response)
    body = reader.struct(shape)
    reader.finish()
    return correlation, body


def encode_response(
    api: str, version: int, correlation: int, body: Mapping[str, Any], header_tags: Mapping[int, bytes] = {}
) -> bytes:
    shape = _message(api, version, EntityType.response)
    writer = _Writer(shape.flexible, frozenset())
    writer.out += struct.pack(">i", correlation)
    if shape.flexible and api != API_VERSIONS:
        writer.out += encode_tags(header_tags)
    writer.struct(shape, body)
    return bytes(writer.out)


def response_fields(api: str, version: int) -> frozenset[str]:
    """Names of the top-level fields of a response."""
    shape = _message(api, version, EntityType.response)
    return frozenset(each.name for each in (*shape.plain, *shape.tagged))


def with_unknown_tags(api: str, version: int, frame: bytes, tags: Mapping[int, bytes]) -> bytes:
    """Add tagged fields to the header and every struct of a response, as a later release may in the same version (KIP-482).

    A response in a version that is not flexible is returned unchanged.
    """
    correlation, body = decode_response(api, version, frame)
    shape = _message(api, version, EntityType.response)
    if not shape.flexible:
        return frame
    return encode_response(api, version, correlation, _tagged(shape, body, tags), tags)


def _tagged(shape: Shape, body: Mapping[str, Any], tags: Mapping[int, bytes]) -> dict[str, Any]:
    tagged = {"_tags": tags, **body}
    for field in (*shape.plain, *shape.tagged):
        if field.nested and body.get(field.name) is not None:
            value = body[field.name]
            nested = field.nested
            tagged[field.name] = (
                [_tagged(nested, each, tags) for each in value]
                if field.array
                else _tagged(nested, value, tags)
            )
    return tagged


class Wire:
    """One blocking connection to a broker."""

    def __init__(self, host: str, port: int, timeout: float = HANG_S, source: str = "") -> None:
        """``source`` is the local address to connect from, "" for any."""
        self.timeout = timeout
        self.socket = socket.create_connection((host, port), timeout=HANG_S, source_address=(source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def send_bytes(self, data: bytes) -> None:
        self.socket.settimeout(self.timeout)
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionError) as error:
            raise Closed from error

    def send_frame(self, frame: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def half_close(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def receive_frame(self, timeout: float | None = None) -> bytes:
        deadline = Deadline(self.timeout if timeout is None else timeout)
        size = struct.unpack(">i", self._take(4, deadline))[0]
        return self._take(size, deadline)

    def _take(self, size: int, deadline: Deadline) -> bytes:
        while len(self.buffer) < size:
            if deadline.is_over:
                raise Silence
            self.socket.settimeout(max(deadline.left_s, 0.001))
            try:
                data = self.socket.recv(1 << 20)
            except TimeoutError as error:
                raise Silence from error
            except ConnectionError as error:
                raise Closed from error
            if not data:
                raise Closed
            self.buffer += data
        out, self.buffer = self.buffer[:size], self.buffer[size:]
        return out

    def close(self) -> None:
        self.socket.close()


def error_codes(value: Any) -> Iterable[int]:
    """Every error code in a decoded response."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name.endswith("error_code"):
                yield inner
            else:
                yield from error_codes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from error_codes(inner)


_GIVEN: set[int] = set()


def free_port() -> int:
    """A port that this process did not get before, and that the system does not use for outgoing connections
    (`odradek.process`)."""
    while (port := _free_port()) in _GIVEN:
        pass
    _GIVEN.add(port)
    return port
