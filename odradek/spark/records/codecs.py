"""Decompress the bodies of batches into one buffer, with a limit on the decompressed size.

Kafka's snappy is Java's xerial framing (a magic, two versions, then blocks of raw snappy with their lengths); librdkafka and
other clients send one raw block. Kafka's lz4 is the frame format. The sizes that frames declare are not trusted: a codec
writes into a buffer of this module, which grows if it is too small.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import cramjam
import numpy as np

from odradek.spark.records.heads import Bytes

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16
_LENGTH = struct.Struct(">I")
_TOO_SMALL = "failed to write whole buffer"
_GROWTH = 4
_ROOM_BYTES_MIN = 64 * 1024


class Undecodable(ValueError):
    """A body with invalid compressed data or an unknown codec, or with more decompressed bytes than are allowed."""


class PlainBuffer:
    """A growing buffer of decompressed bodies. ``data[:used]`` are the bodies added since the last ``clear``."""

    def __init__(self, body_bytes_max: int) -> None:
        self.data: Bytes = np.empty(1 << 20, np.uint8)
        self.used = 0
        self._body_bytes_max = body_bytes_max
        self._growth = _GROWTH

    def clear(self) -> None:
        self.used = 0

    def add(self, codec: int, body: Bytes) -> tuple[int, int]:
        """Decompress ``body``; return where its plain bytes begin and end in ``data``."""
        if codec == NONE:
            written = self._copy(body)
        elif codec == SNAPPY:
            written = self._snappy(body)
        elif codec in _INTO:
            written = self._grow_until_it_fits(NAMES[codec], _INTO[codec], body)
        else:
            raise Undecodable(f"compression codec {codec} is unknown")
        start, self.used = self.used, self.used + written
        return start, self.used

    def _room(self, size: int, before: int = 0) -> Bytes:
        """Return writable space of ``size`` bytes, behind the used bytes and ``before`` bytes of a body in progress.

        If the buffer is too small, it is replaced by a larger one, and the used bytes are copied.
        """
        start = self.used + before
        if start + size > len(self.data):
            larger = np.empty(max(2 * len(self.data), start + size), np.uint8)
            larger[:start] = self.data[:start]
            self.data = larger
        return self.data[start : start + size]

    def _copy(self, body: Bytes) -> int:
        self._room(len(body))[:] = body
        return len(body)

    def _grow_until_it_fits(self, name: str, into: Callable[[Any, Any], int], body: Bytes) -> int:
        limit = self._body_bytes_max
        wanted = min(max(len(body) * self._growth, _ROOM_BYTES_MIN), limit)
        while True:
            try:
                written = int(into(body, self._room(wanted)))
            except cramjam.DecompressionError as error:
                if _TOO_SMALL not in str(error):
                    raise Undecodable(f"{name}: {error}") from None
                if wanted == limit:
                    raise self._too_large(name) from None
                wanted = min(wanted * _GROWTH, limit)
            else:
                self._growth = max(_GROWTH, min(2 * written // max(len(body), 1), 64))
                return written

    def _too_large(self, name: str) -> Undecodable:
        return Undecodable(f"{name}: the batch has more than {self._body_bytes_max} decompressed bytes")

    def _snappy(self, body: Bytes) -> int:
        if body[: len(_XERIAL_MAGIC)].tobytes() != _XERIAL_MAGIC:
            return self._snappy_block(body, 0)
        if len(body) < _XERIAL_HEADER_BYTES:
            raise Undecodable("snappy: the xerial header ends early")
        data = body.tobytes()
        written, position = 0, _XERIAL_HEADER_BYTES
        while position < len(data):
            if position + 4 > len(data):
                raise Undecodable("snappy: a block's length ends early")
            (length,) = _LENGTH.unpack_from(data, position)
            position += 4
            if position + length > len(data):
                raise Undecodable("snappy: a block ends early")
            written += self._snappy_block(body[position : position + length], written)
            position += length
        return written

    def _snappy_block(self, block: Any, before: int) -> int:
        """Decompress one raw block; ``before`` is the number of bytes from earlier blocks of the same batch."""
        try:
            size = int(cramjam.snappy.decompress_raw_len(block))
            if before + size > self._body_bytes_max:
                raise self._too_large("snappy")
            if size == 0:
                if len(block) != 1:
                    raise Undecodable("snappy: bytes follow a block of length 0")
                return 0
            return int(_snappy_into(block, self._room(size, before)))
        except cramjam.DecompressionError as error:
            raise Undecodable(f"snappy: {error}") from None


_snappy_into: Callable[[Any, Any], int] = cramjam.snappy.decompress_raw_into
_INTO: dict[int, Callable[[Any, Any], int]] = {
    GZIP: cramjam.gzip.decompress_into,
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}
