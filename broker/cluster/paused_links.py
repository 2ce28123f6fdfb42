"""Replicas of one process copy without a socket: the links of a paused node stand still with it."""

from __future__ import annotations

from collections.abc import Iterable

from broker.injection.links import Links


class PausedLinks:
    """The links that are cut because a node at one of their ends is paused."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._cut: dict[int, list[int]] = {}

    def cut_off(self, node_id: int, nodes: Iterable[int]) -> None:
        """Between this node and the others nothing passes."""
        self._cut[node_id] = others = [other for other in nodes if other != node_id]
        for other in others:
            self._links.cut(node_id, other)
            self._links.cut(other, node_id)

    def reconnect(self, node_id: int) -> None:
        """The node goes on, or is killed; nothing happens if it was not paused."""
        for other in self._cut.pop(node_id, ()):
            self._links.mend(node_id, other)
            self._links.mend(other, node_id)
