"""Messages of PostgreSQL's protocol."""

from __future__ import annotations

import struct

import pytest

from odradek.certify.services.postgres import messages
from odradek.certify.services.postgres.messages import (
    CancelRequest,
    Frames,
    GSSENCRequest,
    ProtocolError,
    SSLRequest,
    StartupMessage,
    message,
    text,
)


def packet(code: int, *parts: bytes) -> bytes:
    body = struct.pack("!i", code) + b"".join(parts)
    return struct.pack("!i", 4 + len(body)) + body


def test_messages_are_complete_whatever_the_chunks_are():
    sent = [messages.query("SELECT 1"), message("S"), message("X")]
    stream = b"".join(each.data for each in sent)
    frames = Frames()
    assert [got for byte in stream for got in frames.feed(bytes([byte]))] == sent
    assert frames.feed(stream) == sent


def test_a_length_below_four_is_no_message():
    with pytest.raises(ProtocolError, match="'Q' has length 3"):
        Frames().feed(b"Q\0\0\0\3")


def test_the_first_packets_of_a_connection():
    assert messages.first(messages.SSL_REQUEST) == SSLRequest()
    assert messages.first(packet(80877104)) == GSSENCRequest()
    startup = StartupMessage(3 << 16, {"user": "app", "database": "shop"})
    assert messages.first(startup.encode()) == startup
    sent_by_asyncpg = StartupMessage(3 << 16, {**startup.parameters, "channel_binding": "disable"})
    assert sent_by_asyncpg.for_server("run_1").parameters == {"user": "app", "database": "run_1"}
    assert StartupMessage(3 << 16, {"user": "app"}).database == "app"


@pytest.mark.parametrize("secret", [b"\1\2\3\4", b"k" * 32, b"k" * 256])
def test_the_secret_key_of_a_cancel_request_has_any_length(secret: bytes):
    sent = packet(80877102, b"\0\0\0\7", secret)
    assert messages.first(sent) == CancelRequest(b"\0\0\0\7" + secret, sent)


@pytest.mark.parametrize("sent", [packet(2 << 16), packet(3 << 16, b"user\0"), packet(3 << 16, b"user")])
def test_other_first_packets_are_refused(sent: bytes):
    with pytest.raises(ProtocolError):
        messages.first(sent)


def test_mechanisms_that_bind_the_channel_are_left_out():
    ten = struct.pack("!i", 10)
    offered = message("R", ten, text("SCRAM-SHA-256-PLUS"), text("SCRAM-SHA-256"), b"\0")
    assert messages.without_channel_binding(offered) == message("R", ten, text("SCRAM-SHA-256"), b"\0")
    final = message("R", struct.pack("!i", 12), b"v=...")
    assert messages.without_channel_binding(final) == final


def test_an_error_response_has_the_fields_that_drivers_read():
    error = messages.error_response("FATAL", "57P01", "terminating connection")
    assert messages.fields(error) == {"S": "FATAL", "V": "FATAL", "C": "57P01", "M": "terminating connection"}


def bound(formats: list[int], *values: bytes | None) -> messages.Bind:
    body = text("") + text("s") + struct.pack(f"!h{len(formats)}h", len(formats), *formats)
    body += struct.pack("!h", len(values))
    for each in values:
        body += struct.pack("!i", -1) if each is None else struct.pack("!i", len(each)) + each
    return messages.bind(message("B", body, b"\0\0"))


def test_parameters_are_read_as_text():
    assert bound([], b"1", None, b"\xff").parameters([]) == ["1", None, "\ufffd"]


@pytest.mark.parametrize(
    ("type", "value", "read"),
    [
        (16, b"\1", "t"),
        (20, struct.pack("!q", -5), "-5"),
        (23, struct.pack("!i", 7), "7"),
        (25, b"abc", "abc"),
        (701, struct.pack("!d", 1.5), "1.5"),
        (2950, bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (3802, b'\1{"a": 1}', '{"a": 1}'),
        (1114, b"\0\1", "\\x0001"),
        (701, b"\0", "\\x00"),
    ],
)
def test_binary_parameters_are_read_by_their_types(type: int, value: bytes, read: str):
    assert bound([1], value).parameters([type]) == [read]


def test_a_parameter_of_unknown_type_is_hexadecimal():
    assert bound([0, 1], b"a", b"\1").parameters([]) == ["a", "\\x01"]
