"""Patterns that clients send, in RE2's syntax as on Kafka (which uses RE2/J), within bounds.

RE2 matches in time linear in the text, but it parses before any of its own bounds counts: ``max_mem`` limits the compiled
program, not the parse tree, and one ``\\pL`` becomes 600 ranges there. 60,000 of them cost 12 s and 1.8 GB.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

PATTERN_CHARACTERS_MAX: Final = 1024
UNICODE_CLASSES_MAX: Final = 4
"""``\\p…`` and ``\\P…`` in one pattern: each takes RE2 a millisecond and a hundred kilobytes to parse."""
PROGRAM_BYTES_MAX: Final = 512 * 1024
"""How large a compiled pattern may become, and what a match may remember."""

Matches = Callable[[str], bool]

_UNICODE_CLASS = re.compile(r"\\[pP]")


class InvalidPattern(ValueError):
    """RE2 does not take it, or it is beyond the bounds."""


PATTERNS_KEPT: Final = 8
"""Compiled ones, for clients that ask again and again; of at most two megabytes each."""


@lru_cache(PATTERNS_KEPT)
def full_match(pattern: str) -> Matches:
    """Does a whole text match ``pattern``? Raises `InvalidPattern`."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise InvalidPattern(f"{len(pattern)} characters, {PATTERN_CHARACTERS_MAX} may be")
    classes = len(_UNICODE_CLASS.findall(pattern))
    if classes > UNICODE_CLASSES_MAX:
        raise InvalidPattern(f"{classes} Unicode classes, {UNICODE_CLASSES_MAX} may be")
    # Loaded with the first pattern: it takes 20 ms, and few clients send one.
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PROGRAM_BYTES_MAX
    # Groups tell nothing here, and 250 of them make a match of 30 KB take three seconds.
    options.never_capture = True
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidPattern(str(error)) from None
    finally:
        re2.purge()  # the module would keep the last 128
    return lambda text: compiled.fullmatch(text) is not None
