"""One life of a node: it begins with the node's start, and ends with its kill, its stop, or a start that fails.

A node that starts again has a new life. What belongs to an earlier one (connections, timers, replicas, callbacks of threads)
may still be reached by events that the loop had taken in before the node died. Each of these carries its node's life, and
does nothing once that is over: a process that was killed accepts, writes and answers nothing either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class LifeOver(Exception):
    """The node was killed in the middle of what it did."""


class SuspendedCoroutine(Protocol):
    """A coroutine that waits (`broker.loop.coroutines`)."""

    def close(self) -> None: ...


class NodeLife:
    """Made at each start of a node. ``alive`` goes from True to False, once."""

    __slots__ = ("alive", "suspended", "suspended_coroutines")

    def __init__(self) -> None:
        self.alive = True
        self.suspended_coroutines: dict[SuspendedCoroutine, None] = {}
        """What waits in this life, the one that has waited longest first."""
        self.suspended: list[Callable[[], object]] | None = None
        """While the node is paused: the timers that were due meanwhile, in their order."""

    def end(self) -> None:
        """From now on everything that carries this life refuses to work. What waits in it is closed, in its order."""
        self.alive = False
        suspended, self.suspended_coroutines = self.suspended_coroutines, {}
        for coroutine in suspended:
            coroutine.close()

    def check(self) -> None:
        """Raise `LifeOver` if the node has died meanwhile."""
        if not self.alive:
            raise LifeOver
