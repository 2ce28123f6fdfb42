"""Clocks of single nodes that are ahead of the cluster's, or behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.clock.durations import checked_skew_ms, duration_text
from broker.cluster.errors import NoSuchNode
from broker.cluster.in_words import nodes_in_words
from broker.injection.happenings import Happening

if TYPE_CHECKING:
    from broker.cluster.cluster import Cluster


def skew(cluster: Cluster, node_id: int, skew_ms: int) -> None:
    """Set the clock of a node, in whatever state it is: so far ahead, behind if negative, or as the others with 0.

    ``NoSuchNode`` if there is none; ``BadDuration`` if it is too much.
    """
    checked_skew_ms(skew_ms)
    runtime = cluster.nodes.get(node_id)
    if runtime is None:
        raise NoSuchNode(f"there is no node {node_id}: {nodes_in_words(cluster.nodes)}")
    if skew_ms == runtime.skew_ms:
        return
    runtime.skew(skew_ms)
    text = f"the clock of node {node_id} is {skew_text(skew_ms)}"
    cluster.injection.happenings.note(Happening(cluster.clock.now_ms(), "node", node_id, text))


def skew_text(skew_ms: int) -> str:
    """``5m ahead``, ``30s behind``, ``not skewed``"""
    if not skew_ms:
        return "not skewed"
    return f"{duration_text(abs(skew_ms))} {'ahead' if skew_ms > 0 else 'behind'}"
