"""Messages of format 0 and 1, which brokers before Kafka 0.11 wrote. Only for files: our broker does not store them.

offset 8, size 4 | CRC-32 4, magic 1, attributes 1, timestamp 8 (format 1), key, value: length 4 (-1: null) and bytes
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final, Self
from zlib import crc32

_HEAD: Final = Struct(">qiIbb")
_TIMESTAMP: Final = Struct(">q")
_LENGTH: Final = Struct(">i")
_OVERHEAD: Final = 12
_CRC_FROM: Final = 16
CODEC_MASK: Final = 7
NO_TIMESTAMP: Final = -1


@dataclass(frozen=True, slots=True)
class OldMessage:
    """One message of format 0 or 1. The value of a compressed message contains other messages."""

    offset: int
    size: int
    """Size in bytes, including offset and size fields."""
    magic: int
    crc: int
    crc_valid: bool
    compression: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @classmethod
    def parse(cls, buffer: memoryview, start: int) -> Self | None:
        """The message at ``start``; None if there is another format, or the message is truncated."""
        try:
            offset, length, crc, magic, attributes = _HEAD.unpack_from(buffer, start)
            end = start + _OVERHEAD + length
            if magic not in (0, 1) or not start + _HEAD.size < end <= len(buffer):
                return None
            at, timestamp = start + _HEAD.size, NO_TIMESTAMP
            if magic == 1:
                (timestamp,) = _TIMESTAMP.unpack_from(buffer, at)
                at += _TIMESTAMP.size
            key, at = _field(buffer, at)
            value, at = _field(buffer, at)
        except StructError:
            return None
        valid = at == end and crc32(buffer[start + _CRC_FROM : end]) == crc
        return cls(offset, end - start, magic, crc, valid, attributes & CODEC_MASK, timestamp, key, value)


def _field(buffer: memoryview, at: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(buffer, at)
    at += _LENGTH.size
    return (None, at) if length < 0 else (bytes(buffer[at : at + length]), at + length)


def build_message(offset: int, timestamp_ms: int, value: bytes) -> bytes:
    """An uncompressed message of format 1 without a key."""
    body = _TIMESTAMP.pack(timestamp_ms) + _LENGTH.pack(-1) + _LENGTH.pack(len(value)) + value
    message = bytearray(_HEAD.pack(offset, _HEAD.size - _OVERHEAD + len(body), 0, 1, 0) + body)
    message[_OVERHEAD:_CRC_FROM] = crc32(message[_CRC_FROM:]).to_bytes(4, "big")
    return bytes(message)
