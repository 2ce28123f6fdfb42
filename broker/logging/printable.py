"""Text of clients as a terminal may be given it.

Client ids, transactional ids, group and member ids, header names and error texts come from the wire and may hold anything:
an escape sequence that clears the screen, a carriage return that overwrites the line, a mark that turns the direction.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """The same text with each character that `str.isprintable` denies as Python's escape, such as ``\\x1b``.

    It denies control characters (C0, DEL, C1), format characters (U+202E and the like), line separators, lone surrogates.
    A backslash stays as it is: the result is for eyes, and JSON is where exact names are.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )


def printable_lines(text: str) -> str:
    """``printable`` for text that has lines and tabs of its own, such as a traceback."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))
