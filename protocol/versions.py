"""One message class per API, any version on the wire.

kio has a class per version (eleven ``ProduceResponse``s). The rest of this code wants one, so
``protocol/messages`` holds classes with the union of all fields, and ``at_version`` derives from such a
class, for one version, a subclass whose dataclass fields are exactly those that the version has.
Encoder and decoder are compiled from its ``__wire__`` table; kio's own reader and writer can use it too.
A field that the version lacks is a constant of the subclass: it reads as its default.

What a version has is read off the metadata of kio's own dataclass fields, by the few functions here.
"""

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cache
from importlib import import_module
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

from kio.index import load_payload_module
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

Side = Literal["request", "response"]

# kio turns these into datetime, timedelta and ErrorCode objects, and raises for values that Kafka puts on
# the wire all the same: a start time of -1, a negative timeout, an error code of a later release. We read
# and write them as the plain integers that they are.
PLAIN = {"timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64", "error_code": "int16"}
IN_MILLISECONDS = ("timedelta_i32", "timedelta_i64", "datetime_i64")


class UnknownVersion(KeyError):
    """No such API, or no such version of it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What kio's metadata say about one field."""

    kind: str  # a kafka_type of kio, or "struct"
    is_array: bool
    nullable: bool  # the array, if it is one; else the value
    inner: type | None  # kio's class of the struct


@dataclass(frozen=True, slots=True)
class WireField:
    """One field of one version, as encoder and decoder need it. ``PLAIN`` kinds are replaced."""

    name: str
    kind: str
    is_array: bool
    nullable: bool
    tag: int | None
    default: Any
    nested: Any = None  # the derived class, if kind is "struct"


def shape_of(field: dataclasses.Field[Any]) -> Shape:
    """Read the type annotation that kio gave a field: ``X``, ``X | None``, ``tuple[X, ...] (| None)``."""
    annotation, nullable = _without_none(field.type)
    is_array = get_origin(annotation) is tuple
    if is_array:
        annotation, _ = _without_none(get_args(annotation)[0])
    if is_dataclass(annotation):
        assert isinstance(annotation, type)
        return Shape("struct", is_array, nullable, annotation)
    kind = field.metadata["kafka_type"]
    # Kafka has no null uuid (kio reads the zero uuid as None), and a null time is just -1.
    if not is_array and kind in ("uuid", "datetime_i64"):
        nullable = False
    return Shape(kind, is_array, nullable, None)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) is not UnionType:
        return annotation, False
    (rest,) = (part for part in get_args(annotation) if part is not NoneType)
    return rest, True


def field_name(field: dataclasses.Field[Any]) -> str:
    """kio's name, with its unit when the value is a time or a duration (``max_wait_ms``)."""
    if field.metadata.get("kafka_type") in IN_MILLISECONDS and not field.name.endswith("_ms"):
        return field.name + "_ms"
    return field.name


def versions_of(key: int) -> Sequence[int]:
    """The versions of an API that kio has, ascending."""
    try:
        return sorted(schema_name_map[api_key_map[key]])
    except KeyError:
        raise UnknownVersion(f"no API has the key {key}") from None


def kio_classes(key: int, version: int, side: Side) -> Iterator[Any]:
    """kio's dataclasses of one version, what is nested before what holds it, the message itself last."""
    if version not in versions_of(key):
        raise UnknownVersion(f"{api_key_map[key]} (key {key}) has no version {version}")
    module = load_payload_module(key, version, _entity_type(side))
    for value in vars(module).values():
        if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.__name__:
            yield value


def _entity_type(side: Side) -> Literal[EntityType.request, EntityType.response]:
    return EntityType.request if side == "request" else EntityType.response


def class_named(module: Any, name: str, side: Side) -> Any:
    """Our class for kio's ``name``. Where request and response of one API both have a class of that name,
    the response's is called ``Response<name>`` in our module."""
    if side == "response" and hasattr(module, f"Response{name}"):
        return getattr(module, f"Response{name}")
    return getattr(module, name)


@cache
def at_version(key: int, version: int, side: Side) -> Any:
    """The message class of one version: a subclass of the one in ``protocol.messages``."""
    derived: dict[type, Any] = {}
    last: Any = None
    for wire_class in kio_classes(key, version, side):
        module = import_module(f"protocol.messages.{api_key_map[key]}")
        base = class_named(module, wire_class.__name__, side)
        last = derived[wire_class] = _derive(base, wire_class, derived)
    return last


def _derive(base: Any, wire_class: Any, derived: dict[type, Any]) -> Any:
    defaults = {field.name: field.default for field in dataclasses.fields(base)}
    own: dict[str, dataclasses.Field[Any]] = {}
    wire: list[WireField] = []
    for field in dataclasses.fields(wire_class):
        shape, name = shape_of(field), field_name(field)
        nested = derived[shape.inner] if shape.inner else None
        own[name] = _rename(field, shape, name, defaults[name], nested)
        kind = PLAIN.get(shape.kind, shape.kind)
        tag = field.metadata.get("tag")
        wire.append(WireField(name, kind, shape.is_array, shape.nullable, tag, defaults[name], nested))
    absent = {name: default for name, default in defaults.items() if name not in own}
    namespace = {
        "__slots__": (),
        "__module__": base.__module__,
        "__eq__": _equal,
        "__hash__": base.__hash__,
        "__dataclass_fields__": own,
        "__wire__": tuple(wire),
        "__union__": base,
        "__type__": wire_class.__type__,
        "__version__": wire_class.__version__,
        "__flexible__": wire_class.__flexible__,
        "__api_key__": wire_class.__api_key__,
        # What is shared as a default is frozen; what was just read need not be, and is filled field by field.
        "__setattr__": object.__setattr__,
        # These shadow the slots of the base class, so that the default is what an instance shows.
        **absent,
    }
    return type(base.__name__, (base,), namespace)


def _rename(
    field: dataclasses.Field[Any], shape: Shape, name: str, default: Any, nested: Any
) -> dataclasses.Field[Any]:
    """kio's field under our name, with types in the shape that kio's reader understands."""
    own = copy.copy(field)
    own.name, own.default = name, default
    if nested is not None:
        own.type = tuple[nested, ...] if shape.is_array else nested
        if shape.nullable:
            own.type = own.type | None
    elif shape.kind in PLAIN:
        own.type = tuple[int, ...] if shape.is_array else int
        own.metadata = MappingProxyType({**field.metadata, "kafka_type": PLAIN[shape.kind]})
    return own


def _equal(self: Any, other: object) -> bool:
    """A message that was read equals the same message built by hand, of whatever version it was read."""
    base = self.__union__
    return isinstance(other, base) and all(
        _same(getattr(self, field.name), getattr(other, field.name)) for field in dataclasses.fields(base)
    )


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, tuple | list) and isinstance(right, tuple | list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)
