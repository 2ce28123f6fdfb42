"""Parse the option ``filter``: comparisons joined by AND, in SQL's syntax, that the source applies itself.

    partition IN (0, 3) AND offset BETWEEN 100 AND 199 AND timestamp >= '2026-11-21 10:00:00' AND NOT control

Times are in UTC unless they have an offset.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import Any

from pyspark.sql import datasource as spark
from pyspark.sql.types import TimestampType

from odradek.spark.segments import filters
from odradek.spark.segments.options import BadOption
from odradek.spark.segments.schemas import TABLES

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+)|(?P<word>[A-Za-z_]\w*)|(?P<sign><=|>=|<>|!=|[=<>(),]))"
)
_COMPARISONS: dict[str, type[Any]] = {
    "=": spark.EqualTo,
    "<": spark.LessThan,
    "<=": spark.LessThanOrEqual,
    ">": spark.GreaterThan,
    ">=": spark.GreaterThanOrEqual,
}


def conditions(table: str, text: str) -> filters.Conditions:
    """Parse ``text`` to conditions on rows of ``table``."""
    taken, returned = filters.take(table, _Parser(table, text).all())
    if returned:
        raise BadOption(
            f"Option filter cannot apply {returned[0]}; use where() of the DataFrame for this condition."
        )
    return taken


class _Parser:
    def __init__(self, table: str, text: str) -> None:
        self._table, self._text = table, text
        self._tokens = list(self._split())
        self._at = 0

    def _split(self) -> Iterator[tuple[str, str]]:
        position = 0
        text = self._text.rstrip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None or found.lastgroup is None:
                raise self._wrong(f"{text[position:].strip()!r} cannot be parsed")
            yield found.lastgroup, found[found.lastgroup]
            position = found.end()

    def _wrong(self, why: str) -> BadOption:
        return BadOption(
            f"Option filter must be comparisons joined by AND, as in partition = 0 AND offset >= 100: {why}."
        )

    def all(self) -> Iterator[spark.Filter]:
        while True:
            yield from self._condition()
            if self._at == len(self._tokens):
                return
            self._expect("AND")

    def _next(self) -> tuple[str, str]:
        if self._at == len(self._tokens):
            raise self._wrong("the text ends early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _is(self, *words: str) -> bool:
        """Whether ``words`` come next; if so, they are consumed."""
        ahead = [text.upper() for _, text in self._tokens[self._at : self._at + len(words)]]
        if ahead != list(words):
            return False
        self._at += len(words)
        return True

    def _expect(self, word: str) -> None:
        if not self._is(word):
            found = self._tokens[self._at][1] if self._at < len(self._tokens) else "the end"
            raise self._wrong(f"{word} is expected, not {found}")

    def _condition(self) -> Iterator[spark.Filter]:
        opposite = self._is("NOT")
        kind, name = self._next()
        if kind != "word" or name.lower() not in TABLES[self._table].fieldNames():
            raise self._wrong(f"table {self._table} has no column {name}")
        column = name.lower()
        if self._is("BETWEEN"):
            if opposite:
                raise self._wrong("BETWEEN cannot be negated")
            yield spark.GreaterThanOrEqual((column,), self._literal(column))
            self._expect("AND")
            yield spark.LessThanOrEqual((column,), self._literal(column))
            return
        one, negated = self._one(column)
        yield spark.Not(one) if negated != opposite else one

    def _one(self, column: str) -> tuple[spark.Filter, bool]:
        """Parse the rest of a condition on ``column``; return it without a negation, and whether it is negated."""
        if self._is("IS", "NOT", "NULL"):
            return spark.IsNotNull((column,)), False
        if self._is("NOT", "IN"):
            return spark.In((column,), self._list(column)), True
        if self._is("IN"):
            return spark.In((column,), self._list(column)), False
        for sign in ("<>", "!="):
            if self._is(sign):
                return spark.EqualTo((column,), self._literal(column)), True
        for sign, kind in _COMPARISONS.items():
            if self._is(sign):
                return kind((column,), self._literal(column)), False
        return spark.EqualTo((column,), True), False

    def _list(self, column: str) -> tuple[Any, ...]:
        self._expect("(")
        found = [self._literal(column)]
        while self._is(","):
            found.append(self._literal(column))
        self._expect(")")
        return tuple(found)

    def _literal(self, column: str) -> Any:
        kind, text = self._next()
        if kind == "number":
            return int(text)
        if kind == "word" and text.upper() in ("TRUE", "FALSE"):
            return text.upper() == "TRUE"
        if kind == "word" and text.upper() == "TIMESTAMP":
            kind, text = self._next()
        if kind != "text":
            raise self._wrong(f"a number, a text in quotes, TRUE or FALSE is expected, not {text}")
        said = text[1:-1].replace("''", "'")
        return self._time(said) if isinstance(TABLES[self._table][column].dataType, TimestampType) else said

    def _time(self, said: str) -> datetime.datetime:
        try:
            found = datetime.datetime.fromisoformat(said)
        except ValueError:
            raise self._wrong(f"{said!r} is not a time such as 2026-11-21 10:00:00") from None
        return found if found.tzinfo is not None else found.replace(tzinfo=datetime.UTC)
