"""Requests and responses of every API in every version, byte for byte compared with kio."""

import copy
import datetime
import io
import random
import struct
import uuid
from contextlib import suppress
from dataclasses import MISSING, fields
from types import GenericAlias, MappingProxyType
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from protocol.codec import MalformedRequest, client_codec, request_codec
from protocol.decode import compile_sliced_decoder
from protocol.encode import compile_sliced_encoder
from protocol.generators import kio_schemas
from protocol.generators.kio_schemas import PLAIN, field_name, shape_of
from protocol.versions import at_version, versions_of
from protocol.wire_types import STRING_BYTES_MAX

MESSAGES_EACH = 4
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "uint32": 32}
CASES = [(key, side) for key in api_key_map for side in ("request", "response")]
UTC = datetime.UTC
ERROR_CODES = list(ErrorCode)


def random_value(rng, kind):
    if kind in BITS:
        bits = BITS[kind]
        low = 0 if kind.startswith("u") else -(1 << (bits - 1))
        return rng.choice((low, 0, 1, low + (1 << bits) - 1, rng.randrange(low, low + (1 << bits))))
    match kind:
        case "bool":
            return rng.random() < 0.5
        case "string":
            return "".join(rng.choices("aZ9-_é漢🎈", k=rng.choice((0, 1, 5, 70))))
        case "bytes" | "records":
            return rng.randbytes(rng.choice((0, 1, 130, 5000)))
        case "uuid":
            return rng.choice((None, uuid.UUID(int=rng.getrandbits(128))))
        case "float64":
            return rng.random()
        case "error_code":
            return rng.choice(ERROR_CODES)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=rng.randrange(-1, 1 << 31))
        case "datetime_i64":
            return datetime.datetime.fromtimestamp(rng.randrange(1 << 31), UTC)
    raise AssertionError(kind)


def random_field(rng, field):
    shape = shape_of(field)
    is_tagged = "tag" in field.metadata
    if is_tagged and field.default is not MISSING and rng.random() < 0.5:
        return field.default
    can_be_null = shape.nullable or (shape.kind == "datetime_i64" and field.default is None)
    if can_be_null and not is_tagged and rng.random() < 0.3:
        return None
    if shape.is_array:
        # 130 elements need a length of two bytes where it is a varint.
        count = rng.choice((0, 1, 2, 3) if shape.inner else (0, 1, 2, 130))
        return tuple(random_element(rng, shape) for _ in range(count))
    return random_element(rng, shape)


def random_element(rng, shape):
    return random_message(rng, shape.inner) if shape.inner else random_value(rng, shape.kind)


def random_message(rng, kio_class):
    return kio_class(**{field.name: random_field(rng, field) for field in fields(kio_class)})


def kio_bytes(message):
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def samples(key, side):
    """Random messages of each version, encoded by kio."""
    load = load_request_schema if side == "request" else load_response_schema
    for version in kio_schemas.versions(key):
        rng = random.Random(f"{key} {version} {side}")
        for _ in range(MESSAGES_EACH):
            yield version, kio_bytes(random_message(rng, load(key, version)))


def codecs(key, version, side):
    """Return (decoder, encoder) of an API version, for ``side``: requests or responses."""
    pair = request_codec(key, version), client_codec(key, version)
    return pair if side == "request" else pair[::-1]


@pytest.mark.parametrize(("key", "side"), CASES)
def test_what_kio_writes_is_read_and_written_back(key, side):
    for version, data in samples(key, side):
        decoder, encoder = codecs(key, version, side)
        message = decoder.decode(data)
        assert b"".join(encoder.encode(message)) == data, (version, message)
        # Decoding in the middle of a frame, from a view.
        assert decoder.decode(memoryview(b"1234567" + data + b"the next frame"), 7) == message


def run(steps):
    """Run the generator ``steps`` to its end. Returns its return value, and how often it yielded."""
    for stops in range(1_000_000):
        try:
            next(steps)
        except StopIteration as end:
            return end.value, stops
    raise AssertionError("the generator did not end after 1,000,000 yields")


@pytest.mark.parametrize(("key", "side"), CASES)
def test_in_slices_the_same_is_read_and_written(key, side):
    version = kio_schemas.versions(key)[-1]
    decode = compile_sliced_decoder(at_version(key, version, side))
    encode = compile_sliced_encoder(at_version(key, version, side))
    decoder = codecs(key, version, side)[0]
    for _, data in (sample for sample in samples(key, side) if sample[0] == version):
        message, _ = run(decode(data, 0, 10_000))
        assert message == decoder.decode(data)
        assert b"".join(run(encode(message))[0]) == data


def readable_by_kio(key, version, side):
    """Our class for one version with the attributes that kio's reader needs."""
    ours = {}

    def collect(message_class):
        ours[message_class.__name__] = message_class
        for field in message_class.__wire__:
            if field.nested:
                collect(field.nested)

    collect(at_version(key, version, side))
    readable: dict[Any, Any] = {}
    for kio_class in kio_schemas.dataclasses_of(key, version, side):
        name = kio_class.__name__
        base = ours.get(f"Response{name}") or ours[name]
        defaults = {field.name: field.default for field in base.__wire__}
        own = {field_name(field): renamed(field, defaults, readable) for field in fields(kio_class)}
        kept = {
            name: getattr(kio_class, name)
            for name in ("__type__", "__version__", "__flexible__", "__api_key__")
        }
        last = readable[kio_class] = type(
            name, (base,), {"__slots__": (), "__dataclass_fields__": own, **kept}
        )
    return last


def renamed(field, defaults, readable):
    """kio's field under our name and with our type: times and error codes are plain integers."""
    own, shape = copy.copy(field), shape_of(field)
    own.name = field_name(field)
    own.default = defaults[own.name]
    if shape.inner:
        inner = readable[shape.inner]
        own.type = GenericAlias(tuple, (inner, ...)) if shape.is_array else inner
        if shape.nullable:
            own.type = own.type | None
    elif shape.kind in PLAIN:
        own.type = tuple[int, ...] if shape.is_array else int
        own.metadata = MappingProxyType({**field.metadata, "kafka_type": PLAIN[shape.kind]})
    return own


@pytest.mark.parametrize(("key", "side"), CASES)
def test_kio_s_reader_makes_the_same_message(key, side):
    for version, data in samples(key, side):
        decoder, _ = codecs(key, version, side)
        expected, size = entity_reader(readable_by_kio(key, version, side))(data, 0)
        assert size == len(data)
        assert decoder.decode(data) == expected


@pytest.mark.parametrize(("key", "side"), CASES)
def test_a_message_cut_anywhere_is_malformed(key, side):
    for version, data in samples(key, side):
        decoder, _ = codecs(key, version, side)
        cuts = (
            range(len(data)) if len(data) < 200 else [*range(100), *range(100, len(data), len(data) // 100)]
        )
        for cut in cuts:
            with pytest.raises(MalformedRequest):
                decoder.decode(data[:cut])


@pytest.mark.parametrize(("key", "side"), CASES)
def test_garbage_is_malformed_or_some_message_and_never_anything_else(key, side):
    rng = random.Random(f"garbage {key} {side}")
    for version, data in samples(key, side):
        decoder, _ = codecs(key, version, side)
        for _ in range(10):
            damaged = bytearray(data[:3000])
            for _ in range(rng.randrange(1, 4)):
                if damaged:
                    position = rng.randrange(min(len(damaged), 200))
                    damaged[position : position + 1] = rng.choice(
                        (b"\xff", b"\x80\x80", struct.pack(">i", -2))
                    )
            with suppress(MalformedRequest):
                decoder.decode(bytes(damaged))


def paths_to_strings(message_class, path=()):
    """The path of fields to each string of a message."""
    for field in message_class.__wire__:
        if field.kind == "string":
            yield (*path, field)
        elif field.kind == "struct":
            yield from paths_to_strings(field.nested, (*path, field))


def message_with_string(message_class, path, text):
    field, *rest = path
    value = message_with_string(field.nested, rest, text) if rest else text
    # Fields whose default is null but that are not nullable in this version.
    others = {
        each.name: ""
        for each in message_class.__wire__
        if each.kind == "string" and each.default is None and not each.nullable
    }
    return message_class.__union__(**(others | {field.name: (value,) if field.is_array else value}))


@pytest.mark.parametrize("side", ["request", "response"])
def test_no_compact_string_is_longer_than_32767_bytes(side):
    """Compact strings of more than 32767 bytes are rejected when reading and writing, in each field of each version, as by
    Kafka's generated classes."""
    longest, checked = "x" * STRING_BYTES_MAX, 0
    written = b"\x80\x80\x02" + longest.encode()
    longer = b"\x81\x80\x02" + b"x" + longest.encode()
    for key in api_key_map:
        for version in versions_of(key):
            message_class = at_version(key, version, side)
            if not message_class.__flexible__:
                continue
            theirs = client_codec(key, version) if side == "request" else request_codec(key, version)
            ours = request_codec(key, version) if side == "request" else client_codec(key, version)
            for path in paths_to_strings(message_class):
                data = b"".join(theirs.encode(message_with_string(message_class, path, longest)))
                assert written in data
                ours.decode(data)
                with pytest.raises(MalformedRequest, match=rf"{path[-1].name} is a string of 32768 bytes"):
                    ours.decode(data.replace(written, longer))
                with pytest.raises(ValueError, match=rf"{path[-1].name} is a string of 32768 bytes"):
                    theirs.encode(message_with_string(message_class, path, longest + "x"))
                checked += 1
    assert checked > 300
