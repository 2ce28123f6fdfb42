"""Sets the clock of a single node ahead of the cluster's clock, or behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.clock.durations import checked_skew_ms, duration_text
from broker.cluster.errors import NoSuchNode
from broker.cluster.in_words import nodes_in_words
from broker.injection.happenings import Happening

if TYPE_CHECKING:
    from broker.cluster.cluster import Cluster


def skew(cluster: Cluster, node_id: int, skew_ms: int) -> None:
    """Set how far the clock of a node, in any state, is ahead of the cluster's clock. Negative: behind; 0: not skewed.

    Raises ``NoSuchNode`` if there is no such node, ``BadDuration`` if the skew is too large.
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
    """The skew as text, such as ``5m ahead``, ``30s behind``, ``not skewed``."""
    if not skew_ms:
        return "not skewed"
    return f"{duration_text(abs(skew_ms))} {'ahead' if skew_ms > 0 else 'behind'}"
