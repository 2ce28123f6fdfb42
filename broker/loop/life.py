"""One life of a node: from its start to its kill, its stop, or the failure of the start.

A node that starts again has a new life. Objects of an earlier life (connections, timers, replicas, callbacks of threads) can
still be called by events that were scheduled before the node died. Each of them refers to its node's life, and does nothing
when the life has ended, because the process of a killed broker would not accept, write or send anything either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class LifeOver(Exception):
    """The life of the node ended during the operation: the node was killed or stopped, or its start failed."""


class SuspendedCoroutine(Protocol):
    """A suspended coroutine (`broker.loop.coroutines`)."""

    def close(self) -> None: ...


class NodeLife:
    """One life of a node, created at each start. ``alive`` changes from True to False once."""

    __slots__ = ("alive", "suspended", "suspended_coroutines")

    def __init__(self) -> None:
        self.alive = True
        self.suspended_coroutines: dict[SuspendedCoroutine, None] = {}
        """Suspended coroutines of this life, in the order of their suspension."""
        self.suspended: list[Callable[[], object]] | None = None
        """Callbacks of timers that became due since the node was paused, in order; None if the node is not paused."""

    def end(self) -> None:
        """End the life. Objects that refer to it refuse to work, and suspended coroutines are closed in order."""
        self.alive = False
        suspended, self.suspended_coroutines = self.suspended_coroutines, {}
        for coroutine in suspended:
            coroutine.close()

    def check(self) -> None:
        """Raise `LifeOver` if the life has ended."""
        if not self.alive:
            raise LifeOver
