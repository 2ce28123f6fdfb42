"""Parser for DER (X.690), as far as certificates, names and encrypted keys need it. Pure."""

from __future__ import annotations

from typing import Final

from protocol.named_tuple import NamedTuple

INTEGER: Final = 0x02
OCTET_STRING: Final = 0x04
OBJECT_IDENTIFIER: Final = 0x06
SEQUENCE: Final = 0x30


class NotDer(ValueError):
    """The bytes are truncated, or not DER."""


class Value(NamedTuple):
    """One value: its tag, its content, and its complete encoding."""

    tag: int
    content: bytes
    encoded: bytes


def members(data: bytes, least: int = 0) -> list[Value]:
    """Members of the single sequence in ``data``. Raises `NotDer` if there are fewer than ``least``."""
    found = values(data)
    if len(found) != 1 or found[0].tag != SEQUENCE:
        raise NotDer("the bytes are not a DER sequence")
    inner = values(found[0].content)
    if len(inner) < least:
        raise NotDer("a sequence has too few members")
    return inner


def values(data: bytes) -> list[Value]:
    """Consecutive values, such as the members of a sequence.

    >>> [(each.tag, each.content) for each in values(bytes.fromhex("0201050c0161"))]
    [(2, b'\\x05'), (12, b'a')]
    """
    found, at = [], 0
    while at < len(data):
        start, (length, at) = at, _length(data, at + 1)
        if data[start] & 0x1F == 0x1F or at + length > len(data):
            raise NotDer("a value is longer than the remaining bytes")
        found.append(Value(data[start], data[at : at + length], data[start : at + length]))
        at += length
    return found


def _length(data: bytes, at: int) -> tuple[int, int]:
    """(length at the offset ``at``, offset after the length's bytes)."""
    if at >= len(data):
        raise NotDer("a value has no length")
    if data[at] < 0x80:
        return data[at], at + 1
    end = at + 1 + (data[at] & 0x7F)
    if data[at] == 0x80 or end > len(data):
        raise NotDer("a length field is empty or truncated")
    return int.from_bytes(data[at + 1 : end], "big"), end


def encode(tag: int, *contents: bytes) -> bytes:
    """Encode a value, whose content is ``contents`` joined.

    >>> encode(SEQUENCE, encode(INTEGER, b"\\x05"), encode(OCTET_STRING, b"ab")).hex()
    '300702010504026162'
    """
    content = b"".join(contents)
    if len(content) < 0x80:
        return bytes((tag, len(content))) + content
    length = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def dotted(identifier: bytes) -> str:
    """Dotted text of an object identifier's content.

    >>> dotted(bytes.fromhex("2a864886f70d010901"))
    '1.2.840.113549.1.9.1'
    """
    arcs, arc = [], 0
    for octet in identifier:
        arc = arc << 7 | octet & 0x7F
        if not octet & 0x80:
            arcs.append(arc)
            arc = 0
    if not arcs or identifier[-1] & 0x80:
        raise NotDer("the bytes are not an object identifier")
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))
