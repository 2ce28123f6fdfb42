"""Whether what a rule names exists in this broker: its nodes and their listeners. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from broker.cluster.in_words import nodes_in_words
from lab.faults.rules import Rule, matches
from lab.faults.values import FaultError

Nodes = Mapping[int, Collection[str]]
"""The names of each node's listeners, by the node's id."""


def check_exists(rule: Rule, nodes: Nodes) -> None:
    """``FaultError`` for a node or a listener that this broker does not have: the rule would wait for ever.

    Topics, groups and ids may come later, and are not looked at.
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
            raise FaultError(f"there is no listener {pattern!r}: there is {', '.join(names)}")
