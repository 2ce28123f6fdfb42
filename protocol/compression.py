"""Kafka's four compression codecs, with a limit on the size of decompressed data.

Two formats differ from what the libraries write by default:

- snappy is Java's xerial framing: a magic, two versions, then blocks of raw snappy, each preceded by its length. librdkafka
  and others send one raw block. Both are read.
- lz4 is the frame format. Kafka's reader rejects frames with dependent blocks, which liblz4 and cramjam write. So the frame
  is assembled here, with the same header as Kafka's.
"""

import contextlib
import mmap
import zlib
from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import TypeGuard

import cramjam

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024

GZIP_LEVEL_DEFAULT = -1
LZ4_LEVEL_DEFAULT = 9
ZSTD_LEVEL_DEFAULT = 3

_GZIP_WINDOW_BITS = 16 + zlib.MAX_WBITS
_GZIP_PIECE_BYTES = 16 * 1024

_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"
_XERIAL_BLOCK_BYTES = 32 * 1024
_XERIAL_LENGTH = Struct(">I")

# Magic; version 1 with independent blocks and no checksums, 64 KiB blocks; the checksum of both bytes.
_LZ4_HEADER = bytes.fromhex("04224d18 6040 82")
_LZ4_FLAGS_AT = 4
_LZ4_INDEPENDENT = 0x20
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_LENGTH = Struct("<I")
_LZ4_STORED = 0x8000_0000
_LZ4_END = bytes(4)

# First guess of the factor by which data grows when it is decompressed. The next guess is four times as large.
_GROWTH_GUESS = 4
_GUESS_BYTES_MIN = 16 * 1024
_OUTPUT_TOO_SMALL = "failed to write whole buffer"


class CompressionError(ValueError):
    """Bytes that are not valid output of the codec, an unknown codec, or decompressed data beyond the limit."""


class DecompressedTooLarge(CompressionError):
    """The decompressed data would be larger than the caller allows."""


def compress(codec_id: int, data: bytes | memoryview, level: int | None = None) -> bytes:
    """Compress `data` with the given codec, so that Kafka's own clients can read it."""
    if codec_id == NONE:
        return bytes(data)
    try:
        compressor = _COMPRESSORS[codec_id]
    except KeyError:
        raise CompressionError(f"unknown compression codec {codec_id}") from None
    try:
        return compressor(data, level)
    except (cramjam.CompressionError, zlib.error, ValueError) as error:
        raise CompressionError(f"{CODEC_NAMES[codec_id]}: {error}") from None


def decompress(codec_id: int, data: bytes | memoryview, limit: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Decompress `data`. Raises `DecompressedTooLarge` if the result has more than `limit` bytes."""
    if codec_id == NONE:
        if len(data) > limit:
            raise _too_large("none", limit)
        return bytes(data)
    try:
        decompressor = _DECOMPRESSORS[codec_id]
    except KeyError:
        raise CompressionError(f"unknown compression codec {codec_id}") from None
    return decompressor(data, limit)


def decompress_apart(codec_id: int, data: bytes | memoryview, limit: int) -> memoryview:
    """Like `decompress`, for use in a thread: it does not block the event loop and other threads.

    The output is a memory mapping, whose pages the system provides when they are touched. A ``bytearray`` of 100 MB would be
    cleared in one step, and ``bytes`` copied in one step, and nothing else in the process could run meanwhile.
    """
    filler = _FILLERS.get(codec_id)
    if filler is None:
        raise CompressionError(f"unknown compression codec {codec_id}")
    output = mmap.mmap(-1, limit + 1)
    try:
        written = filler(data, output)
        if written > limit:
            raise _too_large(CODEC_NAMES[codec_id], limit)
    except (cramjam.DecompressionError, zlib.error) as error:
        output.close()
        if _OUTPUT_TOO_SMALL in str(error):
            raise _too_large(CODEC_NAMES[codec_id], limit) from None
        raise CompressionError(f"{CODEC_NAMES[codec_id]}: {error}") from None
    except CompressionError:
        output.close()
        raise
    return memoryview(output)[:written].toreadonly()


def is_apart(plain: bytes | memoryview) -> TypeGuard[memoryview]:
    """Whether `decompress_apart` has created these bytes. Then a thread should free them with `give_back`."""
    return isinstance(plain, memoryview) and isinstance(plain.obj, mmap.mmap)


def give_back(plain: memoryview) -> None:
    """Free the pages of a result of `decompress_apart`, which takes 25 ms for 100 MB. Do not use the result afterwards."""
    pages = plain.obj
    plain.release()
    assert isinstance(pages, mmap.mmap)
    with contextlib.suppress(BufferError):  # there is still a view, whose end frees them
        pages.close()


def _too_large(name: str, limit: int) -> DecompressedTooLarge:
    return DecompressedTooLarge(f"{name} data decompresses to more than {limit} bytes")


# gzip: zlib can limit its output.


def _gzip(data: bytes | memoryview, level: int | None) -> bytes:
    chosen = GZIP_LEVEL_DEFAULT if level is None else level
    compressor = zlib.compressobj(chosen, zlib.DEFLATED, _GZIP_WINDOW_BITS)
    return compressor.compress(data) + compressor.flush()


def _gunzip(data: bytes | memoryview, limit: int) -> bytes:
    out = []
    room = limit
    rest: bytes | memoryview = data
    while rest:  # a gzip file may consist of several members
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        try:
            plain = member.decompress(rest, room + 1)
        except zlib.error as error:
            raise CompressionError(f"gzip: {error}") from None
        room -= len(plain)
        if room < 0:
            raise _too_large("gzip", limit)
        if not member.eof:
            raise CompressionError("gzip: the data ends early")
        out.append(plain)
        rest = member.unused_data
    if not out:
        raise CompressionError("gzip: no data")
    return b"".join(out)


def _gunzip_into(data: bytes | memoryview, output: mmap.mmap) -> int:
    """Decompress into ``output``, and stop when it is full. Returns the number of bytes written."""
    source, position, room = memoryview(data), 0, len(output)
    if not source:
        raise CompressionError("gzip: no data")
    while position < len(source):
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        rest: bytes | memoryview = b""
        while not member.eof:
            if not rest:
                rest = source[position : position + _GZIP_PIECE_BYTES]
                position += len(rest)
            if not rest:
                raise CompressionError("gzip: the data ends early")
            plain = member.decompress(rest, min(_GZIP_PIECE_BYTES * 16, room))
            output.write(plain)
            room -= len(plain)
            if room == 0:
                return len(output)
            rest = member.unconsumed_tail
        position -= len(member.unused_data)
    return len(output) - room


# snappy


def _snap(data: bytes | memoryview, level: int | None) -> bytes:
    out = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        out += (_XERIAL_LENGTH.pack(len(block)), block)
    return b"".join(out)


def _unsnap(data: bytes | memoryview, limit: int) -> bytes:
    if data[:8] != _XERIAL_MAGIC:
        return _unsnap_block(data, limit, limit)
    out = []
    room = limit
    for block in _xerial_blocks(data):
        plain = _unsnap_block(block, room, limit)
        out.append(plain)
        room -= len(plain)
    return b"".join(out)


def _xerial_blocks(data: bytes | memoryview) -> Iterator[bytes | memoryview]:
    if len(data) < len(_XERIAL_HEADER):
        raise CompressionError("snappy: the xerial header ends early")
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if position + 4 > len(data):
            raise CompressionError("snappy: a block length ends early")
        (length,) = _XERIAL_LENGTH.unpack_from(data, position)
        position += 4
        if position + length > len(data):
            raise CompressionError("snappy: a block ends early")
        yield data[position : position + length]
        position += length


def _unsnap_into(data: bytes | memoryview, output: mmap.mmap) -> int:
    room = len(output)
    if bytes(data[:8]) != _XERIAL_MAGIC:
        blocks: Iterable[bytes | memoryview] = (data,)
    else:
        blocks = _xerial_blocks(data)
    with memoryview(output) as target:
        for block in blocks:
            size = cramjam.snappy.decompress_raw_len(block)
            if size > room:
                return len(output)
            start = len(output) - room
            with target[start : start + size] as place:
                cramjam.snappy.decompress_raw_into(block, place)
            room -= size
    return len(output) - room


def _unsnap_block(block: bytes | memoryview, room: int, limit: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(block) > room:
            raise _too_large("snappy", limit)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CompressionError(str(error)) from None


# lz4


def _lz4(data: bytes | memoryview, level: int | None) -> bytes:
    out: list[bytes | memoryview] = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        plain = data[start : start + _LZ4_BLOCK_BYTES]
        block = _lz4_block(plain, level)
        if len(block) < len(plain):
            out += (_LZ4_LENGTH.pack(len(block)), block)
        else:
            out += (_LZ4_LENGTH.pack(len(plain) | _LZ4_STORED), plain)
    out.append(_LZ4_END)
    return b"".join(out)


def _lz4_block(plain: bytes | memoryview, level: int | None) -> bytes:
    if level is None or level == LZ4_LEVEL_DEFAULT:
        # Kafka, too, uses the fast compressor at the default level and the high compressor at any other.
        return bytes(cramjam.lz4.compress_block(plain, store_size=False))
    return bytes(
        cramjam.lz4.compress_block(plain, mode="high_compression", compression=level, store_size=False)
    )


def has_dependent_blocks(codec_id: int, data: bytes | memoryview) -> bool:
    """Whether this is an LZ4 frame with dependent blocks, which Kafka's reader rejects (``Lz4BlockInputStream``)."""
    return codec_id == LZ4 and len(data) > _LZ4_FLAGS_AT and not data[_LZ4_FLAGS_AT] & _LZ4_INDEPENDENT


def _unlz4(data: bytes | memoryview, limit: int) -> bytes:
    return _grow_until_it_fits(cramjam.lz4.decompress_into, "lz4", data, limit)


# zstd


def _zstd(data: bytes | memoryview, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL_DEFAULT if level is None else level))


def _unzstd(data: bytes | memoryview, limit: int) -> bytes:
    return _grow_until_it_fits(cramjam.zstd.decompress_into, "zstd", data, limit)


def _grow_until_it_fits(
    decompress_into: Callable[[bytes | memoryview, bytearray], int],
    name: str,
    data: bytes | memoryview,
    limit: int,
) -> bytes:
    """Decompress into buffers of growing size, because the library cannot limit its output."""
    room = min(max(len(data) * _GROWTH_GUESS, _GUESS_BYTES_MIN), limit)
    while True:
        output = bytearray(room)
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_TOO_SMALL not in str(error):
                raise CompressionError(f"{name}: {error}") from None
            if room == limit:
                raise _too_large(name, limit) from None
            room = min(room * 4, limit)
        else:
            return bytes(memoryview(output)[:written])


_COMPRESSORS: dict[int, Callable[[bytes | memoryview, int | None], bytes]] = {
    GZIP: _gzip,
    SNAPPY: _snap,
    LZ4: _lz4,
    ZSTD: _zstd,
}
_DECOMPRESSORS: dict[int, Callable[[bytes | memoryview, int], bytes]] = {
    GZIP: _gunzip,
    SNAPPY: _unsnap,
    LZ4: _unlz4,
    ZSTD: _unzstd,
}
_FILLERS: dict[int, Callable[[bytes | memoryview, mmap.mmap], int]] = {
    GZIP: _gunzip_into,
    SNAPPY: _unsnap_into,
    LZ4: lambda data, output: cramjam.lz4.decompress_into(data, output),
    ZSTD: lambda data, output: cramjam.zstd.decompress_into(data, output),
}
