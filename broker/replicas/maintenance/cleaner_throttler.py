"""How a compaction in its thread leaves the event loop its turns."""

from __future__ import annotations

import time
from typing import Final

STRETCH_S: Final = 0.0005
"""After so much work the others may run. Python alone would let them wait for 5 ms, each time."""
REST_S: Final = 0.00005
"""A real sleep: who only yields has the interpreter back before the loop's thread has woken up."""
SLEEP_S_MAX: Final = 0.02
"""An abandoned pass should notice it soon, however slow it is meant to be."""


class Abandoned(Exception):
    """The pass is not wanted any more."""


class CleanerThrottler:
    """Called again and again from the thread that compacts; raises `Abandoned` once ``abandoned`` is set.

    ``bytes_per_second`` bounds what is read and written (``log.cleaner.io.max.bytes.per.second``).
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
