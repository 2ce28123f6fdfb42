"""The clock of one node: the broker's time, and timers that die with the node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, cast

from broker.clock import NOTHING_DONE, Clock, Domain, Guarded, Timer
from broker.loop.life import NodeLife


class NodeClock:
    """A killed node has no timers: what it had set fires into nothing, as if its process were gone."""

    __slots__ = ("_clock", "life", "now_for", "now_ms", "wait_for")

    def __init__(self, clock: Clock, life: NodeLife | None = None) -> None:
        self._clock = clock
        self.life = life or NodeLife()
        self.now_ms: Callable[..., int] = clock.now_ms
        self.now_for: Callable[[int, Domain], int] = clock.now_for
        self.wait_for: Callable[[Awaitable[object]], None] = clock.wait_for

    def call_later_ms(self, delay_ms: float, callback: Callable[[], object], domain: Domain) -> Timer:
        """A timer that fires only while the node is alive; one that a dead node sets is none."""
        if not self.life.alive:
            return NO_TIMER
        return self._clock.call_later_ms(delay_ms, _OfNode(callback, self.life), domain)

    def stop(self) -> None:
        """No timer fires any more: the life is over."""
        self.life.end()


class _OfNode(Guarded):
    """The callback of a node's timer: while the node is paused it waits."""

    __slots__ = ()

    def __call__(self) -> object:
        life = cast(NodeLife, self._owner)
        if life.suspended is None or not life.alive:
            return super().__call__()
        life.suspended.append(self)
        return NOTHING_DONE


class _NoTimer:
    """What a dead node has set: it never fires."""

    def cancel(self) -> None:
        pass


NO_TIMER: Final = _NoTimer()
