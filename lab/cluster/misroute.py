"""Misroutes the connections that clients open to a node: another node serves them, as behind a wrong DNS entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.cluster.errors import NoSuchNode
from broker.cluster.in_words import nodes_in_words
from broker.injection.happenings import Happening

if TYPE_CHECKING:
    from broker.cluster.cluster import Cluster


def misroute(cluster: Cluster, node_id: int, to: int) -> None:
    """Let node ``to`` serve new connections to the listeners of a node; ``to`` the node itself ends that.

    The nodes may be in any state. Open connections stay. Raises ``NoSuchNode`` if a node does not exist.
    """
    for each in (node_id, to):
        if each not in cluster.nodes:
            raise NoSuchNode(f"there is no node {each}: {nodes_in_words(cluster.nodes)}")
    if to == cluster.misroutes.get(node_id, node_id):
        return
    if to == node_id:
        del cluster.misroutes[node_id]
        text = f"node {node_id} serves its connections again"
    else:
        cluster.misroutes[node_id] = to
        text = f"connections to node {node_id} are misrouted to node {to}"
    if to == node_id:
        # Nodes connect to each other as clients do, and would keep the connections that were misrouted.
        for node in cluster.running_nodes():
            if node.peers is not None:
                node.peers.reconnect(node_id)
    cluster.injection.happenings.note(Happening(cluster.clock.now_ms(), "node", node_id, text))
