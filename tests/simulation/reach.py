"""Base class of reaches. A reach is an optional part of the workload (clients, topics, checks) that only some seeds
run.

``drawn`` chooses the reaches by the seed, or the command line of `tests.simulation.run` names them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from random import Random
from typing import Any, NamedTuple

from broker.cluster import Cluster
from tests.simulation.clients import Stop
from tests.simulation.wire import Wire


class Stage(NamedTuple):
    """The run of the simulation that a `Reach` is part of."""

    cluster: Cluster
    stop: Stop
    wire: Callable[[str], Wire]
    """Creates the connections of a client, by client name."""
    say: Callable[[str], None]
    """Writes a line of the trace."""
    now_ms: Callable[[], int]
    reached: Callable[[str], None]
    """Records that a rare path was reached. The argument is its name in ``rare.BY_CLIENT``."""


class Reach:
    """Base class of a reach (an optional part of the workload). Its methods add nothing to the workload."""

    clients: Sequence[str] = ()
    """Names of the reach's clients, whose connections the faults may cut."""

    listeners: Sequence[str] = ()
    """Names of each node's further listeners, in addition to the first one."""

    def __init__(self, random: Random, nodes: int) -> None:
        self.random = random
        self.nodes = nodes
        self.stage: Stage

    def arguments(self, topic_settings: str) -> list[str]:
        """Further arguments for the broker. ``topic_settings`` are the settings of the workload's topics."""
        return []

    def begin(self, stage: Stage) -> None:
        """Called after the start of the cluster."""
        self.stage = stage

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        """The clients' coroutines, which run until ``stage.stop`` is set."""
        return ()

    def watching(self) -> AbstractContextManager[object]:
        """Context of the whole run, for checks inside the broker's functions."""
        return nullcontext()

    def heard(self, event: Mapping[str, Any]) -> None:
        """Called with each line of the broker's log."""

    def look(self) -> None:
        """Raise ``Broken`` for a violation. Called once per virtual second, and at each change of leaders."""

    def check(self) -> None:
        """Raise ``Broken`` for a violation at the end, when all nodes run and no client writes any more."""
