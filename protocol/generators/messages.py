"""Generates the message classes of every API from those of the kio package: ``python -m protocol.generators.messages``.

In no API does a field change its wire type between versions. Fields are only added or removed (``merge`` asserts it), so one
class can have the union of all versions. The result is checked in. A test generates it again and compares. Apart from this
program a broker does not need kio's classes: importing the classes of one version takes longer than everything else in the
first request of that version (ADR 4).

Classes and fields have kio's names, except that
- a time or duration is an ``int`` of milliseconds and its name ends in ``_ms``,
- if request and response of an API both have a nested class of the same name, the class of the response is called
  ``Response<name>`` (as ``ResponseCursor`` of describe_topic_partitions).
"""

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, is_dataclass
from datetime import timedelta
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

from kio.index import load_payload_module
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from protocol.versions import Side, message_name

SIDES: tuple[Side, ...] = ("request", "response")
PYTHON_TYPE = {"string": "str", "bytes": "bytes", "bool": "bool", "uuid": "UUID | None", "float64": "float"}
ZERO: dict[str, object] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "uuid": None,
    "float64": 0.0,
}
# kio converts these to datetime, timedelta and ErrorCode objects, and raises for values that occur in Kafka: a start time
# of -1, a negative timeout, an error code of a later release. Here they are plain integers.
PLAIN = {"timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64", "error_code": "int16"}
IN_MILLISECONDS = ("timedelta_i32", "timedelta_i64", "datetime_i64")


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
    """kio's name of the field, with the suffix ``_ms`` if the value is a time or a duration (``max_wait_ms``)."""
    if field.metadata.get("kafka_type") in IN_MILLISECONDS and not field.name.endswith("_ms"):
        return field.name + "_ms"
    return field.name


def kio_versions(key: int) -> list[int]:
    """The versions of an API in kio, ascending."""
    return sorted(schema_name_map[api_key_map[key]])


def kio_classes(key: int, version: int, side: Side) -> Iterator[Any]:
    """kio's dataclasses of one version. Nested classes precede those that contain them; the message itself is the last."""
    module = load_payload_module(key, version, _entity_type(side))
    for value in vars(module).values():
        if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.__name__:
            yield value


def _entity_type(side: Side) -> Literal[EntityType.request, EntityType.response]:
    return EntityType.request if side == "request" else EntityType.response


@dataclass
class UnionField:
    """The declaration of one field, merged from all versions that have the field."""

    name: str
    kind: str
    is_array: bool
    nullable_since: int | None  # once a field may be null, it may be null in all later versions
    tag: int | None
    default: object  # kio's default, or MISSING
    inner: str | None  # kio's name of the struct
    versions: list[int]

    @property
    def nullable(self) -> bool:
        """Whether the field may be null in at least one version."""
        return self.nullable_since is not None

    def merge(self, shape: Shape, wire: dataclasses.Field[Any], version: int) -> None:
        same = (self.kind, self.is_array, self.tag) == (shape.kind, shape.is_array, wire.metadata.get("tag"))
        assert same, f"{self.name} changes its type"
        assert self.versions[-1] == version - 1, f"{self.name} goes and comes back"
        assert shape.nullable or not self.nullable, f"{self.name} may be null no longer"
        if shape.nullable and not self.nullable:
            self.nullable_since = version
        self.default = wire.default
        self.versions.append(version)


@dataclass
class UnionClass:
    name: str
    fields: dict[str, UnionField] = field(default_factory=dict)
    shared: bool = False  # whether an instance is the default of a field, so that it must not change


def collect(key: int, side: Side) -> dict[str, UnionClass]:
    """The union classes of an API's request or response (``side``), by kio's name. Nested classes precede those that contain
    them.
    """
    found: dict[str, UnionClass] = {}
    message = ""
    for version in kio_versions(key):
        for wire_class in kio_classes(key, version, side):
            message = wire_class.__name__
            union = found.setdefault(message, UnionClass(message))
            _merge(union, wire_class, version)
    for union in found.values():
        for member in union.fields.values():
            if member.inner and not member.is_array and not member.nullable:
                found[member.inner].shared = True
    return {name: found[name] for name in dict.fromkeys(_leaves_first(found, message))}


def _merge(union: UnionClass, wire_class: Any, version: int) -> None:
    """Add a version's class to the union class. A new field is inserted after the field that precedes it in this version."""
    order = list(union.fields)
    place = 0
    for wire in dataclasses.fields(wire_class):
        shape, name = shape_of(wire), field_name(wire)
        if name in union.fields:
            union.fields[name].merge(shape, wire, version)
            place = order.index(name) + 1
            continue
        inner = shape.inner.__name__ if shape.inner else None
        tag = wire.metadata.get("tag")
        nullable_since = version if shape.nullable else None
        union.fields[name] = UnionField(
            name, shape.kind, shape.is_array, nullable_since, tag, wire.default, inner, [version]
        )
        order.insert(place, name)
        place += 1
    union.fields = {name: union.fields[name] for name in order}
    own = {field_name(wire) for wire in dataclasses.fields(wire_class)}
    # A version is written as the union without the fields that it lacks, so the order must be the same.
    assert [name for name in order if name in own] == [
        field_name(wire) for wire in dataclasses.fields(wire_class)
    ]


def _leaves_first(found: dict[str, UnionClass], name: str) -> Iterator[str]:
    for member in found[name].fields.values():
        if member.inner:
            yield from _leaves_first(found, member.inner)
    yield name


def render(key: int) -> str:
    """Source text of the module with the messages of one API."""
    api = api_key_map[key]
    sides = {side: collect(key, side) for side in SIDES}
    clashing = sides["request"].keys() & sides["response"].keys()
    for name in clashing:
        sides["response"][name].name = f"Response{name}"
    for side, family in sides.items():
        assert list(family.values())[-1].name == f"{message_name(api)}{side.title()}"
    classes = [_render_class(union, sides[side], side) for side in SIDES for union in sides[side].values()]
    body = "\n\n\n".join(classes)
    versions = kio_versions(key)
    docstring = (
        f'"""{api} (API key {key}): each class has the fields of all versions, {versions[0]} to {versions[-1]}.\n\n'
        'Generated by protocol/generators/messages.py from kio: do not edit.\n"""\n'
    )
    return f"{docstring}\n{_imports(body)}\n\n{body}\n"


def _imports(body: str) -> str:
    lines = ["from __future__ import annotations\n"]
    if "Sequence[" in body:
        lines.append("from collections.abc import Sequence")
    if "UUID" in body:
        lines.append("from uuid import UUID")
    if len(lines) > 1:
        lines[-1] += "\n"
    names = ("Message", "Records", "field") if re.search(r"\bRecords\b", body) else ("Message", "field")
    lines.append(f"from . import {', '.join(names)}\n")
    return "\n".join(lines)


def _render_class(union: UnionClass, family: dict[str, UnionClass], side: Side) -> str:
    fields = [
        f"    {member.name}: {_annotation(member, family, side)} = {_declared(member, family)}"
        for member in union.fields.values()
    ]
    bases = "Message, frozen=True" if union.shared else "Message"
    return "\n".join([f"class {union.name}({bases}):", *fields])


def _declared(member: UnionField, family: dict[str, UnionClass]) -> str:
    """The call of ``protocol.messages.field`` that declares a field."""
    kind = family[member.inner].name if member.inner else PLAIN.get(member.kind, member.kind)
    values = [f'"{"[]" if member.is_array else ""}{kind}"', str(member.versions[0]), str(member.versions[-1])]
    if member.nullable:
        values.append(f"nullable_since={member.nullable_since}")
    if member.tag is not None:
        values.append(f"tag={member.tag}")
    return f"field({', '.join(values)}, default={_default(member, family)})"


def _annotation(member: UnionField, family: dict[str, UnionClass], side: Side) -> str:
    if member.inner:
        python_type = family[member.inner].name
    elif member.kind == "records":
        # A handler gets records in one piece; in responses they may consist of several.
        return "Records" if side == "response" else "bytes | memoryview | None"
    else:
        python_type = PYTHON_TYPE.get(member.kind, "int")
    if member.is_array:
        python_type = f"Sequence[{python_type}]"
    return f"{python_type} | None" if member.nullable else python_type


def _default(member: UnionField, family: dict[str, UnionClass]) -> str:
    default: Any = member.default
    if member.is_array:
        return "None" if default is None else "()"
    if member.inner and not member.nullable:
        return _default_struct(default, family[member.inner])
    if member.kind == "datetime_i64":
        return "-1" if default is None else "0"
    if isinstance(default, timedelta):
        return str(round(default.total_seconds() * 1000))
    if default is MISSING:
        default = None if member.nullable else ZERO.get(member.kind, 0)
    if default == "":
        return '""'
    if default is None or isinstance(default, str | bytes | bool | float):
        return repr(default)
    return str(int(default))


def _default_struct(default: Any, union: UnionClass) -> str:
    """Source of the default of a struct field: ``Class()``.

    Asserts that in kio's default of the struct each field has the default of that field.
    """
    if default is not MISSING:
        for member in union.fields.values():
            assert _default(member, {}) == str(getattr(default, member.name)), f"default of {union.name}"
    return f"{union.name}()"


def render_index() -> str:
    """Source text of the module ``protocol.messages.index``."""
    rows = []
    for key, api in api_key_map.items():
        versions = kio_versions(key)
        assert versions == list(range(versions[0], versions[-1] + 1)), f"{api} leaves out versions"
        rows.append(
            f'    {key}: ("{api}", {versions[0]}, {versions[-1]}, {_first_flexible(key, versions)}),\n'
        )
    return f"""\"\"\"(module in this package, first version, last version, first flexible version) of each API, by API key.

Generated by protocol/generators/messages.py from kio: do not edit.
\"\"\"

from typing import Final

APIS: Final[dict[int, tuple[str, int, int, int | None]]] = {{
{"".join(rows)}}}
"""


def _first_flexible(key: int, versions: list[int]) -> int | None:
    flexible = [
        version
        for version in versions
        if any(wire_class.__flexible__ for side in SIDES for wire_class in kio_classes(key, version, side))
    ]
    assert flexible == versions[len(versions) - len(flexible) :], (
        f"{api_key_map[key]} is flexible now and then"
    )
    for version in flexible:
        assert all(each.__flexible__ for side in SIDES for each in kio_classes(key, version, side))
    return flexible[0] if flexible else None


def main() -> None:
    folder = Path(__file__).parents[1] / "messages"
    (folder / "index.py").write_text(render_index())
    for key, api in api_key_map.items():
        (folder / f"{api}.py").write_text(render(key))


if __name__ == "__main__":
    main()
