"""Throttling of the thread that compacts logs, so that the event loop gets the interpreter lock (GIL) often enough."""

from __future__ import annotations

import time
from typing import Final

STRETCH_S: Final = 0.0005
"""Seconds of work after which the compacting thread sleeps for ``REST_S``.

With Python's own switch interval the event loop would wait 5 ms for the GIL each time.
"""
REST_S: Final = 0.00005
"""Seconds for which the compacting thread sleeps after ``STRETCH_S`` of work. A thread that only
yielded would take the GIL back before the event loop's thread has woken up."""
SLEEP_S_MAX: Final = 0.02
"""Longest single sleep in seconds: after each sleep the thread checks whether its pass was abandoned. A low limit of
the I/O rate causes many sleeps in a row."""


class Abandoned(Exception):
    """Raised in the compacting thread after its pass was cancelled."""


class CleanerThrottler:
    """A throttle that the compacting thread calls frequently. A call raises `Abandoned` once ``abandoned`` is set.

    ``bytes_per_second`` limits the bytes read and written (``log.cleaner.io.max.bytes.per.second``).
    """

    def __init__(self, bytes_per_second: float) -> None:
        self.abandoned = False
        self._bytes_per_second = bytes_per_second
        self._stretch_ends = 0.0
        self._not_before = 0.0

    def __call__(self, moved_bytes: int) -> None:
        if self.abandoned:
            raise Abandoned
        now = time.monotonic()
        if moved_bytes:
            self._not_before = max(self._not_before, now) + moved_bytes / self._bytes_per_second
        if now < self._stretch_ends:
            return
        time.sleep(REST_S)
        while self._not_before > time.monotonic():
            time.sleep(SLEEP_S_MAX)
            if self.abandoned:
                raise Abandoned
        self._stretch_ends = time.monotonic() + STRETCH_S
