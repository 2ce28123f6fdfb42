"""Creates the objects that the control port uses: fault rules, trace, views and metrics of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lab.cluster.snapshots import Snapshots
from lab.control.access import ControlConfigError
from lab.control.ports import Control
from lab.faults import FaultError, Faults
from lab.metrics.metrics import Metrics
from lab.metrics.of_cluster import ClusterMetrics
from lab.metrics.request_metrics import RequestMetrics
from lab.trace.awaited_states import AwaitedStates
from lab.trace.reading import timeline, transactions
from lab.trace.trace import Trace
from lab.views.cluster_views import ClusterViews
from lab.views.explaining.cluster_explaining import ClusterExplaining

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.cluster import Cluster
    from lab.faults.acl_rules import AclControl
    from lab.trace.timeline_view import Timeline


class ClusterTransactions:
    """The implementation of `lab.control.ports.Transactions` for the nodes of this process."""

    def __init__(self, cluster: Cluster, trace: Trace) -> None:
        self._cluster = cluster
        self._trace = trace

    async def list(self) -> list[dict[str, Any]]:
        return transactions(self._cluster.running_nodes())

    async def timeline(self, transactional_id: str) -> Timeline:
        return await timeline(self._cluster.running_nodes(), transactional_id, self._trace)


def acls_of(cluster: Cluster) -> Callable[[], AclControl] | None:
    """Function that returns the cluster's `AclControl`; None without an authorizer, since nothing would read the ACLs."""
    if not cluster.settings.config.authorizer_class_name:
        return None
    return lambda: cluster.metadata.acl_control


def control_of(cluster: Cluster) -> Control:
    """Create the `Control` of a started cluster, and add the fault rules of its settings.

    Raises ``ControlConfigError`` if a rule names something that this broker does not have.
    """
    clock = cluster.clock
    names = cluster.metadata.topic_name
    trace = Trace(cluster.calls, clock, names=names)
    faults = Faults(
        cluster.injection,
        cluster.calls,
        clock,
        kill_node=cluster.kill_node,
        running=cluster.running,
        nodes=lambda: {
            node_id: [listener.name for listener in node.listeners] for node_id, node in cluster.nodes.items()
        },
        acls=acls_of(cluster),
    )
    views = ClusterViews(cluster, clock, trace)
    control = Control(
        cluster=cluster,
        clock=clock,
        faults=faults,
        trace=trace,
        views=views,
        explaining=ClusterExplaining(cluster, faults, trace),
        metrics=Metrics(RequestMetrics(cluster.calls, names), ClusterMetrics(cluster, clock, faults, views)),
        transactions=ClusterTransactions(cluster, trace),
        awaited_states=AwaitedStates(cluster.injection, clock, cluster.running_nodes),
        snapshots=Snapshots(cluster),
    )
    try:
        control.add_first_rules()
    except FaultError as error:
        raise ControlConfigError(f"ODRADEK_FAULTS: {error}") from error
    return control
