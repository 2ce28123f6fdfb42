"""The four compression codecs: what Kafka can read, what its clients send, and what an attacker may send."""

import contextlib
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.compression import (
    CODEC_NAMES,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    CompressionError,
    DecompressedTooLarge,
    compress,
    decompress,
    decompress_apart,
)

CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
COMPRESSED = (GZIP, SNAPPY, LZ4, ZSTD)
PLAIN = b"to be or not to be, " * 10_000


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES)
@given(st.binary(max_size=300), st.integers(0, 2_000))
def test_what_is_compressed_comes_back(codec: int, data: bytes, times: int) -> None:
    plain = data * times
    assert decompress(codec, compress(codec, plain)) == plain


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES)
def test_a_view_is_as_good_as_bytes(codec: int) -> None:
    view = memoryview(b"-" + PLAIN + b"-")[1:-1]
    compressed = compress(codec, view)
    assert decompress(codec, memoryview(b"-" + compressed)[1:]) == PLAIN


@pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES)
def test_the_bound_is_exact(codec: int) -> None:
    compressed = compress(codec, PLAIN)
    assert decompress(codec, compressed, limit=len(PLAIN)) == PLAIN
    with pytest.raises(DecompressedTooLarge, match=CODEC_NAMES[codec]):
        decompress(codec, compressed, limit=len(PLAIN) - 1)


@pytest.mark.parametrize("codec", COMPRESSED, ids=CODEC_NAMES[1:])
@given(st.data())
def test_damage_is_a_compression_error(codec: int, data: st.DataObject) -> None:
    compressed = bytearray(compress(codec, PLAIN[:2_000]))
    cut = bytes(compressed[: data.draw(st.integers(0, len(compressed) - 1))])
    compressed[data.draw(st.integers(0, len(compressed) - 1))] ^= data.draw(st.integers(1, 255))
    for damaged in (cut, bytes(compressed), data.draw(st.binary(max_size=100))):
        with contextlib.suppress(CompressionError):
            decompress(codec, damaged, limit=1_000_000)


@pytest.mark.parametrize("codec", [-1, 5, 7])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(CompressionError, match="unknown"):
        compress(codec, b"")
    with pytest.raises(CompressionError, match="unknown"):
        decompress(codec, b"")


@pytest.mark.parametrize(
    ("codec", "level"), [(GZIP, 1), (GZIP, 9), (LZ4, 1), (LZ4, 17), (ZSTD, 1), (ZSTD, 22)]
)
def test_levels_are_accepted(codec: int, level: int) -> None:
    assert decompress(codec, compress(codec, PLAIN, level)) == PLAIN


def test_a_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(CompressionError, match="gzip"):
        compress(GZIP, PLAIN, 77)


# Data from other implementations


def test_snappy_is_written_in_xerial_framing() -> None:
    assert compress(SNAPPY, b"abc").hex() == "82534e4150505900" + "00000001" * 2 + "00000005" + "0308616263"


def test_raw_snappy_is_read() -> None:
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(PLAIN))) == PLAIN


def test_a_snappy_length_that_is_a_lie_costs_nothing() -> None:
    with pytest.raises(DecompressedTooLarge):
        decompress(SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x", limit=2**31)


def test_lz4_blocks_do_not_depend_on_each_other() -> None:
    compressed = compress(LZ4, PLAIN)
    # Magic number, then version 1 with only the flag "independent blocks". Kafka's reader accepts no other flags.
    assert compressed[:7].hex() == "04224d18604082"
    assert compressed[-4:] == bytes(4)


def test_lz4_frames_of_other_clients_are_read() -> None:
    linked = bytes(cramjam.lz4.compress(PLAIN))
    assert decompress(LZ4, linked) == PLAIN
    assert decompress(LZ4, linked + compress(LZ4, b"more")) == PLAIN + b"more"


def test_what_does_not_compress_is_stored() -> None:
    noise = zlib.compress(PLAIN + bytes(range(256)) * 7, 9)
    assert len(compress(LZ4, noise)) <= len(noise) + 15


def test_gzip_members_in_a_row_are_read() -> None:
    assert decompress(GZIP, compress(GZIP, b"one ") + compress(GZIP, b"two")) == b"one two"


def test_zstd_frames_in_a_row_are_read() -> None:
    assert decompress(ZSTD, compress(ZSTD, b"one ") + compress(ZSTD, b"two")) == b"one two"


@pytest.mark.parametrize("codec", COMPRESSED, ids=CODEC_NAMES[1:])
def test_nothing_is_not_a_compressed_nothing(codec: int) -> None:
    with pytest.raises(CompressionError):
        decompress(codec, b"")
    assert decompress(codec, compress(codec, b"")) == b""


@pytest.mark.parametrize("codec", COMPRESSED, ids=CODEC_NAMES[1:])
@pytest.mark.parametrize("plain", [b"", b"x", PLAIN, bytes(3_000_000)], ids=["none", "one", "text", "zeros"])
def test_beside_the_loop_the_same_comes_out(codec: int, plain: bytes) -> None:
    compressed = compress(codec, plain)
    assert bytes(decompress_apart(codec, compressed, max(len(plain), 1))) == plain
    if plain:
        with pytest.raises(DecompressedTooLarge, match=CODEC_NAMES[codec]):
            decompress_apart(codec, compressed, len(plain) - 1)
    for damaged in (compressed[:-1], b"\0garbage" * 4, b""):
        outcomes: list[object] = []
        for function in (decompress, decompress_apart):
            try:
                outcomes.append(bytes(function(codec, damaged, 4_000_000)))
            except CompressionError as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1]


def test_members_of_gzip_in_a_row_beside_the_loop() -> None:
    compressed = compress(GZIP, PLAIN) + compress(GZIP, b"end")
    assert bytes(decompress_apart(GZIP, compressed, 1 << 20)) == PLAIN + b"end"


def test_an_unknown_codec_beside_the_loop() -> None:
    with pytest.raises(CompressionError, match="unknown compression codec 6"):
        decompress_apart(6, b"x", 10)
