"""The message schemas of the kio package."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, is_dataclass
from datetime import timedelta
from types import NoneType, UnionType
from typing import Any, Final, Literal, get_args, get_origin

from kio.index import load_payload_module
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from protocol.generators.wire import ZERO, WireClass, WireField
from protocol.versions import Side

# kio converts these to datetime, timedelta and ErrorCode objects, and raises for values that occur in Kafka: a start time
# of -1, a negative timeout, an error code of a later release. Here they are plain integers.
PLAIN: Final = {
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
    "error_code": "int16",
}
IN_MILLISECONDS: Final = ("timedelta_i32", "timedelta_i64", "datetime_i64")


@dataclass(frozen=True, slots=True)
class Shape:
    """The type of one field in kio's metadata."""

    kind: str  # a kafka_type of kio, or "struct"
    is_array: bool
    nullable: bool  # whether the array (if the field is one) or else the value may be null
    inner: type | None  # kio's class of the struct


def shape_of(field: dataclasses.Field[Any]) -> Shape:
    """The type in kio's annotation of a field: ``X``, ``X | None``, ``tuple[X, ...] (| None)``."""
    annotation, nullable = _without_none(field.type)
    is_array = get_origin(annotation) is tuple
    if is_array:
        annotation, _ = _without_none(get_args(annotation)[0])
    if is_dataclass(annotation):
        assert isinstance(annotation, type)
        return Shape("struct", is_array, nullable, annotation)
    kind = field.metadata["kafka_type"]
    # Kafka has no null uuid (kio reads the zero uuid as None), and a null time is -1.
    if not is_array and kind in ("uuid", "datetime_i64"):
        nullable = False
    return Shape(kind, is_array, nullable, None)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) is not UnionType:
        return annotation, False
    (rest,) = (part for part in get_args(annotation) if part is not NoneType)
    return rest, True


def field_name(field: dataclasses.Field[Any]) -> str:
    """kio's name of the field, with the suffix ``_ms`` if the value is a time or a duration."""
    if field.metadata.get("kafka_type") in IN_MILLISECONDS and not field.name.endswith("_ms"):
        return field.name + "_ms"
    return field.name


def versions(key: int) -> list[int]:
    """The versions of an API in kio, ascending; empty if kio lacks the API."""
    return sorted(schema_name_map[api_key_map[key]]) if key in api_key_map else []


def dataclasses_of(key: int, version: int, side: Side) -> Iterator[Any]:
    """kio's dataclasses of one version. Nested classes precede those that contain them; the message itself is the last."""
    module = load_payload_module(key, version, _entity_type(side))
    for value in vars(module).values():
        if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.__name__:
            yield value


def _entity_type(side: Side) -> Literal[EntityType.request, EntityType.response]:
    return EntityType.request if side == "request" else EntityType.response


def classes(key: int, version: int, side: Side) -> list[WireClass]:
    """The classes of a message in one version, in the order of `dataclasses_of`."""
    return [
        WireClass(each.__name__, each.__flexible__, tuple(_field(wire) for wire in dataclasses.fields(each)))
        for each in dataclasses_of(key, version, side)
    ]


def _field(wire: dataclasses.Field[Any]) -> WireField:
    shape = shape_of(wire)
    return WireField(
        field_name(wire),
        shape.inner.__name__ if shape.inner else PLAIN.get(shape.kind, shape.kind),
        shape.is_array,
        shape.nullable,
        wire.metadata.get("tag"),
        _default(wire.default, shape),
    )


def _default(default: Any, shape: Shape) -> str:
    if shape.is_array:
        return "None" if default is None else "()"
    if shape.inner and not shape.nullable:
        if default is not MISSING:
            assert default == shape.inner(), (
                f"the default of {shape.inner.__name__} differs from those of its fields"
            )
        return ""
    if shape.kind == "datetime_i64":
        return "-1" if default is None else "0"
    if isinstance(default, timedelta):
        return str(round(default.total_seconds() * 1000))
    if default is MISSING:
        return "None" if shape.nullable else ZERO.get(shape.kind, "0")
    if isinstance(default, str):
        return f'"{default}"'
    if default is None or isinstance(default, bytes | bool | float):
        return repr(default)
    return str(int(default))
