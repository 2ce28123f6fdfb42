"""Deadlines: when a test takes something for hung. No test decides anything else by wall clock.

    process.wait(HANG_S)
    deadline = Deadline()
    while not found():
        deadline.check("it is found")

A machine that is slow or has other work passes the same tests; where it is so slow that even these are too short,
``ODRADEK_DEADLINE_FACTOR=4`` stretches all of them, those of ``odradek`` included. A test that looks at the clock itself, or
waits for a number of seconds of its own, fails `tests/test_conventions.py`.
"""

from __future__ import annotations

import time
from typing import Final

from odradek.deadlines import stretched

HANG_S: Final = stretched(120)
"""For one thing that is waited for: an answer, a condition, the end of a process."""
TEST_S: Final = stretched(600)
"""For a whole test, and for what builds, fetches or starts much at once."""
LONG_TEST_S: Final = stretched(3600)
"""For a test of many rounds, which takes minutes on a machine that has the time."""


class NotInTime(AssertionError):
    """A deadline is over; the text says what has not happened."""


class Deadline:
    """From now on, so many seconds."""

    def __init__(self, seconds: float = HANG_S) -> None:
        self._seconds = seconds
        self._at = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Never negative."""
        return max(0.0, self._at - time.monotonic())

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._at

    def check(self, what: object) -> None:
        """``NotInTime`` once it is over; ``what`` has not happened."""
        if self.is_over:
            raise NotInTime(f"not within {self._seconds:g} s: {what}")


class Stopwatch:
    """How long something has taken *at least*: a machine that is slow makes that only more true."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def run_s(self) -> float:
        """For reports; what is decided by it is ``has_run_s``."""
        return time.monotonic() - self._began

    def has_run_s(self, seconds: float) -> bool:
        return self.run_s >= seconds
