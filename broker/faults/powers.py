"""What rules may do, beside what each place lets them do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.faults.active import Active
from broker.faults.holding import Holding


@dataclass(frozen=True, slots=True)
class Powers:
    """Handed to those who carry rules out."""

    holding: Holding
    kill_node: Callable[[int], object] | None
    crash: Callable[[str], object]
    changed: Callable[[], None]
    """A rule is spent, or what stands still is not what it was: look again where to hang."""

    def takes(self, active: Active, size: int = 0) -> bool:
        """Something matches a rule: does the rule take hold of it? Not if it would have to keep it and there is no room."""
        if active.rule.action.do in KEEPING and not self.holding.has_room(active, size):
            return False
        hit = active.occurs()
        if active.spent:
            self.changed()
        return hit

    def kill(self, node_id: int) -> None:
        assert self.kill_node is not None, "a rule that needs it is refused"
        self.kill_node(node_id)


KEEPING = frozenset({"delay", "detach", "hold", "reorder", "slow-disk"})
"""Actions that keep what they take hold of."""
