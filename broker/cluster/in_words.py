"""Lists of nodes for error messages."""

from __future__ import annotations

from collections.abc import Iterable


def nodes_in_words(nodes: Iterable[int]) -> str:
    """Text such as ``this cluster has node 1 only``, ``this cluster has the nodes 1 to 3``, ``... the nodes 1, 3 and 7``."""
    ids = sorted(nodes)
    if len(ids) == 1:
        return f"this cluster has node {ids[0]} only"
    if len(ids) > 2 and ids == list(range(ids[0], ids[-1] + 1)):
        return f"this cluster has the nodes {ids[0]} to {ids[-1]}"
    return f"this cluster has the nodes {', '.join(map(str, ids[:-1]))} and {ids[-1]}"
