"""The parts of a record that are compared: topic, key, value and headers; partition and timestamp on demand.

Null and empty text are different values, and so are text and bytes. JSON fields and headers that differ between two runs
without faults are excluded. Rows of outputs that are no topics have a colon in their topic: ``postgres:SELECT ...``.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

from odradek.topics import Record

Data = str | bytes | None
Headers = tuple[tuple[str, Data], ...]
Fields = frozenset[str]
"""Names of JSON fields, with dots between levels. ``header NAME`` is a header, ``header *`` all headers.

``FIELD of TOPIC`` is a field of one topic only, ``key of TOPIC`` the key of its records.
"""
HEADER: Final = "header "
ALL_HEADERS: Final = "header *"
KEY: Final = "key"
PARTITION: Final = "partition"
TIMESTAMP: Final = "timestamp"
ON_DEMAND: Final = (PARTITION, TIMESTAMP)
"""Fields that are compared only with ``--compare-also``."""
_SHOWN_MAX: Final = 200
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_PARENTHESES: Final = re.compile(r"\([^()]*\)")


class Row(NamedTuple):
    """The compared parts of a record."""

    topic: str
    key: Data
    value: Data
    headers: Headers = ()
    """The headers, sorted by name. Headers with the same name are in their original order."""
    partition: int | None = None
    """The partition; None if partitions are not compared."""
    timestamp_ms: int | None = None
    """The timestamp; None if timestamps are not compared."""

    def __str__(self) -> str:
        """The row as text, such as ``out: key k, v``.

        >>> str(Row("out", None, "")), str(Row("out", "", None)), str(Row("out", "k", b"\\x80", partition=3))
        ('out: ""', 'out: key "", null', 'out-3: key k, 0x80')
        """
        place = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        key = "" if self.key is None else f"key {shown(self.key)}, "
        return f"{place}: {key}{shown(self.value)}"


def shown(data: Data) -> str:
    """The value as text for people, which distinguishes null from empty text.

    >>> shown(None), shown(""), shown("null"), shown("v"), shown(b"\\x01")
    ('null', '""', '"null"', 'v', '0x01')
    """
    if data is None:
        return "null"
    if isinstance(data, bytes):
        return "0x" + data[: _SHOWN_MAX // 2].hex()
    if data in ("", "null") or data.startswith(("0x", '"')):
        return json.dumps(data[:_SHOWN_MAX], ensure_ascii=False)
    return data[:_SHOWN_MAX]


def is_row(topic: str) -> bool:
    """Whether the topic is an output that is no topic: rows of a service or of files."""
    return ":" in topic


@lru_cache(maxsize=100)
def has_order(topic: str) -> bool:
    """Whether the records of an output have an order. Rows of a query without ORDER BY and of several files have none.

    >>> has_order("out"), has_order("postgres:SELECT a, rank() OVER (ORDER BY a) FROM t"), has_order("files:out/*.csv")
    (True, False, False)
    >>> has_order("postgres:SELECT a FROM t ORDER  BY a"), has_order("files:out/a.csv"), has_order("http:POST /v1/*")
    (True, True, True)
    """
    service, _, what = topic.partition(":")
    if service == "files":
        return re.fullmatch(r"[^*?\[]*\.\w+", what) is not None
    if service.partition(".")[0] != "postgres":
        return True
    what, nested = _QUOTED.sub(" ", what), 1
    while nested:
        what, nested = _PARENTHESES.subn(" ", what)
    return re.search(r"\border\s+by\b", what, re.IGNORECASE) is not None


def rows(
    records: Iterable[Record], ignored: Fields = frozenset(), also: Iterable[str] = frozenset()
) -> list[Row]:
    """The rows of these records. ``also`` is a subset of `ON_DEMAND`."""
    also = frozenset(also)
    return [row(each, ignored, also) for each in records]


def row(record: Record, ignored: Fields = frozenset(), also: frozenset[str] = frozenset()) -> Row:
    key, value = record.key, record.value
    if ignored:
        ignored, has_key = _ignored_in(record.topic, ignored)
        key = key if has_key else None
        if isinstance(value, str):
            value = without(value, ignored)
    return Row(
        record.topic,
        key,
        value,
        _headers(record.headers, ignored) if record.headers else (),
        record.partition if PARTITION in also and not is_row(record.topic) else None,
        record.timestamp_ms if TIMESTAMP in also else None,
    )


@lru_cache(maxsize=1000)
def _ignored_in(topic: str, ignored: Fields) -> tuple[Fields, bool]:
    """(the names of the fields that are ignored in this topic, whether keys are compared)."""
    key = _of(KEY, topic)
    return frozenset(each.removesuffix(_of("", topic)) for each in ignored - {key}), key not in ignored


def _of(name: str, topic: str) -> str:
    return f"{name} of {topic}"


def _headers(headers: Headers, ignored: Fields) -> Headers:
    """Sort headers by name: clients that store headers in a map send them in any order.

    Order matters within one name only.
    """
    if ALL_HEADERS in ignored:
        return ()
    kept = [each for each in headers if HEADER + each[0] not in ignored] if ignored else headers
    return tuple(sorted(kept, key=itemgetter(0)))


@lru_cache(maxsize=10_000)
def without(value: str, ignored: Fields) -> str:
    """A JSON value without these fields, with sorted keys. Any other text is returned unchanged."""
    if not ignored:
        return value
    found = fields_of(value)
    if found is None:
        return value
    return json.dumps(_pruned(found, ignored, ""), sort_keys=True, ensure_ascii=False)


def fields_of(value: Data) -> dict[str, Any] | None:
    """The fields of a JSON object; None for any other value."""
    if not isinstance(value, str) or not value.startswith("{"):
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


def differing_fields(one: Collection[Record], two: Collection[Record]) -> Fields:
    """The JSON fields and headers that differ between two runs without faults, such as timestamps and random ids.

    If outputs are no topics, also the keys of outputs: a key may be an id that a database generates.
    """
    has_rows = any(is_row(each.topic) for each in one)
    first, second = _field_values(one, has_keys=has_rows), _field_values(two, has_keys=has_rows)
    return frozenset(name for name in first.keys() | second.keys() if first[name] != second[name])


def _field_values(records: Iterable[Record], *, has_keys: bool) -> defaultdict[str, Counter[Data]]:
    values: defaultdict[str, Counter[Data]] = defaultdict(Counter)
    for record in records:
        for header, data in record.headers:
            values[HEADER + header][data] += 1
        if has_keys:
            values[_of(KEY, record.topic)][record.key] += 1
        found = fields_of(record.value)
        if found is not None:
            for name, value in _leaves(found, ""):
                values[_of(name, record.topic) if is_row(record.topic) else name][value] += 1
    return values


def _leaves(found: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, str]]:
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", json.dumps(value, sort_keys=True)
