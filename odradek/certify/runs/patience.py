"""Decide whether to wait any longer for a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from odradek.certify.runs.idleness import Idleness

ASK_PAUSE_S: Final = 0.25
RESTS: Final = 1 / 3


class Patience:
    """The deadline of a run, and how long its job may go without a request that changes something (``patience_s``).

    If ``patience_s`` is None, only the deadline counts.
    """

    def __init__(
        self, deadline_s: float, patience_s: float | None, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._deadline, self._deadline_s, self._patience_s = now_s() + deadline_s, deadline_s, patience_s
        self._idleness = Idleness(now_s)
        self._now_s, self._asked = now_s, now_s()
        self.held_s = 0.0
        """Seconds that the run was held at faults, which do not count."""

    def asks_now(self) -> bool:
        """Whether the caller may make an expensive query now: True at most once in `ASK_PAUSE_S` seconds."""
        now = self._now_s()
        if now - self._asked < ASK_PAUSE_S:
            return False
        self._asked = now
        return True

    def stood_still(self, held_s: float) -> None:
        """Extend all limits by the time that the run was held."""
        self.held_s += held_s
        self._deadline += held_s
        self._idleness.leave_out(held_s)
        self._asked += held_s

    @property
    def has_no_time(self) -> bool:
        return self._now_s() > self._deadline

    def begins_again(self) -> None:
        """Restart the idle time, because of a change that the job may have waited for."""
        self._idleness.begin_again()

    @property
    def rest_s(self) -> float | None:
        """Idle time in seconds after which the outputs are checked, as they may be correct; None without ``patience_s``."""
        return None if self._patience_s is None else self._patience_s * RESTS

    def over(self, newest: int) -> str:
        """Reason why the run is over; empty if it is not over. ``newest`` is `Progress.newest_write`."""
        idle_s = self._idleness.lasts_s(newest)
        if self.has_no_time:
            return f"{self._deadline_s:.0f} s have passed"
        if self._patience_s is not None and idle_s > self._patience_s:
            return f"the job has requested no change for {self._patience_s:.0f} s"
        return ""
