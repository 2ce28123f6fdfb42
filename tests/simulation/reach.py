"""What only some seeds do: each reach adds clients, topics and checks of its own to a run, which costs time.

A reach is drawn by the seed (``drawn``), or named on the command line of `tests.simulation.run`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

from broker.cluster import Cluster
from tests.simulation.clients import Stop
from tests.simulation.wire import Wire


class Stage(NamedTuple):
    """The run that a reach is part of."""

    cluster: Cluster
    stop: Stop
    wire: Callable[[str], Wire]
    """Makes the connections of a client by its name."""
    say: Callable[[str], None]
    """Writes a line of the trace."""
    now_ms: Callable[[], int]
    reached: Callable[[str], None]
    """Notes a rare path by its name in ``rare.BY_CLIENT``."""


class Reach:
    """Base class: does nothing."""

    clients: Sequence[str] = ()
    """Names of its clients, whose connections the faults cut."""

    listeners: Sequence[str] = ()
    """Of each node, beside the first one."""

    def __init__(self, random: Random, nodes: int) -> None:
        self.random = random
        self.nodes = nodes
        self.stage: Stage

    def arguments(self, topic_settings: str) -> list[str]:
        """More of the broker's command line. ``topic_settings`` are those of the workload's topics."""
        return []

    def begin(self, stage: Stage) -> None:
        """The cluster has started."""
        self.stage = stage

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        """The clients, which go on until ``stage.stop``."""
        return ()

    def look(self) -> None:
        """``Broken`` if a rule does not hold now. Called once in a virtual second, and whenever leaders change."""

    def check(self) -> None:
        """``Broken`` if a rule does not hold at the end, when all nodes run and no client writes any more."""
