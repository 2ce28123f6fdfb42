"""What the control port speaks to. It owns none of it, and knows no more of it than this."""

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
    """How many streams of the page are open."""

    now: int = 0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        self.now += 1
        try:
            yield
        finally:
            self.now -= 1


class Transactions(Protocol):
    """What coordinators and logs hold of transactional ids."""

    async def list(self) -> list[dict[str, Any]]:
        """Every id that a coordinator knows, in the form of `lab.trace.reading.transactions`."""
        ...

    async def timeline(self, transactional_id: str) -> Timeline:
        """The life of an id. ``UnknownTransaction`` if there is no such id."""
        ...


@slotted(frozen=True, kw_only=True)
class Looking:
    """What can be asked of whatever serves clients here: a cluster of ours, or a proxy before another one."""

    clock: VirtualClock
    faults: Faults
    trace: Trace
    views: Views
    explaining: Explaining | None = None
    """None where only what clients can ask is known."""
    metrics: Metrics
    transactions: Transactions
    watchers: Watchers = field(default_factory=lambda: Watchers())

    async def node_states(self) -> Mapping[str, str]:
        """The state of each node, by its id."""
        summary = await self.views.cluster()
        return {str(each.node): each.state for each in summary.nodes}

    async def upstream(self) -> dict[str, Any]:
        """What a proxy knows of the cluster behind it, in the form of ``GET /v1/cluster``."""
        raise NotImplementedError

    def offline_partitions(self) -> int:
        """How many replicas the nodes here cannot use; what is behind a proxy is not known."""
        return 0

    def refusal(self, what: str) -> str:
        """The sentence for what only something else has."""
        return f"there is no {what} here: GET /openapi.json says what there is"


@slotted(frozen=True, kw_only=True)
class Control(Looking):
    """All that can be asked and moved from outside, of one broker."""

    cluster: Cluster
    awaited_states: AwaitedStates
    snapshots: Snapshots

    async def node_states(self) -> Mapping[str, str]:
        return {str(node.node_id): node.shown_state for node in self.cluster.nodes.values()}

    def offline_partitions(self) -> int:
        running = self.cluster.running_nodes()
        return sum(each.offline is not None for node in running for each in node.replicas.opened())

    def forget(self) -> None:
        """Remove all rules, and what the trace has."""
        self.faults.clear()
        self.trace.stop()
        self.trace.clear()

    def add_first_rules(self) -> None:
        """Add the rules that the broker was started with. ``FaultError`` if it does not have what one names."""
        for text in self.cluster.settings.faults:
            self.faults.add(parse_rule(text))


def topic_of(metadata: ClusterMetadata, name: str) -> Topic:
    """The topic of this name; 404 if there is none."""
    found = metadata.topic(name)
    if found is None:
        raise not_found("topic", name, metadata.topics)
    return found
