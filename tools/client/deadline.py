"""A common time limit for all requests of a command."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tools.client.errors import OutOfTime, ToolError


class Deadline:
    """A time limit for all requests of a command together, or no limit."""

    def __init__(self, timeout_s: float | None = None) -> None:
        self._timeout_s = timeout_s or 0.0
        self._end = None if timeout_s is None else time.monotonic() + timeout_s

    @property
    def is_set(self) -> bool:
        """Whether this deadline has a time limit."""
        return self._end is not None

    @property
    def is_over(self) -> bool:
        """Whether the time limit has passed; False without a limit."""
        return self._end is not None and time.monotonic() >= self._end

    def left(self, usual_s: float, share: float = 1.0) -> float:
        """Timeout of the next request in seconds: ``usual_s``, or the fraction ``share`` of the remaining time if less.

        Raises ``OutOfTime`` if no time remains.
        """
        if self._end is None:
            return usual_s
        left_s = self._end - time.monotonic()
        if left_s <= 0:
            raise self.out_of_time()
        return min(usual_s, left_s * share)

    def out_of_time(self, last: ToolError | None = None) -> OutOfTime:
        """The error for a command that has exceeded its limit."""
        return OutOfTime(self._timeout_s, last)

    @contextmanager
    def within(self, timeout_s: float) -> Iterator[None]:
        """Context manager: a shorter limit for the requests in the block."""
        before = self._end, self._timeout_s
        end = time.monotonic() + timeout_s
        if self._end is None or end < self._end:
            self._end, self._timeout_s = end, timeout_s
        try:
            yield
        finally:
            self._end, self._timeout_s = before
