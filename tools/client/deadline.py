"""How long all requests of a command may take together."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tools.client.errors import OutOfTime, ToolError


class Deadline:
    """No limit, or the moment until which responses are waited for."""

    def __init__(self, timeout_s: float | None = None) -> None:
        self._timeout_s = timeout_s or 0.0
        self._end = None if timeout_s is None else time.monotonic() + timeout_s

    @property
    def is_set(self) -> bool:
        """There is a limit."""
        return self._end is not None

    @property
    def is_over(self) -> bool:
        """The time is spent."""
        return self._end is not None and time.monotonic() >= self._end

    def left(self, usual_s: float, share: float = 1.0) -> float:
        """Seconds that the next step may take: ``usual_s``, or this share of what is left; ``OutOfTime`` if nothing is."""
        if self._end is None:
            return usual_s
        left_s = self._end - time.monotonic()
        if left_s <= 0:
            raise self.out_of_time()
        return min(usual_s, left_s * share)

    def out_of_time(self, last: ToolError | None = None) -> OutOfTime:
        """The error of a command whose time is spent."""
        return OutOfTime(self._timeout_s, last)

    @contextmanager
    def within(self, timeout_s: float) -> Iterator[None]:
        """A shorter limit for some of the requests."""
        before = self._end, self._timeout_s
        end = time.monotonic() + timeout_s
        if self._end is None or end < self._end:
            self._end, self._timeout_s = end, timeout_s
        try:
            yield
        finally:
            self._end, self._timeout_s = before
