"""Idle times, measured in real time because the timestamps of a broker whose clock is advanced do not show them."""

from __future__ import annotations

import time
from collections.abc import Callable


class Idleness:
    """Idle time of a source of numbered events.

    The caller polls `lasts_s` with the number of the latest event.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self.newest = 0
        """The highest number of an event so far; 0 before the first event."""
        self._since = now_s()
        self.longest_s = 0.0
        """The longest time between two consecutive events of the source, in seconds."""

    def lasts_s(self, newest: int) -> float:
        """Observe the latest event, with the number ``newest`` (0 if there was none yet), and return `since_s`.

        The caller must poll this method, because an event counts from the first call that observes it.
        """
        if newest > self.newest:
            if self.newest:
                self.longest_s = max(self.longest_s, self.since_s)
            self.newest = newest
            self.begin_again()
        return self.since_s

    @property
    def since_s(self) -> float:
        """Seconds since the last new event, since `begin_again` or since the creation, whichever was latest."""
        return self._now_s() - self._since

    def leave_out(self, held_s: float) -> None:
        """Do not count ``held_s`` seconds as idle, because the source was held and could have no event."""
        self._since += held_s

    def begin_again(self) -> None:
        self._since = self._now_s()
