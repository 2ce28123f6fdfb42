"""Make text safe for a terminal: text from the broker may contain names that any client sent to the broker.

The broker has the same functions for its log and its trace. It is another process, whose packages are not imported here.
"""

from __future__ import annotations

import json
from typing import Final

NAME_MAX: Final = 80
"""Maximum length of a name in a table. It fits a client id with a UUID of 36 characters."""


def printable(text: str) -> str:
    """The text, in which each character that is not `str.isprintable` is replaced by Python's escape, such as ``\\x1b``.

    Not printable are control characters (C0, DEL, C1), format characters (U+202E and the like), line separators, lone
    surrogates.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )


def clipped(text: str) -> str:
    """The text cut to ``NAME_MAX`` characters: a transactional id may have 32,767."""
    return text if len(text) <= NAME_MAX else f"{text[: NAME_MAX - 1]}…"


def printable_lines(text: str) -> str:
    """Apply ``printable`` to text of several lines, except to line ends and tabs."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def printable_json(value: object) -> str:
    """The value as JSON in one line. Unprintable characters are escaped, so that programs read the exact names."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _in_json(each) for each in text)


def _in_json(character: str) -> str:
    # json.dumps does not escape DEL.
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]
