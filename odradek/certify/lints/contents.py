"""The contents of records, statements and HTTP requests, to find those that concern one row of an output.

A row, the statement that wrote it, the event of it and the input record that it was made of share values: a key, an id.
Where both sides name their values (columns, JSON fields), values of the same name are compared, otherwise the values alone.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from odradek.certify.exchanges import Exchange, batches
from odradek.certify.judging.rows import Data, Row

_WORD: Final = re.compile(r"[\w.-]+")
_LITERAL: Final = re.compile(r"'((?:[^']|'')*)'|(?<![\w$.])(-?\d+(?:\.\d+)?)(?![\w.])")
_VALUE: Final = r"(\$\d+|'(?:[^']|'')*'|-?\d+(?:\.\d+)?)(?:::\w+)?"
_INSERTED: Final = re.compile(
    rf"\binto\s+[\w.\"]+\s*\(([^()]*)\)\s*values\s*\(\s*({_VALUE}(?:\s*,\s*{_VALUE})*)\s*\)", re.IGNORECASE
)
_COMPARED: Final = re.compile(rf"\b(\w+)\s*=\s*{_VALUE}(?!\s*[-+*/])", re.IGNORECASE)
_ONE_VALUE: Final = re.compile(_VALUE)


@dataclass(frozen=True, slots=True)
class Content:
    """The values of a record, a statement or a request."""

    fields: Mapping[str, str]
    """Values with a name: columns, or the leaves of a JSON object. Names are in lower case, without underscores."""
    values: frozenset[str]
    """All values, including those of ``fields``."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A row or record of an output whose history is looked for."""

    row: Row
    key: str | None
    content: Content

    @property
    def is_event(self) -> bool:
        """Whether the output is a topic, and not in a service or in files."""
        return ":" not in self.row.topic

    def is_in(self, other: Content) -> bool:
        """Whether ``other`` concerns the same thing: it has the same key, or, without a key, all values of the row.

        If ``other`` does not name the key, a number may be equal by chance, so no other named value may differ.
        """
        if self.key is None:
            return self._are_all_in(other)
        names = [name for name, value in self.content.fields.items() if value == self.key]
        named = [other.fields[name] for name in names if name in other.fields]
        if named:
            return self.key in named
        shared = self.content.fields.keys() & other.fields.keys()
        return self.key in other.values and all(
            self.content.fields[each] == other.fields[each] for each in shared
        )

    def is_whole_in(self, other: Content) -> bool:
        """Whether ``other`` has the key and all values of the row."""
        return self.is_in(other) and self._are_all_in(other)

    def _are_all_in(self, other: Content) -> bool:
        fields = self.content.fields
        if not fields:
            return bool(self.content.values) and self.content.values <= other.values
        return all(other.fields.get(name, value) == value for name, value in fields.items()) and (
            set(fields.values()) <= other.values
        )


def subject(row: Row) -> Subject:
    key = _plain(row.key) if isinstance(row.key, str) and row.key else None
    return Subject(row, key, content(row.key, row.value))


def content(*texts: Data | bool | float) -> Content:
    """The content of a record's key and value, or of another list of texts. JSON objects are taken apart."""
    fields: dict[str, str] = {}
    values: set[str] = set()
    for text in texts:
        if text is None or isinstance(text, bytes):
            continue
        values.add(_plain(text))
        found = _parsed(text) if isinstance(text, str) else None
        if found is None:
            values.update(map(_plain, _WORD.findall(str(text))) if isinstance(text, str) else ())
        for name, value in _leaves(found):
            values.add(value)
            if name:
                fields.setdefault(_name(name), value)
    return Content(fields, frozenset(values))


def of_statement(exchange: Exchange) -> Content:
    """The content of a SQL statement: its parameters and literals, by their columns if the statement names these."""
    sql = str(exchange.request.get("sql") or "")
    parameters = [*_flat(exchange.request.get("parameters") or ())]
    literals = [text.replace("''", "'") if text else number for text, number in _LITERAL.findall(sql)]
    found = content(*parameters, *literals)
    fields = dict(found.fields)
    given = list(exchange.request.get("parameters") or ())
    for name, value in (*_inserted(sql), *_COMPARED.findall(sql)):
        fields[_name(name)] = _value(value, given)
    return Content(fields, found.values)


def given(exchange: Exchange) -> tuple[str, ...]:
    """The parameters of a SQL statement, or its literals if it has no parameters."""
    literals = _LITERAL.findall(str(exchange.request.get("sql") or ""))
    found = [*_flat(exchange.request.get("parameters") or ())] or [
        text or number for text, number in literals
    ]
    return tuple(_plain(each) for each in found if each is not None)


def compared(exchange: Exchange) -> dict[str, str]:
    """The columns that the WHERE of a statement compares with a value: ``WHERE id = $1``. Literals do not count."""
    where = re.split(r"\bwhere\b", str(exchange.request.get("sql")), maxsplit=1, flags=re.IGNORECASE)[1:]
    parameters = list(exchange.request.get("parameters") or ())
    found = _COMPARED.findall(where[0]) if where else []
    return {_name(name): _value(value, parameters) for name, value in found if value.startswith("$")}


def _inserted(sql: str) -> Iterator[tuple[str, str]]:
    for found in _INSERTED.finditer(sql):
        names = [each.strip().strip('"') for each in found[1].split(",")]
        yield from zip(names, _ONE_VALUE.findall(found[2]), strict=False)


def _value(said: str, parameters: list[Any]) -> str:
    if said.startswith("$"):
        at = int(said[1:]) - 1
        return _plain(parameters[at]) if at < len(parameters) else ""
    return _plain(said.strip("'").replace("''", "'"))


def of_request(exchange: Exchange) -> Content:
    """The content of an HTTP request: its body, and the words of its path."""
    return content(
        str(exchange.request.get("body") or ""), *_WORD.findall(str(exchange.request.get("path") or ""))
    )


def of(exchange: Exchange) -> Content:
    """The content of a request to a service."""
    return of_statement(exchange) if "sql" in exchange.request else of_request(exchange)


def records(exchange: Exchange) -> Iterator[Row]:
    """The records of a Produce whose values the trace has."""
    for topic, _, batch in batches(exchange):
        for each in batch.get("records") or ():
            yield Row(topic, _text(each.get("key")), _text(each.get("value")))


def fetched(partition: Mapping[str, Any]) -> Iterator[tuple[int, Content]]:
    """Yield (offset, content) for each record of a partition in the response to a Fetch."""
    for batch in (partition.get("records") or {}).get("batches") or ():
        for each in batch.get("records") or ():
            yield each["offset"], content(_text(each.get("key")), _text(each.get("value")))


def _text(data: str | None) -> str | None:
    return None if data is None else b64decode(data).decode("utf-8", "replace")


def _parsed(text: str) -> object | None:
    if not text.startswith(("{", "[")):
        return None
    try:
        found: object = json.loads(text)
    except ValueError:
        return None
    return found


def _leaves(found: object, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(found, Mapping):
        for inner, each in found.items():
            yield from _leaves(each, str(inner))
    elif isinstance(found, list):
        for each in found:
            yield from _leaves(each)
    elif found is not None:
        if isinstance(found, str) and (inside := _parsed(found)) is not None:
            yield from _leaves(inside)
        yield name, _plain(found)


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for each in values:
        if isinstance(each, (list, tuple)):
            yield from _flat(each)
        else:
            yield each


def _name(name: str) -> str:
    return name.lower().replace("_", "")


def _plain(value: object) -> str:
    """A value as text, such that equal numbers are equal, and texts that differ in case only.

    >>> _plain("5.00"), _plain(5), _plain("O-1"), _plain(True)
    ('5', '5', 'o-1', 'true')
    """
    text = str(value).lower()
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 and "e" not in text else text
