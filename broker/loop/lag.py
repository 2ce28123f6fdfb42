"""Permanent measurement of the event loop's lag.

All work runs on one event loop, so work that blocks the loop delays every client. A timer is due every
``INTERVAL_S`` seconds. The lag is the time from when the timer is due until it fires: a request that arrived when
the timer was due had to wait for as long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from broker.logging import get_logger

# Short compared to the lag that causes a warning, so that such a stall cannot fall between two measurements. Long enough
# that an idle broker uses hardly any CPU.
INTERVAL_S: Final = 0.05
WARN_ABOVE_MS: Final = 100.0
SLICE_S: Final = 5.0
SLICES_KEPT: Final = 12
"""Number of periods of ``SLICE_S`` seconds for which the maximum lag is kept: together the last minute."""

log = get_logger()


class LoopLag:
    """Lag of the event loop in milliseconds: the newest measurement, and the maximum of the last minute."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.last_ms = 0.0
        self._loop = loop
        self._maxima: deque[float] = deque([0.0], maxlen=SLICES_KEPT)
        self._slice_ends = 0.0
        self._due = 0.0
        self._warned = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def max_ms(self) -> float:
        return max(self._maxima)

    def start(self) -> None:
        now = self._loop.time()
        self._slice_ends = now + SLICE_S
        self._schedule(now)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, now: float) -> None:
        self._due = now + INTERVAL_S
        self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        self.last_ms = lag_ms = max(0.0, (now - self._due) * 1000)
        while now >= self._slice_ends:
            self._maxima.append(0.0)
            self._slice_ends += SLICE_S
        self._maxima[-1] = max(self._maxima[-1], lag_ms)
        if lag_ms > WARN_ABOVE_MS and not self._warned:
            # Warn once. The metric shows later lags, and more log lines would slow down a machine that is too slow anyway.
            self._warned = True
            log.warning("event loop is late", lag_ms=round(lag_ms), above_ms=WARN_ABOVE_MS)
        self._schedule(now)
