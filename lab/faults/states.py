"""Applies rules that have an effect until they are removed: cut and slow links, paused replicas."""

from __future__ import annotations

from broker.injection.links import Link, Links
from lab.faults.rules import Rule


def set_up(links: Links, rule: Rule) -> None:
    """Cut or slow down the link, or pause the replicas, that a new rule names."""
    action, match = rule.action, rule.match
    if action.do == "cut":
        for sender, receiver in _directions(rule):
            links.cut(sender, receiver)
    elif action.do == "slow-link":
        for sender, receiver in _directions(rule):
            links.slow(sender, receiver, action.delay_ms or 0)
    elif action.do == "pause":
        assert match.node is not None, "a rule without it is refused"
        links.pause(match.node, match.topic, match.partition)


def take_down(links: Links, rule: Rule) -> None:
    """Undo `set_up` for a rule that was removed."""
    action, match = rule.action, rule.match
    if action.do == "cut":
        for sender, receiver in _directions(rule):
            links.mend(sender, receiver)
    elif action.do == "slow-link":
        for sender, receiver in _directions(rule):
            links.quicken(sender, receiver, action.delay_ms or 0)
    elif action.do == "pause":
        assert match.node is not None, "a rule without it is refused"
        links.resume(match.node, match.topic, match.partition)


def _directions(rule: Rule) -> list[Link]:
    assert rule.action.nodes is not None, "a rule without them is refused"
    one, other = rule.action.nodes
    return [(one, other)] if rule.action.one_way else [(one, other), (other, one)]
