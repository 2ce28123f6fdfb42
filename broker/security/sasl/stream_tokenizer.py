"""Tokenizer for JAAS configurations that behaves like Java's ``StreamTokenizer``.

[token.text for token in tokens('Module required password="a\\"b"; // why', word_characters="-_$")]
['Module', 'required', 'password', None, 'a"b', None, None]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from protocol.named_tuple import NamedTuple

END: Final = ""
WORD: Final = "word"
QUOTED: Final = "quoted"
NUMBER: Final = "number"

_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|[\s\S]?)")


class Token(NamedTuple):
    kind: str
    """`END`, `WORD`, `QUOTED` or `NUMBER`, or for another token its single character, such as `=` or `;`."""
    text: str | None
    """Text of a word or quoted string, None for other tokens (``StreamTokenizer.sval``)."""
    line: int

    def __repr__(self) -> str:
        return f"Token({self.kind!r}, line {self.line})"  # the text may be a password


def tokens(text: str, word_characters: str) -> Iterator[Token]:
    """Yield all tokens; the last one is ``END``."""
    pattern, at, line = _pattern(word_characters), 0, 1
    while match := pattern.match(text, at):
        at = match.end()
        kind, found = match.lastgroup or "", match[0]
        if kind == "word":
            yield Token(WORD, found, line)
        elif kind in ("double", "single"):
            yield Token(QUOTED, _ESCAPE.sub(_unescaped, match[kind]), line)
        elif kind == "number":
            yield Token(NUMBER, None, line)
        elif kind == "other":
            yield Token(found, None, line)
        line += found.count("\n")
    yield Token(END, None, line)


@cache
def _pattern(word_characters: str) -> re.Pattern[str]:
    """Pattern for one token or separator. The characters 128 to 159 are not letters; all others above 127 are."""
    # A minus starts a number or is a token of its own, even if a word could continue with it.
    first = rf"A-Za-z\xa0-\U0010ffff{re.escape(word_characters.replace('-', ''))}"
    return re.compile(
        rf"""
          [\x00-\x20]+
        | //[^\n\r]* | /\*[\s\S]*?(?:\*/|\Z)
        | /[\s\S]?[^\n\r]*                    # a slash alone begins a comment too, which swallows a line's end after it
        | (?P<number> -?[0-9]+(?:\.[0-9]*)? | -?\.[0-9]* )
        | (?P<word> [{first}][{first}0-9.\-]* )
        | "(?P<double> (?:\\[\s\S]?|[^"\\\n\r])* )(?:"|(?=[\n\r])|\Z)
        | '(?P<single> (?:\\[\s\S]?|[^'\\\n\r])* )(?:'|(?=[\n\r])|\Z)
        | (?P<other> [\s\S] )
        """,
        re.VERBOSE,
    )


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    if len(escaped) > 1 or escaped in tuple("01234567"):
        return chr(int(escaped, 8))
    return _ESCAPES.get(escaped, escaped) or "\uffff"  # the text ends with a backslash
