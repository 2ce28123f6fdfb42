"""Operations on nodes: show them, stop, kill, pause and start them, and reset the broker."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from broker.cluster import Cluster, NoSuchNode, StartError
from broker.cluster.addresses import bootstrap_servers, host_and_port
from broker.cluster.runtime import PAUSED, NodeRuntime, NodeState
from broker.config.authority_files import CA
from lab.cluster.misroute import misroute
from lab.cluster.reset import reset
from lab.control.access import Role
from lab.control.errors import HttpError
from lab.control.forms import Given, NodeId, View
from lab.control.operations import operation
from lab.control.ports import Control, Looking


class ListenerView(View):
    name: str
    security_protocol: str
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    address: str
    """The address on which the node listens, HOST:PORT."""
    advertised: str
    """The advertised address, HOST:PORT."""


class NodeView(View):
    node_id: int
    state: str
    """starting, running, paused, stopping, stopped or killed; for a node behind a proxy: running or unreachable"""
    skew_ms: int
    """How far the node's clock is ahead of the cluster's; negative if it is behind."""
    misrouted_to: int | None
    """The node that serves new connections to this node's listeners; null: the node itself."""
    rack: str | None
    listeners: list[ListenerView]
    connections: int
    leads: dict[str, list[int]]
    """The partitions that the node leads, by topic."""
    follows: dict[str, list[int]]
    """The partitions that the node follows, by topic."""


class ClusterView(View):
    cluster_id: str
    bootstrap_servers: str
    """The addresses of the running nodes, for a client's bootstrap.servers."""
    ca: str | None
    """With --tls: path of the CA certificate, on the broker's machine, that clients must trust; else null."""
    features: dict[str, int]
    nodes: list[NodeView]


class HealthView(View):
    status: str
    nodes: dict[str, str]
    """State by node id."""
    offline_partitions: int
    """Number of replicas that are unusable until their node is restarted: GET /v1/partitions lists them."""


class OneNode(Given):
    node_id: NodeId


class Misroute(Given):
    to: NodeId


class ClusterReset(Given):
    new_cluster_id: Annotated[
        bool,
        Meta(description="Whether the cluster gets a new id: another cluster behind the same addresses."),
    ] = False


_SAME_ID: Final = ClusterReset()


_STATES_EXAMPLE: Final = {"nodes": {"1": "running"}, "offline_partitions": 0}
NODE_EXAMPLE: Final[dict[str, Any]] = {
    "node_id": 2,
    "state": "running",
    "skew_ms": 0,
    "misrouted_to": None,
    "rack": None,
    "listeners": [
        {
            "name": "PLAINTEXT",
            "security_protocol": "PLAINTEXT",
            "address": "127.0.0.1:9093",
            "advertised": "127.0.0.1:9093",
        }
    ],
    "connections": 3,
    "leads": {"orders": [1, 3]},
    "follows": {"orders": [0, 2]},
}


_CLUSTER_EXAMPLE: Final[dict[str, Any]] = {
    "cluster_id": "5L6g3nShT-eMCtK--X86sw",
    "bootstrap_servers": "127.0.0.1:9092,127.0.0.1:9093",
    "ca": None,
    "features": {"transaction.version": 2},
    "nodes": [NODE_EXAMPLE],
}


@operation("GET", "/v1/cluster", answer_example=_CLUSTER_EXAMPLE)
async def show_cluster(control: Looking) -> ClusterView:
    """Show the nodes of the cluster: state, listeners, and the partitions that each node leads.

    A proxy shows its own listeners, with the metadata of the upstream cluster. A proxy does not know features, racks
    and skews.
    """
    if not isinstance(control, Control):
        return msgspec.convert(await control.upstream(), type=ClusterView)
    cluster = control.cluster
    return ClusterView(
        cluster_id=cluster.metadata.cluster_id,
        bootstrap_servers=bootstrap_servers(cluster.nodes.values()),
        ca=None if cluster.settings.authority is None else str(cluster.settings.authority / CA),
        features=dict(cluster.metadata.features),
        nodes=[node_view(cluster, node) for node in cluster.nodes.values()],
    )


@operation(
    "POST",
    "/v1/reset",
    body_example={"new_cluster_id": True},
    answer_example=_CLUSTER_EXAMPLE,
    may_wait=True,
)
async def reset_broker(control: Control, body: ClusterReset = _SAME_ID) -> ClusterView:
    """Reset the broker to its state after the start: topics, groups, transactional ids, rules and trace are removed.

    All connections are reset first. Advances of the clock are undone. Topics and rules of the start are created again. All
    nodes run afterwards. No producer id and no topic id is ever issued twice. The cluster keeps its id, unless
    new_cluster_id is true.
    """

    def forget() -> None:
        control.forget()
        control.cluster.injection.happenings.clear()
        control.cluster.injection.losses.clear()

    try:
        await reset(control.cluster, forget, control.add_first_rules, new_cluster_id=body.new_cluster_id)
    except StartError as error:
        raise HttpError(409, f"the broker cannot be reset: {error}") from None
    return await show_cluster(control)


@operation(
    "POST",
    "/v1/nodes/{node_id}/kill",
    answer_example={**NODE_EXAMPLE, "state": "killed"},
    role=Role.STOP,
)
async def kill_node(control: Control, params: OneNode) -> NodeView:
    """Kill a node as kill -9 does: its connections are reset, and it writes nothing more.

    The response comes after the partitions that it led have new leaders.
    """
    try:
        async with control.cluster.lifecycle.call():
            control.cluster.kill_node(params.node_id)
    except NoSuchNode as error:
        raise _refused(control, params, error) from None
    await control.cluster.settled()
    return _of(control, params)


@operation(
    "POST",
    "/v1/nodes/{node_id}/stop",
    answer_example={**NODE_EXAMPLE, "state": "stopped"},
    may_wait=True,
    role=Role.STOP,
)
async def stop_node(control: Control, params: OneNode) -> NodeView:
    """Stop a node by a controlled shutdown: its leaderships move to other nodes, and it closes its logs cleanly."""
    try:
        await control.cluster.stop_node(params.node_id)
    except NoSuchNode as error:
        raise _refused(control, params, error) from None
    return _of(control, params)


@operation("POST", "/v1/nodes/{node_id}/start", answer_example=NODE_EXAMPLE, may_wait=True)
async def start_node(control: Control, params: OneNode) -> NodeView:
    """Start a stopped or killed node: it recovers its logs and follows the current leaders."""
    try:
        await control.cluster.start_node(params.node_id)
    except NoSuchNode as error:
        raise _refused(control, params, error) from None
    except StartError as error:
        raise HttpError(409, f"node {params.node_id} cannot start: {error}") from None
    return _of(control, params)


@operation("POST", "/v1/nodes/{node_id}/pause", answer_example={**NODE_EXAMPLE, "state": PAUSED})
async def pause_node(control: Control, params: OneNode) -> NodeView:
    """Pause a node as SIGSTOP does: it reads and sends nothing, its timers do not fire, its connections stay open.

    The controller does not fence the node. The node stays leader of its partitions until they are moved, or it is
    killed.
    """
    try:
        async with control.cluster.lifecycle.call():
            control.cluster.pause_node(params.node_id)
    except NoSuchNode as error:
        raise _refused(control, params, error) from None
    return _of(control, params)


@operation("POST", "/v1/nodes/{node_id}/resume", answer_example=NODE_EXAMPLE)
async def resume_node(control: Control, params: OneNode) -> NodeView:
    """Resume a paused node: timers that fell due fire, and it handles the requests that arrived meanwhile."""
    try:
        async with control.cluster.lifecycle.call():
            control.cluster.resume_node(params.node_id)
    except NoSuchNode as error:
        raise _refused(control, params, error) from None
    return _of(control, params)


@operation(
    "POST",
    "/v1/nodes/{node_id}/misroute",
    body_example={"to": 1},
    answer_example={**NODE_EXAMPLE, "misrouted_to": 1},
)
async def misroute_node(control: Control, params: OneNode, body: Misroute) -> NodeView:
    """Let another node serve new connections to a node's listeners. If `to` is the node itself, this ends.

    Open connections stay. While the other node does not run, new connections are closed at once.
    """
    try:
        async with control.cluster.lifecycle.call():
            misroute(control.cluster, params.node_id, body.to)
    except NoSuchNode as error:
        raise HttpError(404, str(error)) from None
    return _of(control, params)


@operation("GET", "/health", answer_example={"status": "ok", **_STATES_EXAMPLE}, open_to_all=True)
async def health(control: Looking) -> HealthView:
    """Check that the broker responds; the status is ok if all nodes run and no partition is offline, else degraded."""
    states = dict(await control.node_states())
    running = all(state == NodeState.RUNNING.value for state in states.values())
    offline = control.offline_partitions()
    status = "ok" if running and not offline else "degraded"
    return HealthView(status=status, nodes=states, offline_partitions=offline)


@operation("GET", "/ready", answer_example={"status": "ready", **_STATES_EXAMPLE}, open_to_all=True)
async def ready(control: Control) -> HealthView:
    """Check that the broker can handle requests: 200 while a node is running, 503 while none is."""
    found = await health(control)
    if NodeState.RUNNING.value not in found.nodes.values():
        raise HttpError(503, "no node runs")
    found.status = "ready"
    return found


def _refused(control: Control, params: OneNode, error: NoSuchNode) -> HttpError:
    """The HTTP error for a call on a node: 404 if the node is unknown, 409 if it is in a wrong state for the call."""
    return HttpError(409 if params.node_id in control.cluster.nodes else 404, str(error))


def _of(control: Control, params: OneNode) -> NodeView:
    return node_view(control.cluster, control.cluster.nodes[params.node_id])


def node_view(cluster: Cluster, node: NodeRuntime) -> NodeView:
    leads: dict[str, list[int]] = {}
    follows: dict[str, list[int]] = {}
    for topic in cluster.metadata.topics.values():
        for state in topic.partitions:
            if state.leader == node.node_id:
                leads.setdefault(topic.name, []).append(state.index)
            elif node.node_id in state.replicas:
                follows.setdefault(topic.name, []).append(state.index)
    return NodeView(
        node_id=node.node_id,
        state=node.shown_state,
        skew_ms=node.skew_ms,
        misrouted_to=cluster.misroutes.get(node.node_id),
        rack=node.config.broker_rack,
        listeners=[
            ListenerView(
                name=each.name,
                security_protocol=each.security_protocol,
                address=host_and_port(each.host, each.port),
                advertised=host_and_port(each.advertised_host, each.advertised_port),
            )
            for each in node.listeners
        ],
        connections=len(node.connections) if node.state is NodeState.RUNNING else 0,
        leads=leads,
        follows=follows,
    )
