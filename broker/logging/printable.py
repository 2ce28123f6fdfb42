"""Escapes text from clients, so that it can be shown on a terminal.

Client ids, transactional ids, group and member ids, header names and error texts come from the wire and may contain
anything: an escape sequence that clears the screen, a carriage return that overwrites the line, a mark that reverses the
text direction.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with each character that is not `str.isprintable` replaced by Python's escape, such as ``\\x1b``.

    These are control characters (C0, DEL, C1), format characters (U+202E and the like), line separators and lone surrogates.
    A backslash is not escaped, so the result is ambiguous; JSON output has the exact names.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )


def printable_lines(text: str) -> str:
    """``printable`` for text that contains line breaks and tabs itself, such as a traceback."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))
