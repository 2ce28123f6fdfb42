"""The clock of one node: the broker's time, and timers that die with the node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from broker.clock import Clock, Domain, Guarded, Timer


class NodeClock:
    """A killed node has no timers: what it had set fires into nothing, as if its process were gone."""

    __slots__ = ("_clock", "alive", "now_for", "now_ms", "wait_for")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.alive = True
        self.now_ms: Callable[..., int] = clock.now_ms
        self.now_for: Callable[[int, Domain], int] = clock.now_for
        self.wait_for: Callable[[Awaitable[object]], None] = clock.wait_for

    def call_later_ms(self, delay_ms: float, callback: Callable[[], object], domain: Domain) -> Timer:
        return self._clock.call_later_ms(delay_ms, Guarded(callback, self), domain)

    def stop(self) -> None:
        """No timer fires any more."""
        self.alive = False
