"""How the tables of the coordinators' records are written down: a field, a value, a record."""

from __future__ import annotations

from typing import Any, NamedTuple


class Field(NamedTuple):
    """One field of a structure, in wire order.

    ``kind``: ``int8`` to ``int64``, ``uint16``, ``uuid``, ``string`` or ``bytes``, or the fields of a structure.
    ``array``: several of them. ``since``/``until``: the versions that have it. ``tag``: it is a tagged field, which reads
    as ``default`` when it is left out.
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
    """A value's fields, its highest version, and the first flexible one."""

    fields: tuple[Field, ...]
    highest: int
    flexible: int


class RecordSchema(NamedTuple):
    """What a type of key stands for."""

    kind: str
    key: tuple[Field, ...]
    value: Value
