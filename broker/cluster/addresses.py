"""The addresses of a cluster's nodes."""

from __future__ import annotations

from collections.abc import Iterable

from broker.cluster.runtime import NodeRuntime, NodeState


def host_and_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def where_nodes_listen(nodes: Iterable[NodeRuntime]) -> str:
    """The listeners of running nodes, the states of other nodes, and the offline partitions, as text for messages.

    For example ``PLAINTEXT://0.0.0.0:9092, SSL://0.0.0.0:9093, node 2 is killed``.
    """
    told: list[str] = []
    for node in nodes:
        if node.state is NodeState.RUNNING and not node.is_paused:
            told += [f"{each.name}://{host_and_port(each.host, each.port)}" for each in node.listeners]
            told += [
                f"{each.topic}-{each.index} is offline until the node starts again ({each.offline})"
                for each in node.node.replicas.opened()
                if each.offline is not None
            ]
        else:
            told.append(f"node {node.node_id} is {node.shown_state}")
    return ", ".join(told)


def bootstrap_servers(nodes: Iterable[NodeRuntime]) -> str:
    """Bootstrap servers for a client: the first advertised address of each running node."""
    running = [node for node in nodes if node.state is NodeState.RUNNING]
    first = [node.listeners[0] for node in running if node.listeners]
    return ",".join(host_and_port(each.advertised_host, each.advertised_port) for each in first)
