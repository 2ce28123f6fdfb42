"""Rows of outputs that are no topics, as records: a JSON object of the columns, in which equal values have equal text."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from odradek.topics import Record


def row(label: str, number: int, value: object, key: str | None = None) -> Record:
    """A row of an output that is no topic."""
    return Record(label, -1, number, -1, key, _json(value), (), -1, -1, False, None)


def parsed_row(label: str, text: str, key: str | None = None) -> Record:
    """A row that the user expects, from its JSON text. Any other text is the value of a line."""
    try:
        value = plain(loads(text))
    except ValueError:
        value = text
    if key is None:
        key = key_of(next(iter(value.values()), None) if isinstance(value, dict) else value)
    return row(label, -1, value, key)


def key_of(value: object) -> str | None:
    """The value of a row's first column as the key of its record.

    >>> key_of("a"), key_of(1), key_of(True), key_of(None)
    ('a', '1', 'true', None)
    """
    return value if value is None or isinstance(value, str) else _json(value)


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def number(text: str) -> int | float | str:
    """A number as a JSON number, in the same form for all equal numbers; as text if a float cannot represent it.

    >>> number("12.50"), number("3.00"), number("0.1234567890123456789"), number("NaN")
    (12.5, 3, '0.1234567890123456789', 'NaN')
    """
    exact, near = Decimal(text), float(text)
    if not exact.is_finite():
        return text
    if Decimal(repr(near)) == exact:
        return int(near) if near.is_integer() and abs(near) < 2**53 else near
    return int(exact) if exact == exact.to_integral_value() else text.rstrip("0")


def loads(text: str | bytes) -> Any:
    """Parse JSON, with each number in its one form. Raises ``ValueError``."""
    return json.loads(text, parse_float=number)


def plain(value: object) -> object:
    """A Python value as a JSON value: times as in ISO 8601, bytes in hexadecimal, numbers in their one form.

    >>> plain({"at": datetime.date(2026, 1, 1), "n": [Decimal("1.50"), 2.0], "b": bytes([1, 255])})
    {'at': '2026-01-01', 'n': [1.5, 2], 'b': '0x01ff'}
    """
    match value:
        case Mapping():
            return {str(name): plain(each) for name, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case float() | Decimal():
            return number(str(value))
        case bytes():
            return "0x" + value.hex()
        case datetime.date() | datetime.time():
            return value.isoformat()
        case None | bool() | int() | str():
            return value
        case _:
            return str(value)
