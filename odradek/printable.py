"""Text of clients as a terminal may be given it: what comes from the broker may hold names that any client sent to it.

The broker has the same for its log and its trace: it is another process, and none of its packages are loaded here.
"""

from __future__ import annotations

import json
from typing import Final

NAME_MAX: Final = 80
"""So many characters of a name stand in a table: with an id of a client that has 36 of its own."""


def printable(text: str) -> str:
    """The same text with each character that `str.isprintable` denies as Python's escape, such as ``\\x1b``.

    It denies control characters (C0, DEL, C1), format characters (U+202E and the like), line separators, lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )


def clipped(text: str) -> str:
    """At most ``NAME_MAX`` characters: a transactional id may have 32,767."""
    return text if len(text) <= NAME_MAX else f"{text[: NAME_MAX - 1]}…"


def printable_lines(text: str) -> str:
    """``printable`` for text of several lines; tabs stay too."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def printable_json(value: object) -> str:
    """JSON in one line, with JSON's escapes for the same characters: a program reads the exact names."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _in_json(each) for each in text)


def _in_json(character: str) -> str:
    # json.dumps takes DEL for a character of ASCII like others.
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]
