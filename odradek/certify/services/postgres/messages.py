"""Messages of PostgreSQL's protocol, versions 3.0 and 3.2: framing, fields, and messages of the proxy's own.

https://www.postgresql.org/docs/current/protocol-message-formats.html
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

STARTUP_BYTES: Final = 10_000
"""Maximum size of a startup packet, as in the server (MAX_STARTUP_PACKET_LENGTH)."""
TLS_HANDSHAKE: Final = 0x16
"""First byte of a connection that begins with TLS instead of an SSLRequest (sslnegotiation=direct)."""
CHANNEL_BINDING: Final = "channel_binding"
"""Parameter of DSNs for libpq. asyncpg and Go's drivers send each parameter that they do not know to the server."""
_CANCEL: Final = 80877102
_SSL: Final = 80877103
_GSSENC: Final = 80877104
_INT32: Final = struct.Struct("!i")
_HEADER: Final = 5
_PARAMETER_CHARS: Final = 1000
"""Maximum length of a parameter in a request."""


class ProtocolError(ValueError):
    """Bytes that are no message of the protocol."""


class Message(NamedTuple):
    kind: str
    """The type, a letter."""
    data: bytes
    """The whole message, with type and length."""

    @property
    def body(self) -> bytes:
        return self.data[_HEADER:]


class Frames:
    """Splits a stream of bytes into messages."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[Message]:
        """The messages that are complete with this chunk. Raises `ProtocolError`."""
        rest = self._rest
        rest += chunk
        at, found = 0, []
        while len(rest) - at >= _HEADER:
            (size,) = _INT32.unpack_from(rest, at + 1)
            if size < 4:
                raise ProtocolError(f"message {chr(rest[at])!r} has length {size}")
            end = at + 1 + size
            if end > len(rest):
                break
            found.append(Message(chr(rest[at]), bytes(rest[at:end])))
            at = end
        del rest[:at]
        return found


def message(kind: str, *parts: bytes) -> Message:
    body = b"".join(parts)
    return Message(kind, kind.encode() + _INT32.pack(4 + len(body)) + body)


def text(value: str) -> bytes:
    """A string as messages contain it, with its final zero byte."""
    return value.encode() + b"\0"


class Body:
    """Reads the fields of a message's body in order. Raises `ProtocolError` behind its end."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def text(self) -> str:
        end = self._body.find(b"\0", self._at)
        if end < 0:
            raise ProtocolError("string without end")
        found, self._at = self._body[self._at : end], end + 1
        return found.decode("utf-8", "replace")

    def take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._body):
            raise ProtocolError("message is too short")
        found, self._at = self._body[self._at : end], end
        return found

    def byte(self) -> str:
        return chr(self.take(1)[0])

    def int16(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)


# -- the first packet of a connection --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SSLRequest:
    pass


@dataclass(frozen=True, slots=True)
class GSSENCRequest:
    pass


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Asks the server to cancel the statement of another connection."""

    key: bytes
    """Body of the BackendKeyData of that connection: process id and secret key, whose length varies since 3.2."""
    packet: bytes


@dataclass(frozen=True, slots=True)
class StartupMessage:
    version: int
    """Major version in the upper, minor version in the lower 16 bits."""
    parameters: Mapping[str, str]

    def for_server(self, database: str) -> StartupMessage:
        """The message with another database, and without what some drivers take from the DSN and send by mistake."""
        kept = {name: value for name, value in self.parameters.items() if name != CHANNEL_BINDING}
        return StartupMessage(self.version, {**kept, "database": database})

    @property
    def database(self) -> str:
        return self.parameters.get("database") or self.parameters.get("user", "")

    def encode(self) -> bytes:
        fields = b"".join(text(name) + text(value) for name, value in self.parameters.items())
        body = _INT32.pack(self.version) + fields + b"\0"
        return _INT32.pack(4 + len(body)) + body


First = SSLRequest | GSSENCRequest | CancelRequest | StartupMessage
SSL_REQUEST: Final = struct.pack("!ii", 8, _SSL)


def first(packet: bytes) -> First:
    """Parse a packet without type, with which a connection begins. ``packet`` includes its length."""
    body = Body(packet)
    body.int32()
    code = body.int32()
    if code == _SSL:
        return SSLRequest()
    if code == _GSSENC:
        return GSSENCRequest()
    if code == _CANCEL:
        return CancelRequest(packet[8:], packet)
    if code >> 16 != 3:
        raise ProtocolError(f"unsupported protocol version {code >> 16}.{code & 0xFFFF}")
    parameters = {}
    while name := body.text():
        parameters[name] = body.text()
    return StartupMessage(code, parameters)


# -- messages of the server ------------------------------------------------------------------------------------------


def fields(error: Message) -> dict[str, str]:
    """The fields of an ErrorResponse or NoticeResponse by their letters: ``C`` is the SQLSTATE, ``M`` the message."""
    body, found = Body(error.body), {}
    while (letter := body.byte()) != "\0":
        found[letter] = body.text()
    return found


def error_response(severity: str, sqlstate: str, sentence: str) -> Message:
    said = {"S": severity, "V": severity, "C": sqlstate, "M": sentence}
    return message("E", *(letter.encode() + text(value) for letter, value in said.items()), b"\0")


def rows_of(tag: str) -> int:
    """Number of rows in the tag of a CommandComplete.

    >>> rows_of("INSERT 0 3"), rows_of("COMMIT")
    (3, 0)
    """
    last = tag.rpartition(" ")[2]
    return int(last) if last.isdigit() else 0


def parameter_types(description: Message) -> list[int]:
    """Object ids of the types in a ParameterDescription."""
    body = Body(description.body)
    return [body.int32() for _ in range(body.int16())]


def without_channel_binding(authentication: Message) -> Message:
    """AuthenticationSASL without SCRAM-SHA-256-PLUS, which would bind the login to the channel that ends at the proxy."""
    body = Body(authentication.body)
    if body.int32() != 10:
        return authentication
    mechanisms = []
    while name := body.text():
        mechanisms.append(name)
    kept = [text(each) for each in mechanisms if not each.endswith("-PLUS")]
    return message("R", _INT32.pack(10), *kept, b"\0")


# -- messages of the client ------------------------------------------------------------------------------------------


class Parse(NamedTuple):
    name: str
    sql: str
    types: list[int]


def parse(sent: Message) -> Parse:
    body = Body(sent.body)
    name, sql = body.text(), body.text()
    return Parse(name, sql, [body.int32() for _ in range(body.int16())])


class Bind(NamedTuple):
    portal: str
    statement: str
    formats: list[int]
    values: list[bytes | None]

    def parameters(self, types: list[int]) -> list[str | None]:
        """The values as text. Binary values of unknown types are in hexadecimal, as PostgreSQL writes bytea."""
        return [self._parameter(number, value, types) for number, value in enumerate(self.values)]

    def _parameter(self, number: int, value: bytes | None, types: list[int]) -> str | None:
        if value is None:
            return None
        format = self.formats[number if len(self.formats) > 1 else 0] if self.formats else 0
        if format == 0:
            return value[: 4 * _PARAMETER_CHARS].decode("utf-8", "replace")[:_PARAMETER_CHARS]
        type = types[number] if number < len(types) else 0
        try:
            read = _BINARY[type](value)
        except (KeyError, struct.error, ValueError):
            read = "\\x" + value[:_PARAMETER_CHARS].hex()
        return read[:_PARAMETER_CHARS]


def _integer(value: bytes) -> str:
    return str(int.from_bytes(value, "big", signed=True))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


_BINARY: Final[Mapping[int, Callable[[bytes], str]]] = {
    16: lambda value: "t" if value == b"\1" else "f",
    **dict.fromkeys((20, 21, 23, 26), _integer),
    **dict.fromkeys((18, 19, 25, 114, 1042, 1043), _text),
    700: lambda value: repr(struct.unpack("!f", value)[0]),
    701: lambda value: repr(struct.unpack("!d", value)[0]),
    2950: lambda value: str(uuid.UUID(bytes=value)),
    3802: lambda value: _text(value[1:]),
}
"""Readers of binary values by the type's object id: bool, integers, texts, json, floats, uuid, jsonb (version 1)."""


def bind(sent: Message) -> Bind:
    body = Body(sent.body)
    portal, statement = body.text(), body.text()
    formats = [body.int16() for _ in range(body.int16())]
    sizes = range(body.int16())
    values = [body.take(size) if (size := body.int32()) >= 0 else None for _ in sizes]
    return Bind(portal, statement, formats, values)


def target(sent: Message) -> tuple[str, str]:
    """What a Close or a Describe names: ``S`` and a prepared statement, or ``P`` and a portal."""
    body = Body(sent.body)
    return body.byte(), body.text()


def portal_of(execute: Message) -> str:
    return Body(execute.body).text()


def query(sql: str) -> Message:
    return message("Q", text(sql))


def execute(portal: str) -> Message:
    return message("E", text(portal), _INT32.pack(0))


def one_execution(name: str, sql: str) -> list[Message]:
    """Messages that execute a statement without parameters as ``name``, and leave the client's unnamed statement alone."""
    return [
        message("C", b"S", text(name)),
        message("P", text(name), text(sql), b"\0\0"),
        message("B", text(name), text(name), b"\0\0\0\0\0\0"),
        execute(name),
    ]
