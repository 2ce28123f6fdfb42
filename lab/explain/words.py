"""Text fragments of explanations: durations, counts, nodes, fault rules. Each function returns part of a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from lab.explain.facts import ClusterContext, HeldByRule, TransactionFacts

NAMES_MAX: Final = 6
_STATES: Final = {"unreachable": "does not respond", "unregistered": "is not in the cluster's metadata"}


def duration_text(duration_ms: int) -> str:
    """A duration as text: ``250 ms``, ``42.5 s``, ``3 min 5 s``, ``2 h 10 min``"""
    seconds = duration_ms / 1000
    if duration_ms < 1000:
        return f"{duration_ms} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


def time_text(time_ms: int) -> str:
    """A time in UTC with milliseconds; ``-`` for -1."""
    if time_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"


def counted(number: int, noun: str) -> str:
    """A number with its noun: ``1 record``, ``2 records``"""
    return f"{number} {noun}{'s' * (number != 1)}"


def times(number: int) -> str:
    """A number of times: ``once``, ``3 times``"""
    return "once" if number == 1 else f"{number} times"


def listed(parts: Sequence[str]) -> str:
    """An enumeration: ``a``, ``a and b``, ``a, b and c``; at most ``NAMES_MAX`` names."""
    if len(parts) > NAMES_MAX:
        parts = [*parts[: NAMES_MAX - 1], f"{len(parts) - NAMES_MAX + 1} more"]
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def capital(text: str) -> str:
    """The text with a capital first letter. The other letters do not change."""
    return text[:1].upper() + text[1:]


def meant(near: str | None) -> str:
    """End of a sentence about an unknown name: ``; did you mean readers?``, or a full stop if no name is similar."""
    return "." if near is None else f"; did you mean {near}?"


def producer_text(producer_id: int, epoch: int) -> str:
    return f"producer {producer_id} epoch {epoch}"


def who(at: TransactionFacts) -> str:
    """A transaction's id and producer: ``etl-1 (producer 5 epoch 0)``"""
    return f"{at.transactional_id} ({producer_text(at.producer_id, at.producer_epoch)})"


# -- nodes ------------------------------------------------------------------------------------------------------


def away(around: ClusterContext, node: int | None, clause: str = "") -> str | None:
    """A node that is not running, as text: ``node 2 is killed``; None if the node is running, or if its state is not known.

    ``clause`` follows the node's number: ``node 2, which leads orders-0, is killed``.
    """
    state = (around.nodes or {}).get(node) if node is not None else None
    if state is None or state == "running":
        return None
    return f"node {node}{clause} {_STATES.get(state, f'is {state}')}"


def is_silent(around: ClusterContext, node: int | None) -> bool:
    """Whether the node did not respond to this client, and nothing else is known about its state."""
    return node is not None and (around.nodes or {}).get(node) == "unreachable"


def all_away(around: ClusterContext, nodes: Iterable[int]) -> list[str]:
    return [text for node in nodes if (text := away(around, node)) is not None]


def waking(around: ClusterContext, nodes: Iterable[int]) -> list[str]:
    """The commands that start the killed and stopped nodes among ``nodes``, and resume the paused ones."""
    verbs = {"killed": "start", "stopped": "start", "paused": "resume"}
    states = around.nodes or {}
    return [f"odradek node {verbs[states[node]]} {node}" for node in nodes if states.get(node) in verbs]


# -- rules ------------------------------------------------------------------------------------------------------


def rule_text(around: ClusterContext, rule: int) -> str:
    """A rule as text: ``rule 3 (WriteTxnMarkers -> hold)``"""
    text = next((each.text for each in around.rules or () if each.rule == rule), None)
    return f"rule {rule}" if text is None else f"rule {rule} ({text})"


def release(held: HeldByRule) -> str:
    return f"Release it: odradek fault release {held.rule}"


def link_rule(around: ClusterContext, one: int | None, other: int | None) -> int | None:
    """Id of the rule that cuts the link between two nodes, at least in one direction; None if no rule does."""
    for each in around.rules or ():
        words = each.text.split()
        if words[:1] == ["cut"] and one != other and {str(one), str(other)} == set(words[1:3]):
            return each.rule
    return None
