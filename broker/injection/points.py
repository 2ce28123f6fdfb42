"""Injection points: the steps inside the broker at which a fault can be injected, and the links between its nodes.

One ``FaultInjection`` serves all nodes of a broker. It is a port: the broker reaches points and asks links, and runs
without an interceptor. While none is set a point costs one test of one attribute (``python -m benchmarks.ports``).
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
        "txn.complete.append",
        "txn.marker",
        "txn.prepare.append",
    }
)
"""The steps inside the broker that an interceptor may hold, refuse or lose, by name."""


@slotted
class InjectionPoint:
    """A step inside the broker that is about to be taken."""

    point: str
    node_id: int
    topic: str = ""
    partition: int = -1
    transactional_id: str | None = None
    group_id: str | None = None


class PointInterceptor(Protocol):
    """Intercepts steps. ``watches`` says whether it has anything to do with a point."""

    def watches(self, point: str) -> bool: ...

    def reached(
        self, at: InjectionPoint, go_on: Callable[[], object], refuse: Callable[[ErrorCode], object]
    ) -> None:
        """Call ``go_on``, now or later, or ``refuse`` with the error that the step ends in, or neither if it is lost."""
        ...


@slotted(eq=False)
class FaultInjection:
    """The port of one broker: what may hold its steps, what the links between its nodes carry, and what has happened."""

    points: PointInterceptor | None = None
    transaction_watcher: Callable[[Any], object] | None = None
    """Told each transaction whose new state a coordinator has committed, while a caller waits for one."""
    links: Links = field(default_factory=Links)
    happenings: Happenings = field(default_factory=Happenings)
    losses: Losses = field(default_factory=Losses)

    def intercept(
        self, at: InjectionPoint, go_on: Callable[[], object], refuse: Callable[[ErrorCode], object]
    ) -> None:
        """Take a step, unless the interceptor holds it or lets it fail."""
        if self.points is None or not self.points.watches(at.point):
            go_on()
        else:
            self.points.reached(at, go_on, refuse)
