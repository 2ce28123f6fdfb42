"""How long nothing has happened, in real time: the stamps of a broker whose clock is moved say nothing about that."""

from __future__ import annotations

import time
from collections.abc import Callable


class Idleness:
    """Of something that has a number, and a higher one whenever it happens."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self.newest = 0
        """The highest number so far; 0: none."""
        self._since = now_s()
        self.longest_s = 0.0
        """The longest time between two numbers that followed each other."""

    def lasts_s(self, newest: int) -> float:
        """So long ago ``newest`` was seen to be the newest for the first time. To be asked all the time; 0 is of none."""
        if newest > self.newest:
            if self.newest:
                self.longest_s = max(self.longest_s, self.since_s)
            self.newest = newest
            self.begin_again()
        return self.since_s

    @property
    def since_s(self) -> float:
        """How long ago the newest one was seen first, or `begin_again` was called."""
        return self._now_s() - self._since

    def leave_out(self, held_s: float) -> None:
        """So long nothing could happen."""
        self._since += held_s

    def begin_again(self) -> None:
        self._since = self._now_s()
