"""The types with which the tables of the coordinators' records are written: a field, a value, a record."""

from __future__ import annotations

from typing import Any, NamedTuple


class Field(NamedTuple):
    """One field of a structure, in the order of the wire format.

    ``kind``: ``int8`` to ``int64``, ``uint16``, ``uuid``, ``string`` or ``bytes``, or the fields of a structure. ``array``:
    whether the field is an array of that kind. ``since``/``until``: the versions that have the field. ``tag``: number of a
    tagged field, which has the value ``default`` if it is missing.
    """

    name: str
    kind: str | tuple[Field, ...]
    array: bool = False
    nullable: bool = False
    since: int = 0
    until: int = 99
    tag: int | None = None
    default: Any = None


class Value(NamedTuple):
    """The fields of a value, its highest version, and its first flexible version."""

    fields: tuple[Field, ...]
    highest: int
    flexible: int


class RecordSchema(NamedTuple):
    """The schema of a type of key and of its value."""

    kind: str
    key: tuple[Field, ...]
    value: Value
