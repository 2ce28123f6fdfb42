"""The clock of one node: the cluster's time plus the node's skew, and timers that end with the node's life."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, cast

from broker.clock import MONOTONIC, NOTHING_DONE, Clock, Domain, Guarded, Timer
from broker.loop.life import NodeLife


class NodeClock:
    """The clock of one node. Timers of a dead node do nothing when they fire, as if the node's process had ended.

    The skew applies to times that Kafka reads from the wall clock, not to timers and the domains in `MONOTONIC`.
    """

    __slots__ = ("_clock", "cluster_ms", "life", "now_for", "now_ms", "skew_ms", "wait_for")

    def __init__(self, clock: Clock, life: NodeLife | None = None, skew_ms: int = 0) -> None:
        self._clock = clock
        self.life = life or NodeLife()
        self.cluster_ms: Callable[[], int] = clock.now_ms
        self.wait_for: Callable[[Awaitable[object]], None] = clock.wait_for
        self.skew(skew_ms)

    def skew(self, skew_ms: int) -> None:
        """Set the skew: milliseconds by which this clock is ahead of the cluster's clock; negative if it is behind."""
        self.skew_ms = skew_ms
        # Each append reads the clock, so without a skew the cluster clock's method is used directly.
        self.now_ms: Callable[..., int] = self._skewed_ms if skew_ms else self._clock.now_ms
        self.now_for: Callable[[int, Domain], int] = self._skewed_for if skew_ms else self._clock.now_for

    def _skewed_ms(self, domain: Domain | None = None) -> int:
        now_ms = self._clock.now_ms(domain)
        return now_ms if domain in MONOTONIC else now_ms + self.skew_ms

    def _skewed_for(self, written_ms: int, domain: Domain) -> int:
        """Like `Clock.now_for`. A record counts as written when this node's clock showed the timestamp, even if another node
        wrote the record."""
        return self._clock.now_for(written_ms - self.skew_ms, domain) + self.skew_ms

    def call_later_ms(self, delay_ms: float, callback: Callable[[], object], domain: Domain) -> Timer:
        """Set a timer that fires only while the node is alive. Does nothing if the node is dead."""
        if not self.life.alive:
            return NO_TIMER
        return self._clock.call_later_ms(delay_ms, _OfNode(callback, self.life), domain)

    def stop(self) -> None:
        """End the node's life, so that no timer fires any more."""
        self.life.end()


class _OfNode(Guarded):
    """The callback of a node's timer. If the timer fires while the node is paused, the callback runs at `resume`."""

    __slots__ = ()

    def __call__(self) -> object:
        life = cast(NodeLife, self._owner)
        if life.suspended is None or not life.alive:
            return super().__call__()
        life.suspended.append(self)
        return NOTHING_DONE


class _NoTimer:
    """The timer that a dead node sets: it never fires."""

    def cancel(self) -> None:
        pass


NO_TIMER: Final = _NoTimer()
