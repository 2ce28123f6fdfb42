"""What the actions of all rules share: holding, killing, crashing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.faults.active_rule import ActiveRule
from broker.faults.held_items import HeldItems


@dataclass(frozen=True, slots=True)
class RuleExecutor:
    """The rules on requests and the rules on steps carry out their actions with it."""

    held_items: HeldItems
    kill_node: Callable[[int], object] | None
    crash: Callable[[str], object]
    changed: Callable[[], None]
    """A rule is spent, or the held steps have changed: attach and detach interceptors accordingly."""

    def takes(self, active: ActiveRule, size: int = 0) -> bool:
        """Something matches a rule: does the rule take hold of it? Not if it would have to keep it and there is no room."""
        if active.rule.action.do in KEEPING and not self.held_items.has_room(active, size):
            return False
        hit = active.count_match()
        if active.spent:
            self.changed()
        return hit

    def kill(self, node_id: int) -> None:
        assert self.kill_node is not None, "a rule that needs it is refused"
        self.kill_node(node_id)


KEEPING = frozenset({"delay", "detach", "hold", "reorder", "slow-disk"})
"""Actions that keep what they take hold of."""
