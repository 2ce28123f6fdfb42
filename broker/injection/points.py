"""Injection points: steps inside the broker at which a fault can be injected.

One ``FaultInjection`` serves all nodes of a broker. The broker works without an interceptor; while
none is set, passing a point costs the test of one attribute (``python -m benchmarks.ports``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, Final, Protocol

from broker.injection.happenings import Happenings
from broker.injection.links import Links
from broker.injection.losses import Losses
from protocol.errors import ErrorCode
from protocol.slotted import slotted

POINTS: Final = frozenset(
    {
        "coordinator.load",
        "group.append",
        "log.fsync",
        "log.write",
        "replica.append",
        "share.append",
        "share.archive",
        "share.dlq",
        "share.expire",
        "share.write",
        "txn.complete.append",
        "txn.marker",
        "txn.prepare.append",
    }
)
"""Names of the steps that an interceptor may hold, refuse or lose."""


@slotted
class InjectionPoint:
    """A step inside the broker that is about to be executed."""

    point: str
    node_id: int
    topic: str = ""
    partition: int = -1
    transactional_id: str | None = None
    group_id: str | None = None
    offsets: tuple[tuple[int, int], ...] = ()
    """(first, last) offsets of the records of a share group that the step is about."""


class PointInterceptor(Protocol):
    """An interceptor of steps. ``watches`` returns whether it intercepts the steps at a point."""

    def watches(self, point: str) -> bool: ...

    def reached(
        self, at: InjectionPoint, go_on: Callable[[], object], refuse: Callable[[ErrorCode], object]
    ) -> None:
        """Call ``go_on`` to execute the step, now or later, or call ``refuse`` with an error.

        To lose the step, call neither.
        """
        ...


@slotted(eq=False)
class FaultInjection:
    """The fault injection of one broker: interceptor, links between its nodes, and the recorded events and losses."""

    points: PointInterceptor | None = None
    transaction_watcher: Callable[[Any], object] | None = None
    """Called with each transaction whose coordinator has committed a new state. None if there is no watcher."""
    links: Links = field(default_factory=Links)
    happenings: Happenings = field(default_factory=Happenings)
    losses: Losses = field(default_factory=Losses)

    def intercept(
        self, at: InjectionPoint, go_on: Callable[[], object], refuse: Callable[[ErrorCode], object]
    ) -> None:
        """Execute a step, unless the interceptor holds, refuses or loses it."""
        if self.points is None or not self.points.watches(at.point):
            go_on()
        else:
            self.points.reached(at, go_on, refuse)
