"""The clock of one node: the broker's time, and timers that die with the node."""

from __future__ import annotations

from collections.abc import Callable

from broker.clock import Clock, Domain, Timer


class NodeClock:
    """A killed node has no timers: what it had set fires into nothing, as if its process were gone."""

    __slots__ = ("_alive", "_clock", "now_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._alive = True
        self.now_ms: Callable[..., int] = clock.now_ms

    def call_later_ms(self, delay_ms: float, callback: Callable[[], object], domain: Domain) -> Timer:
        def fire() -> None:
            if self._alive:
                callback()

        return self._clock.call_later_ms(delay_ms, fire, domain)

    def stop(self) -> None:
        """No timer fires any more."""
        self._alive = False
