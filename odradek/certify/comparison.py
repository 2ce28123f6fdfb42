"""What is right: the outputs of a run against those of the reference runs.

Rows are compared as multisets (``rows``), by the last value of each key (``keyed``), or in their order within each key
(``ordered-by-key``). Fields that differ between two runs without faults are left out.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from odradek.topics import Record

Row = tuple[str, str, str]
"""Topic, key and value, as they are compared and shown."""
Fields = frozenset[str]
"""Names of JSON fields, dots between levels."""


class Compare(Enum):
    """How rows are compared; the values are those of ``--compare``."""

    ROWS = "rows"
    KEYED = "keyed"
    ORDERED = "ordered-by-key"


@dataclass(frozen=True, slots=True)
class Difference:
    """What a run has not, has too often, or has though no reference run had it; keys whose order is another one."""

    lost: Counter[Row]
    duplicated: Counter[Row]
    unexpected: Counter[Row]
    reordered: tuple[tuple[str, str], ...] = ()
    """(topic, key)"""

    def __bool__(self) -> bool:
        return bool(self.lost or self.duplicated or self.unexpected or self.reordered)


def rows(records: Iterable[Record], ignored: Fields = frozenset()) -> list[Row]:
    return [row(each, ignored) for each in records]


def row(record: Record, ignored: Fields = frozenset()) -> Row:
    return record.topic, _text(record.key), without(_text(record.value), ignored)


def _text(data: str | bytes | None) -> str:
    if data is None:
        return ""
    return data if isinstance(data, str) else "0x" + data.hex()


def without(value: str, ignored: Fields) -> str:
    """A JSON value without these fields, its keys in their order; any other text as it is."""
    if not ignored:
        return value
    found = _object(value)
    if found is None:
        return value
    return json.dumps(_pruned(found, ignored, ""), sort_keys=True, ensure_ascii=False)


def _object(value: str) -> dict[str, Any] | None:
    if not value.startswith("{"):
        return None
    try:
        found = json.loads(value)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _pruned(found: Mapping[str, Any], ignored: Fields, prefix: str) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in found.items():
        path = f"{prefix}{name}"
        if path not in ignored:
            kept[name] = _pruned(value, ignored, f"{path}.") if isinstance(value, Mapping) else value
    return kept


def differing_fields(one: Iterable[Record], two: Iterable[Record]) -> Fields:
    """The fields of JSON values that two runs without faults do not share: timestamps, random ids."""
    first, second = _field_values(one), _field_values(two)
    return frozenset(name for name in first.keys() | second.keys() if first[name] != second[name])


def _field_values(records: Iterable[Record]) -> defaultdict[str, Counter[str]]:
    values: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        found = _object(_text(record.value))
        if found is not None:
            for name, value in _leaves(found, ""):
                values[name][value] += 1
    return values


def _leaves(found: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, str]]:
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", json.dumps(value, sort_keys=True)


def compare(expected: Sequence[Row], found: Sequence[Row], how: Compare) -> Difference:
    """``expected`` are the rows of a reference run, ``found`` those of a run with faults, both by partition and offset."""
    if how is Compare.KEYED:
        expected, found = _latest(expected), _latest(found)
    wanted, got = Counter(expected), Counter(found)
    more = got - wanted
    duplicated = Counter({each: count for each, count in more.items() if each in wanted})
    difference = Difference(
        wanted - got, duplicated, Counter({k: v for k, v in more.items() if k not in wanted})
    )
    if how is Compare.ORDERED and not difference:
        return Difference(Counter(), Counter(), Counter(), tuple(_reordered(expected, found)))
    return difference


def _latest(found: Iterable[Row]) -> list[Row]:
    return list({(topic, key): (topic, key, value) for topic, key, value in found}.values())


def _reordered(expected: Iterable[Row], found: Iterable[Row]) -> list[tuple[str, str]]:
    one, two = _by_key(expected), _by_key(found)
    return sorted(key for key in one if one[key] != two[key])


def _by_key(found: Iterable[Row]) -> defaultdict[tuple[str, str], list[str]]:
    values: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for topic, key, value in found:
        values[topic, key].append(value)
    return values
