"""Parse and check the options of ``format("odradek.segments")``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from odradek.errors import OdradekError
from odradek.spark.segments import finding
from odradek.spark.segments.schemas import TABLES

MIB = 1 << 20


class BadOption(OdradekError):
    """An unknown option, or an option with an invalid value."""


class Options(NamedTuple):
    """The parsed options. Sizes are in bytes."""

    paths: tuple[str, ...]
    table: str = "records"
    columns: tuple[str, ...] | None = None
    topics: tuple[str, ...] | None = None
    check_crcs: bool = True
    pushdown: bool = False
    filter: str | None = None
    split_bytes: int = 128 * MIB
    partitions_min: int = 0
    rows_max: int = 100_000
    batch_bytes_max: int = 256 * MIB
    plain_bytes_max: int = 256 * MIB


_NUMBERS = {
    "split.bytes": "split_bytes",
    "partitions.min": "partitions_min",
    "rows.max": "rows_max",
    "batch.bytes.max": "batch_bytes_max",
    "plain.bytes.max": "plain_bytes_max",
}
_SWITCHES = {"check.crcs": "check_crcs", "pushdown": "pushdown"}
_LISTS = {"columns": "columns", "topics": "topics"}
_NUMBER_MAX = 1 << 30
"""Limit of sizes: Arrow's offsets have 31 bits, a batch is never split, and other batches precede it in the buffer."""


def read(given: Mapping[str, str]) -> Options:
    """Parse the options; their names may be in upper or lower case."""
    options = {name.lower(): value for name, value in given.items()}
    known = {"path", "paths", "table", "filter", *_NUMBERS, *_SWITCHES, *_LISTS}
    if unknown := sorted(set(options) - known):
        raise BadOption(f"odradek.segments has no option {unknown[0]}; it has {', '.join(sorted(known))}.")
    table = options.get("table", "records").lower()
    if table not in TABLES:
        raise BadOption(f"There is no table {table}; there are {', '.join(TABLES)}.")
    values: dict[str, int | bool | tuple[str, ...]] = {}
    for name, field in _NUMBERS.items():
        if name in options:
            values[field] = _number(name, options[name])
    for name, field in _SWITCHES.items():
        if name in options:
            values[field] = _switch(name, options[name])
    for name, field in _LISTS.items():
        if name in options:
            values[field] = tuple(part.strip() for part in options[name].split(",") if part.strip())
    return Options(paths=_paths(options), table=table, filter=options.get("filter"), **values)  # type: ignore[arg-type]


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    named = [options["path"]] if options.get("path") else []
    named += json.loads(options.get("paths", "[]"))
    found = tuple(root for path in named for root in finding.roots(path))
    if not found:
        raise BadOption("No directory is given: use load(path), or the option path.")
    return found


def _number(name: str, text: str) -> int:
    if not text.strip().isdecimal() or not 1 <= int(text) <= _NUMBER_MAX:
        raise BadOption(f"Option {name} must be a whole number from 1 to {_NUMBER_MAX}, not {text!r}.")
    return int(text)


def _switch(name: str, text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.strip().lower()]
    except KeyError:
        raise BadOption(f"Option {name} must be true or false, not {text!r}.") from None
