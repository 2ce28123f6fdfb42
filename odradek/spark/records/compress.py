"""Kafka's four compression codecs, as Kafka's Java clients read them.

Two of them differ from what libraries write by default: snappy is xerial's framing (blocks of raw snappy with their
lengths), and lz4 is a frame of independent blocks, because Kafka reads no other (Lz4BlockInputStream.java).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from struct import Struct
from typing import Any

import cramjam

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

_XERIAL_HEADER = b"\x82SNAPPY\0" + b"\0\0\0\1\0\0\0\1"
_XERIAL_BLOCK_BYTES = 32 * 1024
_XERIAL_LENGTH = Struct(">I")

# Magic; version 1, independent blocks, no checksums; blocks of 64 KiB; the header checksum of the two bytes before.
_LZ4_HEADER = bytes.fromhex("04224d18 6040 82")
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_LENGTH = Struct("<I")
_LZ4_STORED = 0x8000_0000
_LZ4_END = bytes(4)

Buffer = Any


def compress(codec: str, data: Buffer) -> bytes:
    """Compress ``data`` (any buffer) with one of ``CODECS``, at Kafka's default level."""
    return _COMPRESS[codec](memoryview(data))


def _gzip(data: memoryview) -> bytes:
    compressor = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


def _snappy(data: memoryview) -> bytes:
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        pieces += (_XERIAL_LENGTH.pack(len(block)), block)
    return b"".join(pieces)


def _lz4(data: memoryview) -> bytes:
    pieces = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        plain = data[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            pieces += (_LZ4_LENGTH.pack(len(block)), block)
        else:
            pieces += (_LZ4_LENGTH.pack(len(plain) | _LZ4_STORED), bytes(plain))
    pieces.append(_LZ4_END)
    return b"".join(pieces)


def _zstd(data: memoryview) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=3))


_COMPRESS: dict[str, Callable[[memoryview], bytes]] = {
    "none": bytes,
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": _lz4,
    "zstd": _zstd,
}
