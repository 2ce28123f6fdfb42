"""Generates the message classes of every API: ``python -m protocol.generators.messages KAFKA_CLIENTS_JAR``.

The schemas are those of the kio package, and Kafka's own (`protocol.generators.kafka_json`) for the versions that kio lacks
and that are listed in `FROM_KAFKA`. The program refuses to generate anything if both have a version and differ.

In no API does a field change its wire type between versions. Fields are only added or removed (``merge`` asserts it), so one
class can have the union of all versions. The result is checked in. A test generates it again and compares. Apart from this
program a broker does not need kio's classes: importing the classes of one version takes longer than everything else in the
first request of that version (ADR 4).

Classes and fields have Kafka's names, fields in snake case, except that
- the name of a field that is a time or a duration ends in ``_ms``,
- if request and response of an API both have a nested class of the same name, the class of the response is called
  ``Response<name>`` (as ``ResponseCursor`` of describe_topic_partitions).
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from protocol.generators import kio_schemas
from protocol.generators.kafka_json import KafkaJson
from protocol.generators.wire import WireClass, WireField
from protocol.versions import Side, message_name

SIDES: tuple[Side, ...] = ("request", "response")
PYTHON_TYPE = {"string": "str", "bytes": "bytes", "bool": "bool", "uuid": "UUID | None", "float64": "float"}


FROM_KAFKA: Mapping[int, Sequence[int]] = {18: [5], 28: [6], 42: [3], 88: [1], 89: [1], 93: [0], 94: [0]}
"""API key -> versions of Apache Kafka 4.4 that kio lacks. kio has all versions of Apache Kafka 4.3."""


class Different(Exception):
    """kio and Kafka declare a message differently in the same version."""


class Schemas:
    """The schemas of kio, and those of a kafka-clients jar for versions that kio lacks."""

    def __init__(self, jar: Path) -> None:
        self._kafka = KafkaJson(jar)
        self.apis = {key: api for key, api in self._kafka.apis.items() if self.versions(key)}

    def versions(self, key: int) -> list[int]:
        """The versions of an API, ascending."""
        return sorted({*FROM_KAFKA.get(key, ()), *kio_schemas.versions(key)})

    def classes(self, key: int, version: int, side: Side) -> list[WireClass]:
        """The classes of a message in one version. Nested classes precede those that contain them. Raises `Different`."""
        if version not in kio_schemas.versions(key):
            return self._kafka.classes(key, version, side)
        found = kio_schemas.classes(key, version, side)
        if version in self._kafka.versions(key):
            kafka = self._kafka.classes(key, version, side)
            if {each.name: on_the_wire(each) for each in found} != {
                each.name: on_the_wire(each) for each in kafka
            }:
                raise Different(
                    f"{self.apis[key]} v{version} {side}: kio has\n{found}\nand Kafka has\n{kafka}"
                )
        return found


def on_the_wire(declared: WireClass) -> WireClass:
    """The class without the defaults of untagged fields, which are always written. kio lacks some of them."""
    fields = (each if each.tag is not None else replace(each, default="") for each in declared.fields)
    return replace(declared, fields=tuple(fields))


@dataclass
class UnionField:
    """The declaration of one field, merged from all versions that have the field."""

    declared: WireField  # as in the last of these versions
    nullable_since: int | None  # once a field may be null, it may be null in all later versions
    versions: list[int]

    def merge(self, wire: WireField, version: int) -> None:
        old = self.declared
        same = (old.kind, old.is_array, old.tag) == (wire.kind, wire.is_array, wire.tag)
        assert same, f"{wire.name} changes its type"
        assert self.versions[-1] == version - 1, f"{wire.name} goes and comes back"
        assert wire.nullable or self.nullable_since is None, f"{wire.name} may be null no longer"
        if wire.nullable and self.nullable_since is None:
            self.nullable_since = version
        self.declared = wire
        self.versions.append(version)


@dataclass
class UnionClass:
    name: str
    fields: dict[str, UnionField] = field(default_factory=dict)
    shared: bool = False  # whether an instance is the default of a field, so that it must not change


def collect(schemas: Schemas, key: int, side: Side) -> dict[str, UnionClass]:
    """The union classes of an API's request or response (``side``), by Kafka's name. Nested classes precede those that
    contain them.
    """
    found: dict[str, UnionClass] = {}
    message = ""
    for version in schemas.versions(key):
        for declared in schemas.classes(key, version, side):
            message = declared.name
            _merge(found.setdefault(message, UnionClass(message)), declared, version)
    for union in found.values():
        for member in union.fields.values():
            if member.declared.is_struct and not member.declared.is_array and member.nullable_since is None:
                found[member.declared.kind].shared = True
    return {name: found[name] for name in dict.fromkeys(_leaves_first(found, message))}


def _merge(union: UnionClass, declared: WireClass, version: int) -> None:
    """Add a version's class to the union class. A new field is inserted after the field that precedes it in this version."""
    order = list(union.fields)
    place = 0
    for wire in declared.fields:
        if wire.name in union.fields:
            union.fields[wire.name].merge(wire, version)
            place = order.index(wire.name) + 1
            continue
        union.fields[wire.name] = UnionField(wire, version if wire.nullable else None, [version])
        order.insert(place, wire.name)
        place += 1
    union.fields = {name: union.fields[name] for name in order}
    own = [wire.name for wire in declared.fields]
    # A version is written as the union without the fields that it lacks, so the order must be the same.
    assert [name for name in order if name in own] == own


def _leaves_first(found: dict[str, UnionClass], name: str) -> Iterator[str]:
    for member in found[name].fields.values():
        if member.declared.is_struct:
            yield from _leaves_first(found, member.declared.kind)
    yield name


def render(schemas: Schemas, key: int) -> str:
    """Source text of the module with the messages of one API."""
    api = schemas.apis[key]
    sides = {side: collect(schemas, key, side) for side in SIDES}
    clashing = sides["request"].keys() & sides["response"].keys()
    for name in clashing:
        sides["response"][name].name = f"Response{name}"
    for side, family in sides.items():
        assert list(family.values())[-1].name == f"{message_name(api)}{side.title()}"
    classes = [_render_class(union, sides[side], side) for side in SIDES for union in sides[side].values()]
    body = "\n\n\n".join(classes)
    versions = schemas.versions(key)
    docstring = (
        f'"""{api} (API key {key}): each class has the fields of all versions, {versions[0]} to {versions[-1]}.\n\n'
        'Generated by protocol/generators/messages.py: do not edit.\n"""\n'
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
        f"    {name}: {_annotation(member, family, side)} = {_declared(member, family)}"
        for name, member in union.fields.items()
    ]
    bases = "Message, frozen=True" if union.shared else "Message"
    return "\n".join([f"class {union.name}({bases}):", *(fields or ["    pass"])])


def _declared(member: UnionField, family: dict[str, UnionClass]) -> str:
    """The call of ``protocol.messages.field`` that declares a field."""
    wire = member.declared
    kind = family[wire.kind].name if wire.is_struct else wire.kind
    values = [f'"{"[]" if wire.is_array else ""}{kind}"', str(member.versions[0]), str(member.versions[-1])]
    if member.nullable_since is not None:
        values.append(f"nullable_since={member.nullable_since}")
    if wire.tag is not None:
        values.append(f"tag={wire.tag}")
    return f"field({', '.join(values)}, default={wire.default or f'{kind}()'})"


def _annotation(member: UnionField, family: dict[str, UnionClass], side: Side) -> str:
    wire = member.declared
    if wire.is_struct:
        python_type = family[wire.kind].name
    elif wire.kind == "records":
        # A handler gets records in one piece; in responses they may consist of several.
        return "Records" if side == "response" else "bytes | memoryview | None"
    else:
        python_type = PYTHON_TYPE.get(wire.kind, "int")
    if wire.is_array:
        python_type = f"Sequence[{python_type}]"
    return python_type if member.nullable_since is None else f"{python_type} | None"


def render_index(schemas: Schemas) -> str:
    """Source text of the module ``protocol.messages.index``."""
    rows = []
    for key, api in schemas.apis.items():
        versions = schemas.versions(key)
        assert versions == list(range(versions[0], versions[-1] + 1)), f"{api} leaves out versions"
        first_flexible = _first_flexible(schemas, key, versions)
        rows.append(f'    {key}: ("{api}", {versions[0]}, {versions[-1]}, {first_flexible}),\n')
    return f"""\"\"\"(module in this package, first version, last version, first flexible version) of each API, by API key.

Generated by protocol/generators/messages.py: do not edit.
\"\"\"

from typing import Final

APIS: Final[dict[int, tuple[str, int, int, int | None]]] = {{
{"".join(rows)}}}
"""


def _first_flexible(schemas: Schemas, key: int, versions: Iterable[int]) -> int | None:
    by_version = {
        version: {each.is_flexible for side in SIDES for each in schemas.classes(key, version, side)}
        for version in versions
    }
    flexible = [version for version, found in by_version.items() if True in found]
    assert all(found == {version in flexible} for version, found in by_version.items())
    assert flexible == list(by_version)[len(by_version) - len(flexible) :], (
        f"{schemas.apis[key]} is flexible now and then"
    )
    return flexible[0] if flexible else None


def main(jar: Path) -> None:
    schemas = Schemas(jar)
    folder = Path(__file__).parents[1] / "messages"
    (folder / "index.py").write_text(render_index(schemas))
    for key, api in schemas.apis.items():
        (folder / f"{api}.py").write_text(render(schemas, key))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
