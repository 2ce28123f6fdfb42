"""Torn outputs: a row is missing, while another output has the rows of the same input record."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping

from odradek.certify.judging.rows import Data, Row, fields_of, is_row

Torn = dict[tuple[str, tuple[str, ...]], Counter[Row]]
"""(the output whose rows are missing, the outputs that have their keys complete) -> the missing rows."""


def torn(expected: Iterable[Row], lost: Mapping[Row, int]) -> Torn:
    """The lost rows whose key also has rows in other outputs, none of which are lost.

    The key of a row is its first column. A record of a topic may have the same key, or a field of the column's name with
    the same value: the keys of a topic are often others, for the order of its records.
    """
    expected = list(expected)
    columns = _key_columns(expected)
    outputs: defaultdict[Data, set[str]] = defaultdict(set)
    for each in expected:
        for key in _keys(each, columns):
            outputs[key].add(each.topic)
    incomplete = {(each.topic, key) for each in lost for key in _keys(each, columns)}
    found: Torn = defaultdict(Counter)
    for each, count in lost.items():
        complete = {
            output
            for key in _keys(each, columns)
            for output in outputs[key]
            if (output, key) not in incomplete
        }
        if complete:
            found[each.topic, tuple(sorted(complete))][each] += count
    return dict(found)


def _key_columns(rows: Iterable[Row]) -> Collection[str]:
    """The names of the first columns of all outputs that are no topics: the field whose value is the key in each row."""
    columns: dict[str, set[str]] = {}
    for each in rows:
        if is_row(each.topic) and each.key:
            fields = fields_of(each.value) or {}
            same = {name for name, value in fields.items() if _text(value) == each.key}
            columns[each.topic] = columns.get(each.topic, same) & same
    return {name for names in columns.values() for name in names}


def _keys(row: Row, columns: Collection[str]) -> set[Data]:
    keys = {row.key}
    if columns:
        fields = fields_of(row.value) or {}
        keys |= {_text(fields[name]) for name in columns if name in fields}
    return keys - {None, "", b""}


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, sort_keys=True)
