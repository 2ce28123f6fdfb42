"""Code shared by the actions of all rules: counting hits, holding, killing, crashing."""

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
    """The functions and objects that both rules on requests and rules on steps need to execute their actions."""

    held_items: HeldItems
    kill_node: Callable[[int], object] | None
    crash: Callable[[str], object]
    note: Callable[[ActiveRule, str, int, RequestSubjects], object]
    """Called at a hit with the rule, the API or injection point, the node id, and the subjects."""
    changed: Callable[[], None]
    """Called to update the interceptors when a rule is spent, or when the held steps have changed."""
    acls: AclRules | None = None
    """Executes rules that change ACLs; None without an authorizer."""

    def takes_call(self, active: ActiveRule, call: Call) -> bool:
        """Count the request ``call``, which matches the rule ``active``.

        Returns True for a hit, and records it.
        """
        if not self.takes(active, len(call.frame)):
            return False
        context = call.context
        api = message_name(APIS[context.api_key][0])
        self.note(active, api, call.node.node_id, subjects_of(call.request, context))
        return True

    def takes_step(self, active: ActiveRule, at: InjectionPoint) -> bool:
        """Count the step ``at``, which matches the rule ``active``. Returns True for a hit, and records it."""
        if not self.takes(active):
            return False
        self.note(active, at.point, at.node_id, subjects_at(at))
        return True

    def takes(self, active: ActiveRule, size: int = 0) -> bool:
        """Count a match, and return whether it is a hit.

        If the rule's action holds items, and no further item may be held, the match is not counted, and is no hit.
        """
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
"""Actions that hold the request or step."""
