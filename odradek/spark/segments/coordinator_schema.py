"""The types of the entries in ``coordinator_tables``: a field, a value and a record of the coordinators' topics."""

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
    """The schema of one type of record: its ``kind``, and the fields of its key and its value."""

    kind: str
    key: tuple[Field, ...]
    value: Value
