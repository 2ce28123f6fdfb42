"""The compiled core and its Python twins read and write the same messages, and raise the same errors."""

import random
import struct
import sys
import tracemalloc
from typing import Any

import pytest

from protocol.core import TWINS, compiled
from protocol.decode import MalformedRequest, compile_decoder
from protocol.encode import compile_encoder
from protocol.frame import FIRST_FLEXIBLE, parse_request_header, request_header, response_header
from protocol.generators import kio_schemas
from protocol.messages import Message
from protocol.program import decoder_of, encoder_of
from protocol.source import ELEMENTS_AT_ONCE, LongMessage
from protocol.versions import at_version
from tests.protocol.test_messages_bytes import CASES, codecs, samples

pytestmark = pytest.mark.skipif(compiled is None, reason="there is no compiled core")

HOSTILE = (
    *(b"\xff", b"\0", b"\x80\x80", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff"),
    *(struct.pack(">i", -2), struct.pack(">i", 1 << 30), struct.pack(">h", -1), b"\x80\x80\x80\x80\x08"),
)


def outcome(function, *arguments):
    """The result of the function with the types of all values, for a comparison; or the type and text of its exception."""
    try:
        return exact(function(*arguments))
    except (struct.error, IndexError):  # the codec raises MalformedRequest for these two
        return (MalformedRequest, "the message ends too early")
    except Exception as error:
        return (type(error), str(error))


def exact(value):
    if isinstance(value, Message):
        return (type(value), *(exact(getattr(value, name)) for name, *_ in value.__fields__))
    if isinstance(value, tuple | list):
        return (type(value), *map(exact, value))
    # NaN is not equal to itself.
    return (type(value), repr(value) if isinstance(value, float) else value)


def damaged(rng, data):
    made = bytearray(data[:4000])
    for _ in range(rng.randrange(1, 4)):
        position = rng.randrange(min(len(made), 300)) if made else 0
        made[position : position + rng.randrange(3)] = rng.choice(
            (*HOSTILE, rng.randbytes(rng.randrange(1, 9)))
        )
    return bytes(made)


def hostile(rng, data, number):
    for _ in range(number):
        yield damaged(rng, data)
        yield data[: rng.randrange(len(data) + 1)]
    yield rng.randbytes(rng.randrange(80))


def check_decoding(key, version, side, number):
    message_class = at_version(key, version, side)
    python, core = compile_decoder(message_class), decoder_of(message_class)
    assert python != core
    rng = random.Random(f"core {key} {version} {side}")
    for data in (data for each, data in samples(key, side) if each == version):
        for each in (data, *hostile(rng, data, number)):
            framed = memoryview(b"1234567" + each)
            expected = outcome(python, each, 0)
            assert outcome(core, each, 0) == expected
            assert outcome(core, framed, 7) == outcome(python, framed, 7)
            assert expected[0] in (message_class, MalformedRequest, LongMessage)


@pytest.mark.parametrize(("key", "side"), CASES)
def test_the_last_version_reads_and_refuses_alike(key, side):
    check_decoding(key, kio_schemas.versions(key)[-1], side, 8)


@pytest.mark.more
@pytest.mark.parametrize(("key", "side"), CASES)
def test_every_version_reads_and_refuses_alike(key, side):
    for version in kio_schemas.versions(key):
        check_decoding(key, version, side, 100)


STRANGE: tuple[Any, ...] = (
    *(None, -1, 1 << 15, 1 << 31, 1 << 63, 1 << 70, True, 1.5, "", "x" * 40_000, "\ud800", b"", b"x" * 5000),
    *(bytearray(b"ab"), memoryview(b"abc"), [], (), [b"a", memoryview(b"bc")], [1], ["a"], {}, object),
)


def distort(rng, message):
    """A copy of the message with unusual or invalid values in one or two fields."""
    made = type(message).__union__()
    fields = [name for name, *_ in message.__fields__]
    for name in fields:
        object.__setattr__(made, name, getattr(message, name))
    for name in rng.sample(fields, min(len(fields), rng.randrange(1, 3))):
        object.__setattr__(made, name, rng.choice(STRANGE))
    return made


@pytest.mark.parametrize(("key", "side"), CASES)
def test_the_last_version_writes_the_same_chunks(key, side):
    check_encoding(key, kio_schemas.versions(key)[-1], side, 8)


@pytest.mark.more
@pytest.mark.parametrize(("key", "side"), CASES)
def test_every_version_writes_the_same_chunks(key, side):
    for version in kio_schemas.versions(key):
        check_encoding(key, version, side, 60)


def check_encoding(key, version, side, number):
    message_class = at_version(key, version, side)
    python, core = compile_encoder(message_class), encoder_of(message_class)
    rng = random.Random(f"core {key} {version} {side}")
    # Messages of all versions: a field that a version lacks is a constant of its class.
    for each, data in samples(key, side):
        decode = codecs(key, each, side)[0].decode
        message, viewed = decode(data), decode(memoryview(data))
        assert outcome(core, message) == outcome(python, message)
        assert outcome(core, viewed) == outcome(python, viewed)
        if each == version:
            for _ in range(number if message.__fields__ else 0):
                strange = distort(rng, message)
                assert outcome(core, strange) == outcome(python, strange)


def test_a_long_message_is_left_to_the_slices():
    message_class = at_version(3, 12, "request")
    topic = b"\0" * 16 + b"\0\0"  # a topic id, no name, no tags
    decode = decoder_of(message_class)
    rest = b"\1\0\0"
    count = ELEMENTS_AT_ONCE
    most = b"".join((struct.pack("BB", (count + 1) & 127 | 128, (count + 1) >> 7), topic * count, rest))
    longer = b"".join(
        (struct.pack("BB", (count + 2) & 127 | 128, (count + 2) >> 7), topic * (count + 1), rest)
    )
    assert len(decode(most, 0).topics) == count
    with pytest.raises(LongMessage):
        decode(longer, 0)


def leak_work():
    """Valid messages of the most used APIs, and bytes that raise errors."""
    for key in (0, 1, 3, 8, 18, 24, 26):
        for side in ("request", "response"):
            version = kio_schemas.versions(key)[-1]
            message_class = at_version(key, version, side)
            python, decode = compile_decoder(message_class), decoder_of(message_class)
            data = [each for found, each in samples(key, side) if found == version]
            sound = [each for each in data if outcome(python, each, 0)[0] is message_class]
            damage = hostile(random.Random(f"leak {key} {side}"), data[-1], 20)
            refused = [each for each in damage if outcome(python, each, 0)[0] is MalformedRequest]
            yield message_class, decode, encoder_of(message_class), sound, refused


def test_what_is_read_holds_no_memory_but_its_own():
    """Decoded messages, rejected bytes and the objects that all messages share leak no memory."""
    work = list(leak_work())
    header = request_header(0, 9, 7, "client")

    def once():
        for _, decode, encode, sound, refused in work:
            for each in sound:
                outcome(encode, decode(memoryview(each), 0))
            for each in refused:
                outcome(decode, each, 0)
        parse_request_header(header)
        outcome(parse_request_header, header[:9])

    check_for_leaks(once, [each[0] for each in work])


def check_for_leaks(once, objects, rounds=400):
    """Check that the number of allocated blocks and the reference counts of shared objects do not grow with each round."""
    shared = [None, True, (), "", *objects]

    def held():
        return [sys.getallocatedblocks(), *map(sys.getrefcount, shared)]

    for _ in range(20):
        once()
    before = held()
    for _ in range(rounds):
        once()
    assert all(after - at_first < rounds for at_first, after in zip(before, held(), strict=True))
    # Large buffers do not count as allocated blocks.
    tracemalloc.start()
    try:
        once()
        bytes_before, _ = tracemalloc.get_traced_memory()
        for _ in range(20):
            once()
        assert tracemalloc.get_traced_memory()[0] - bytes_before < 20 * 500
    finally:
        tracemalloc.stop()


def test_the_header_of_a_response_is_written_alike():
    python = TWINS["response_header"]
    for key in (*FIRST_FLEXIBLE, -1, 95, 256, None, "0"):
        for version in (-1, 0, 1, 2, 3, 8, 9, 13, 1 << 15):
            for correlation_id in (0, -1, (1 << 31) - 1, 1 << 31, None):
                assert outcome(response_header, key, version, correlation_id) == outcome(
                    python, key, version, correlation_id
                )
    assert response_header(0, 9, correlation_id=7) == python(0, 9, 7)


def test_the_header_of_a_request_is_read_and_refused_alike():
    python, core = TWINS["parse_request_header"], parse_request_header
    assert python is not core
    rng = random.Random("header")
    for _ in range(20_000):
        key = rng.choice([*FIRST_FLEXIBLE, -1, 95, 255, 256, 32767])
        client_id = rng.choice([None, b"", b"client", b"\xff\xfe", "é漢🎈".encode(), b"x" * 300])
        length = -1 if client_id is None else len(client_id)
        frame = struct.pack(">hhih", key, rng.randrange(-1, 14), rng.randrange(1 << 31), length)
        frame += (client_id or b"") + rng.choice(
            [b"\0", b"\1\2\3abc", b"\x41", b"\xff", b"\1\x80\x80\x80\x80\x80\x01"]
        )
        for each in (frame, damaged(rng, frame), frame[: rng.randrange(len(frame) + 1)]):
            expected = outcome(python, each)
            assert outcome(core, each) == expected
            assert outcome(core, memoryview(each)) == expected
    assert hash(core(request_header(3, 1, 2, "a"))) == hash(python(request_header(3, 1, 2, "a")))
