"""One life of a node: it begins with the node's start, and ends with its kill, its stop, or a start that fails.

A node that starts again has a new life. What belongs to an earlier one (connections, timers, replicas, callbacks of threads)
may still be reached by events that the loop had taken in before the node died. Each of these carries its node's life, and
does nothing once that is over: a process that was killed accepts, writes and answers nothing either.
"""

from __future__ import annotations

from collections.abc import Callable


class LifeOver(Exception):
    """The node was killed in the middle of what it did."""


class NodeLife:
    """Made at each start of a node. ``alive`` goes from True to False, once."""

    __slots__ = ("alive", "suspended")

    def __init__(self) -> None:
        self.alive = True
        self.suspended: list[Callable[[], object]] | None = None
        """While the node is paused: the timers that were due meanwhile, in their order."""

    def end(self) -> None:
        """From now on everything that carries this life refuses to work."""
        self.alive = False

    def check(self) -> None:
        """Raise `LifeOver` if the node has died meanwhile."""
        if not self.alive:
            raise LifeOver
