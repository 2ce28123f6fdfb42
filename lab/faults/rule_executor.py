"""What the actions of all rules share: holding, killing, crashing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lab.faults.acl_rules import AclRules
from lab.faults.active_rule import ActiveRule
from lab.faults.held_items import HeldItems
from lab.faults.request_subjects import RequestSubjects, subjects_at, subjects_of
from protocol.messages.index import APIS
from protocol.slotted import slotted
from protocol.versions import message_name

if TYPE_CHECKING:
    from broker.injection.points import InjectionPoint
    from broker.net.calls import Call


@slotted(frozen=True)
class RuleExecutor:
    """The rules on requests and the rules on steps carry out their actions with it."""

    held_items: HeldItems
    kill_node: Callable[[int], object] | None
    crash: Callable[[str], object]
    note: Callable[[ActiveRule, str, int, RequestSubjects], object]
    """A hit: the rule, the API or point, the node, and what the request or step names."""
    changed: Callable[[], None]
    """A rule is spent, or the held steps have changed: attach and detach interceptors accordingly."""
    acls: AclRules | None = None
    """None without an authorizer."""

    def takes_call(self, active: ActiveRule, call: Call) -> bool:
        """As `takes`, of a request."""
        if not self.takes(active, len(call.frame)):
            return False
        context = call.context
        api = message_name(APIS[context.api_key][0])
        self.note(active, api, call.node.node_id, subjects_of(call.request, context))
        return True

    def takes_step(self, active: ActiveRule, at: InjectionPoint) -> bool:
        """As `takes`, of a step inside the broker."""
        if not self.takes(active):
            return False
        self.note(active, at.point, at.node_id, subjects_at(at))
        return True

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
