"""The sink's own decoder: its field tables are Kafka's, and bytes that are no answer raise one error and no other."""

import contextlib
import dataclasses
import random
import types
import typing
from importlib import import_module
from typing import Any

import pytest

from odradek.spark.wire import MalformedAnswer, messages
from odradek.spark.wire.messages import Api, decode_answer
from odradek.spark.wire.response_schemas import RESPONSE_SCHEMAS, at_version
from tests.support import raw

APIS = [each for each in vars(messages).values() if isinstance(each, Api)]
VERSIONS = [(api, version) for api in APIS for version in range(api.lowest, api.highest + 1)]
# What kio makes of numbers, and what they are on the wire.
PLAIN = {"error_code": "int16", "timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64"}


def answer_class(api: Api, version: int) -> Any:
    camel = "".join(part.capitalize() for part in api.name.split("_"))
    return getattr(import_module(f"kio.schema.{api.name}.v{version}.response"), f"{camel}Response")


def shape_of(cls: Any) -> dict[str, Any]:
    """What kio says, in the form of answers.py; tagged fields are left out: they are skipped."""
    return {
        field.name: shape_of_field(field.type, field.metadata)
        for field in dataclasses.fields(cls)
        if "tag" not in field.metadata
    }


def shape_of_field(annotation: Any, metadata: Any) -> Any:
    nullable = isinstance(annotation, types.UnionType)
    if nullable:
        [annotation] = [each for each in typing.get_args(annotation) if each is not types.NoneType]
    if typing.get_origin(annotation) is tuple:
        assert not nullable, "a null array is not provided for"
        return [shape_of_field(typing.get_args(annotation)[0], metadata)]
    if dataclasses.is_dataclass(annotation):
        return shape_of(annotation)
    kind = PLAIN.get(metadata["kafka_type"], metadata["kafka_type"])
    return f"?{kind}" if nullable and kind == "string" else kind


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=lambda each: getattr(each, "name", each))
def test_the_fields_are_those_of_the_schema_in_their_order(api, version):
    here, there = at_version(RESPONSE_SCHEMAS[api.name], version), shape_of(answer_class(api, version))
    assert here == there
    assert orders(here) == orders(there)


def orders(shape: Any) -> Any:
    """Dicts are equal in any order."""
    if isinstance(shape, list):
        return [orders(shape[0])]
    return [(name, orders(each)) for name, each in shape.items()] if isinstance(shape, dict) else shape


def random_body(shape: Any, rng: random.Random) -> Any:
    if isinstance(shape, dict):
        return {name: random_body(each, rng) for name, each in shape.items()}
    if isinstance(shape, list):
        return [random_body(shape[0], rng) for _ in range(rng.randrange(4))]
    if shape.startswith("?") and rng.random() < 0.3:
        return None
    kind = shape.removeprefix("?")
    if kind in ("string", "bytes"):
        text = rng.choice(["", "a", "é" * 70, "x" * 20_000])
        return text if kind == "string" else text.encode()
    if kind == "uuid":
        return None
    bits = {"bool": 1, "int16": 16, "int32": 32, "int64": 64}[kind]
    return bool(rng.getrandbits(1)) if bits == 1 else rng.getrandbits(bits) - (1 << bits - 1)


def as_dict(value: Any) -> Any:
    if isinstance(value, types.SimpleNamespace):
        return {name: as_dict(each) for name, each in vars(value).items()}
    if isinstance(value, list):
        return [as_dict(each) for each in value]
    return None if value == bytes(16) else value


def frame_of(api: Api, version: int, seed: int) -> tuple[bytes, dict[str, Any]]:
    body = random_body(at_version(RESPONSE_SCHEMAS[api.name], version), random.Random(seed))
    return raw.encode_response(api.name, version, 7, body), body


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=lambda each: getattr(each, "name", each))
def test_what_another_encoder_has_written_is_read_with_and_without_unknown_tags(api, version):
    for seed in range(30):
        frame, body = frame_of(api, version, seed)
        assert as_dict(decode_answer(api, version, frame, "b:1")) == body
        tagged = raw.with_unknown_tags(api.name, version, frame, {9: b"", 4000: bytes(200)})
        assert as_dict(decode_answer(api, version, tagged, "b:1")) == body


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=lambda each: getattr(each, "name", each))
def test_every_prefix_and_every_flipped_byte_is_an_answer_or_malformed(api, version):
    frame, _ = frame_of(api, version, 1)
    frame = frame[:300]
    broken = [frame[:size] for size in range(4, len(frame))]
    broken += [
        frame[:at] + bytes([byte]) + frame[at + 1 :]
        for at in range(4, len(frame))
        for byte in (0x00, 0x7F, 0x80, 0xFF)
    ]
    for each in broken:
        with contextlib.suppress(MalformedAnswer):
            decode_answer(api, version, each, "b:1")
