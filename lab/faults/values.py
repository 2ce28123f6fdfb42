"""Parses the values of a rule: numbers, durations, versions, errors. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

from broker.clock.durations import BadDuration, parse_duration_ms
from protocol.errors import ErrorCode

WORDS_LISTED_MAX: Final = 24
VERSION_MAX: Final = 2**15 - 1
_SPAN: Final = re.compile(r"(\d{1,5})(?:\.\.(\d{1,5})?)?")


class FaultError(ValueError):
    """An invalid rule. The message says what is wrong and what would be valid."""


def there_is(what: str, wrong: str, right: Iterable[str]) -> str:
    """Message that ``wrong`` is not known; ``what`` says what kind of word it is, ``right`` are the known words.

    The message has the most similar known words; if none is similar, all of them, but only if they are few.
    """
    known = sorted(right)
    near = [each for each in known if each.lower() == wrong.lower()]
    for cutoff in (0.85, 0.6):
        near = near or difflib.get_close_matches(wrong, known, n=3, cutoff=cutoff)
    hint = ""
    if near:
        hint = f"; did you mean {' or '.join(near)}?"
    elif len(known) <= WORDS_LISTED_MAX:
        hint = f"; known: {', '.join(known)}"
    return f"{what} {wrong!r} is not known{hint}"


def parse_number(name: str, text: str) -> int:
    """Parse a whole number, at least 0."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise FaultError(f"{name}: {text!r} is not a whole number")
    return int(text)


def parse_duration(name: str, text: str) -> int:
    """Parse a duration such as ``250ms``, ``2s`` or ``1h30m`` to milliseconds. ``250`` without a unit means 250 ms."""
    if text.isascii() and text.isdigit():
        return parse_number(name, text)
    try:
        return parse_duration_ms(text)
    except BadDuration as error:
        raise FaultError(f"{name}: {error}") from None


@cache
def parse_span(name: str, text: str) -> tuple[int, int]:
    """Parse versions such as ``5``, ``3..5``, ``3..`` to the first and the last one."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise FaultError(f"{name}: {text!r} is not a version, such as 5, 3..5 or 3..")
    first = int(found[1])
    if ".." not in text:
        return first, first
    return first, int(found[2]) if found[2] else VERSION_MAX


def settled_span(name: str, text: str) -> str:
    """The shortest text for a range of versions: ``5`` for ``5..5``."""
    first, last = parse_span(name, text)
    if first == last:
        return str(first)
    return f"{first}.." if last == VERSION_MAX else f"{first}..{last}"


def parse_probability(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise FaultError(f"{name}: {text!r} is not a probability (0 to 1)") from None


def parse_code(text: str) -> ErrorCode:
    """Parse an error by Kafka's name or number."""
    try:
        return ErrorCode(int(text))
    except ValueError:
        pass
    try:
        return ErrorCode[text.lower()]
    except KeyError:
        raise FaultError(there_is("the error", text, (each.name.upper() for each in ErrorCode))) from None


def settled_code(_: str, text: str) -> str:
    """Convert Kafka's name or number of an error to the name in capital letters."""
    return parse_code(text).name.upper()


Parser = Callable[[str, str], Any]
SETTLED: Final[dict[str, Parser]] = {"version": settled_span, "code": settled_code}
"""By the name of a word in a rule: function that converts each spelling of a value (``5..5``) to one form (``5``)."""
