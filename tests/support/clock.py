"""A clock whose time changes only by `advance`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

from broker.clock import Domain, Unmoved

NOW_MS = 1_700_000_000_000


class FakeTimer:
    """A timer of a `FakeClock`."""

    def __init__(self, due_ms: float, callback: Callable[[], object], domain: Domain) -> None:
        self.due_ms = due_ms
        self.callback = callback
        self.domain = domain
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeClock(Unmoved):
    """`broker.clock.Clock` without real time: `advance` fires the timers that become due, in order, each at its own time.

    `only` is the only domain in which the test allows timers. Timers without a delay may be in any domain.
    """

    def __init__(self, now_ms: int = NOW_MS, only: Domain | None = None) -> None:
        self.now = now_ms
        self._only = only
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._arrivals = count()
        self.in_threads: list[asyncio.Future[Any]] = []
        """Work passed to ``wait_for`` that may not have ended yet, such as work in threads."""

    def wait_for(self, work: Awaitable[object]) -> None:
        self.in_threads = [
            each for each in (*self.in_threads, asyncio.ensure_future(work)) if not each.done()
        ]

    def now_ms(self, domain: Domain | None = None) -> int:
        return self.now

    def call_later_ms(self, delay_ms: float, callback: Callable[[], object], domain: Domain) -> FakeTimer:
        assert not delay_ms or self._only in (None, domain)
        timer = FakeTimer(self.now + max(delay_ms, 0), callback, domain)
        heappush(self._timers, (timer.due_ms, next(self._arrivals), timer))
        return timer

    @property
    def timers(self) -> list[FakeTimer]:
        """Timers that are not cancelled, the next one first."""
        return [timer for _, _, timer in sorted(self._timers) if not timer.cancelled]

    def advance(self, delay_ms: int) -> None:
        end_ms = self.now + delay_ms
        while self._timers and self._timers[0][0] <= end_ms:
            timer = heappop(self._timers)[2]
            if not timer.cancelled:
                self.now = max(self.now, int(timer.due_ms))
                timer.callback()
        self.now = end_ms

    def forget_timers(self) -> None:
        """Drop all timers, as the end of a process does."""
        self._timers.clear()
