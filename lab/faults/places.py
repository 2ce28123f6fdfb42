"""Checks that the nodes and listeners that a rule names exist in this broker. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from broker.cluster.in_words import nodes_in_words
from lab.faults.rules import Rule, matches
from lab.faults.values import FaultError

Nodes = Mapping[int, Collection[str]]
"""Node id -> names of the node's listeners."""


def check_exists(rule: Rule, nodes: Nodes) -> None:
    """Raise ``FaultError`` for a node or a listener that this broker does not have: the rule would never have a hit.

    Topics, groups and ids are not checked, since they may be created later.
    """
    named = [*(rule.action.nodes or ()), *([] if rule.match.node is None else [rule.match.node])]
    for node_id in named:
        if node_id not in nodes:
            raise FaultError(f"there is no node {node_id}: {nodes_in_words(nodes)}")
    pattern = rule.match.listener
    if pattern is not None:
        there = nodes.values() if rule.match.node is None else [nodes[rule.match.node]]
        names = sorted({name for listeners in there for name in listeners})
        if not any(matches(pattern, name) for name in names):
            raise FaultError(f"there is no listener {pattern!r}; listeners: {', '.join(names)}")
