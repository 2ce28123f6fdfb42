"""Cuts the replication links of a paused node.

Nodes of one process replicate without sockets, so it is not enough to pause the sockets of the node.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.injection.links import Links


class PausedLinks:
    """The links that are cut because a node at one end is paused."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._cut: dict[int, list[int]] = {}

    def cut_off(self, node_id: int, nodes: Iterable[int]) -> None:
        """Cut all links between this node and the other ``nodes``, in both directions."""
        self._cut[node_id] = others = [other for other in nodes if other != node_id]
        for other in others:
            self._links.cut(node_id, other)
            self._links.cut(other, node_id)

    def reconnect(self, node_id: int) -> None:
        """Restore the links after the node was resumed or killed. Does nothing if the node was not paused."""
        for other in self._cut.pop(node_id, ()):
            self._links.mend(node_id, other)
            self._links.mend(other, node_id)
