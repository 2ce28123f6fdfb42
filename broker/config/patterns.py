"""Regular expressions from clients, in RE2's syntax as in Kafka (which uses RE2/J), with size limits.

RE2 matches in time linear in the text, but parses a pattern before any of its own limits applies: ``max_mem`` limits the
compiled program, not the parse tree, in which one ``\\pL`` becomes 600 ranges. 60,000 of them took 12 s and 1.8 GB.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

PATTERN_CHARACTERS_MAX: Final = 1024
UNICODE_CLASSES_MAX: Final = 4
"""Maximum number of ``\\p…`` and ``\\P…`` in one pattern: RE2 needs a millisecond and 100 KB to parse each of them."""
PROGRAM_BYTES_MAX: Final = 512 * 1024
"""RE2's ``max_mem``: limits the compiled program and the state of a match."""

Matches = Callable[[str], bool]

_UNICODE_CLASS = re.compile(r"\\[pP]")


class InvalidPattern(ValueError):
    """A pattern that is invalid in RE2 or exceeds a limit."""


PATTERNS_KEPT: Final = 8
"""Cache size of compiled patterns, of at most two megabytes each, for clients that repeat their requests."""


@lru_cache(PATTERNS_KEPT)
def full_match(pattern: str) -> Matches:
    """Return a function that returns whether ``pattern`` matches a whole text. Raises `InvalidPattern`."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise InvalidPattern(f"{len(pattern)} characters, the maximum is {PATTERN_CHARACTERS_MAX}")
    classes = len(_UNICODE_CLASS.findall(pattern))
    if classes > UNICODE_CLASSES_MAX:
        raise InvalidPattern(f"{classes} Unicode classes, the maximum is {UNICODE_CLASSES_MAX}")
    # Imported with the first pattern: the import takes 20 ms, and few clients send one.
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PROGRAM_BYTES_MAX
    # Captures are not needed, and with 250 groups a match of 30 KB takes three seconds.
    options.never_capture = True
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidPattern(str(error)) from None
    finally:
        re2.purge()  # otherwise the module caches the last 128 patterns
    return lambda text: compiled.fullmatch(text) is not None
