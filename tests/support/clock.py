"""A clock that stands still until a test moves it."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

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
    """`broker.clock.Clock` by hand: `advance` fires what comes due on the way, in order, each at its own time.

    `only` names the one domain that timers may be set in, where a test knows it; what only waits for the next turn may
    be of any.
    """

    def __init__(self, now_ms: int = NOW_MS, only: Domain | None = None) -> None:
        self.now = now_ms
        self._only = only
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._arrivals = count()

    def now_ms(self, domain: Domain | None = None) -> int:
        return self.now

    def call_later_ms(self, delay_ms: float, callback: Callable[[], object], domain: Domain) -> FakeTimer:
        assert not delay_ms or self._only in (None, domain)
        timer = FakeTimer(self.now + max(delay_ms, 0), callback, domain)
        heappush(self._timers, (timer.due_ms, next(self._arrivals), timer))
        return timer

    @property
    def timers(self) -> list[FakeTimer]:
        """Those that may still fire, the next one first."""
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
        """The process that set them is gone."""
        self._timers.clear()
