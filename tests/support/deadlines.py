"""Deadlines after which a test counts as hung, the only use of the wall clock in tests.

    process.wait(HANG_S)
    deadline = Deadline()
    while not found():
        deadline.check("it is found")

Slow and busy machines pass the same tests. If these deadlines are too short for a machine, ``ODRADEK_DEADLINE_FACTOR=4``
multiplies all of them, those of ``odradek`` included. `tests/test_conventions.py` fails for tests that read the clock
themselves or wait for a number of seconds of their own.
"""

from __future__ import annotations

import time
from typing import Final

from odradek.deadlines import stretched

HANG_S: Final = stretched(120)
"""Seconds to wait for one thing: a response, a condition, the end of a process."""
TEST_S: Final = stretched(600)
"""Seconds for a whole test, and for a step that builds, downloads or starts many things."""
LONG_TEST_S: Final = stretched(3600)
"""Seconds for a test of many rounds that takes minutes on an idle machine."""


class NotInTime(AssertionError):
    """A deadline has expired. The text says what did not happen."""


class Deadline:
    """A deadline this many seconds from now, times ``ODRADEK_DEADLINE_FACTOR``."""

    def __init__(self, seconds: float = HANG_S) -> None:
        self._seconds = seconds
        self._at = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self._at - time.monotonic())

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._at

    def check(self, what: object) -> None:
        """Raise ``NotInTime`` if the deadline has expired. ``what`` describes the awaited event that did not happen."""
        if self.is_over:
            raise NotInTime(f"did not happen within {self._seconds:g} s: {what}")


class Stopwatch:
    """A stopwatch whose time is a lower bound: on a slow machine the measured work takes longer, never shorter."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def run_s(self) -> float:
        """Seconds since the start, for reports only. Use ``has_run_s`` for decisions."""
        return time.monotonic() - self._began

    def has_run_s(self, seconds: float) -> bool:
        return self.run_s >= seconds
