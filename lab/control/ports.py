"""The interfaces of the objects that the control port uses. The control port owns none of these objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Protocol

from lab.control.errors import not_found
from lab.faults import parse_rule
from protocol.slotted import slotted

if TYPE_CHECKING:
    from broker.clock.virtual import VirtualClock
    from broker.cluster import Cluster
    from broker.metadata import ClusterMetadata
    from broker.metadata.values import Topic
    from lab.cluster.snapshots import Snapshots
    from lab.faults import Faults
    from lab.metrics.metrics import Metrics
    from lab.trace.awaited_states import AwaitedStates
    from lab.trace.timeline_view import Timeline
    from lab.trace.trace import Trace
    from lab.views.ports import Explaining, Views


WATCHERS_MAX: Final = 8


@slotted
class Watchers:
    """A counter of the open event streams (``GET /v1/watch``), such as those of web pages."""

    now: int = 0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        self.now += 1
        try:
            yield
        finally:
            self.now -= 1


class Transactions(Protocol):
    """Reads the states of transactional ids from coordinators, and their timelines from logs."""

    async def list(self) -> list[dict[str, Any]]:
        """All transactional ids that coordinators know, in the form of `lab.trace.reading.transactions`."""
        ...

    async def timeline(self, transactional_id: str) -> Timeline:
        """The timeline of a transactional id. Raises ``UnknownTransaction`` if there is no such id."""
        ...


@slotted(frozen=True, kw_only=True)
class Looking:
    """The objects that both the control port of a broker and the control port of a proxy can access."""

    clock: VirtualClock
    faults: Faults
    trace: Trace
    views: Views
    explaining: Explaining | None = None
    """Explains problems; None for a proxy, which knows only what clients can request."""
    metrics: Metrics
    transactions: Transactions
    watchers: Watchers = field(default_factory=lambda: Watchers())

    async def node_states(self) -> Mapping[str, str]:
        """State of each node, by node id."""
        summary = await self.views.cluster()
        return {str(each.node): each.state for each in summary.nodes}

    async def upstream(self) -> dict[str, Any]:
        """The cluster behind a proxy, in the form of ``GET /v1/cluster``."""
        raise NotImplementedError

    def offline_partitions(self) -> int:
        """Number of offline replicas on the nodes of this process; 0 for a proxy."""
        return 0

    def refusal(self, what: str) -> str:
        """Error message for an operation that this control port does not have."""
        return f"there is no {what} here: GET /openapi.json says what there is"


@slotted(frozen=True, kw_only=True)
class Control(Looking):
    """The objects that the control port of a broker can access."""

    cluster: Cluster
    awaited_states: AwaitedStates
    snapshots: Snapshots

    async def node_states(self) -> Mapping[str, str]:
        return {str(node.node_id): node.shown_state for node in self.cluster.nodes.values()}

    def offline_partitions(self) -> int:
        running = self.cluster.running_nodes()
        return sum(each.offline is not None for node in running for each in node.replicas.opened())

    def forget(self) -> None:
        """Remove all rules, and stop and clear the trace."""
        self.faults.clear()
        self.trace.stop()
        self.trace.clear()

    def add_first_rules(self) -> None:
        """Add the rules of the broker's settings. Raises ``FaultError`` if a rule names something that does not exist."""
        for text in self.cluster.settings.faults:
            self.faults.add(parse_rule(text))


def topic_of(metadata: ClusterMetadata, name: str) -> Topic:
    """The topic with this name. Raises ``HttpError`` 404 if there is none."""
    found = metadata.topic(name)
    if found is None:
        raise not_found("topic", name, metadata.topics)
    return found
