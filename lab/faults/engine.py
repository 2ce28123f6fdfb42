"""The engine: adds and removes the rules of one broker, and intercepts requests, steps and links while there are rules.

Rules apply in the order in which they were added. The first one with a hit decides, and later rules do not see that request
or step. Without rules, nothing is intercepted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final

from broker.clock import Clock, Domain
from broker.injection.crash import kill_this_process
from broker.injection.happenings import Happening
from broker.injection.points import FaultInjection
from broker.net.calls import CallInterceptors
from lab.faults import states
from lab.faults.acl_rules import AclControl, AclRules
from lab.faults.active_rule import ActiveRule, HeldItem
from lab.faults.declaration import Match
from lab.faults.held_items import HeldItems, Running
from lab.faults.places import Nodes, check_exists
from lab.faults.point_rules import PointRules
from lab.faults.request_rules import RequestRules
from lab.faults.request_subjects import RequestSubjects
from lab.faults.rule_executor import RuleExecutor
from lab.faults.rules import ACTIONS, Rule
from lab.faults.text import rule_to_text
from lab.faults.values import FaultError

RULES_MAX: Final = 256
ANY: Final = Match()


class Faults:
    """The rules of one broker. All methods are called on the broker's event loop."""

    def __init__(
        self,
        injection: FaultInjection,
        calls: CallInterceptors,
        clock: Clock,
        *,
        kill_node: Callable[[int], object] | None = None,
        running: Running | None = None,
        nodes: Callable[[], Nodes] | None = None,
        acls: Callable[[], AclControl] | None = None,
        crash: Callable[[str], object] = kill_this_process,
    ) -> None:
        """``kill_node(id)`` kills a node at once; ``running(id)`` is the node if it is running, else None.

        ``nodes()`` returns every node, running or not, with the names of its listeners. Without it, rules may name nodes and
        listeners that do not exist. ``acls()`` returns the object that changes ACLs; ``acls`` is None without an authorizer.
        """
        self.injection = injection
        self.calls = calls
        self.clock = clock
        self._kill_node = kill_node
        self._nodes = nodes
        self._held_items = HeldItems(clock, running, self._attach)
        self._acls = AclRules(acls) if acls is not None else None
        executor = RuleExecutor(self._held_items, kill_node, crash, self._note_hit, self._attach, self._acls)
        self._rules: dict[int, ActiveRule] = {}
        self._next_id = 1
        self._call_rules = RequestRules(executor)
        self._points = PointRules(executor)
        self._intercepts_calls = False

    def add(self, rule: Rule) -> ActiveRule:
        """Add a rule, which applies from now on. Raises ``FaultError`` if there are too many rules, or if the broker cannot
        execute it.
        """
        if len(self._rules) >= RULES_MAX:
            raise FaultError(f"there are {RULES_MAX} rules already: remove some first")
        if rule.action.do == "kill" and self._kill_node is None:
            raise FaultError("kill: this broker has no node that can be killed alone; use crash")
        if "acl" in ACTIONS[rule.action.do].parameters and self._acls is None:
            raise FaultError(
                f"{rule.action.do}: this broker has no authorizer: authorizer.class.name is not set"
            )
        if self._nodes is not None:
            check_exists(rule, self._nodes())
        active = ActiveRule(self._next_id, rule)
        self._next_id += 1
        self._rules[active.id] = active
        if rule.when.expires_ms is not None:
            active.expires_at_ms = self.clock.now_ms(Domain.REQUESTS) + rule.when.expires_ms
            active.expiry = self.clock.call_later_ms(
                rule.when.expires_ms, lambda: self.remove(active.id), Domain.REQUESTS
            )
        states.set_up(self.injection.links, rule)
        self._attach()
        return active

    def list(self) -> tuple[ActiveRule, ...]:
        """The rules, in the order in which they were added."""
        return tuple(self._rules.values())

    def get(self, rule_id: int) -> ActiveRule:
        """The rule with this id. Raises ``FaultError`` if there is none."""
        if rule_id not in self._rules:
            there = ", ".join(map(str, self._rules)) or "none"
            raise FaultError(f"there is no rule {rule_id}; rules: {there}")
        return self._rules[rule_id]

    def remove(self, rule_id: int) -> ActiveRule:
        """Remove a rule. Its held and delayed requests and steps continue, its detached requests are discarded."""
        active = self.get(rule_id)
        del self._rules[rule_id]
        active.end()
        states.take_down(self.injection.links, active.rule)
        self._attach()
        for held in tuple(active.held_things):
            if held.detached:
                self._held_items.drop(held)
            elif not held.is_done:
                self._held_items.let_go(held)
        return active

    def clear(self) -> int:
        """Remove all rules; returns how many there were."""
        count = len(self._rules)
        for rule_id in tuple(self._rules):
            with contextlib.suppress(FaultError):  # a request that one rule releases may remove another rule
                self.remove(rule_id)
        return count

    def release(
        self, rule_id: int, count: int | None = None, only: Match = ANY, to: int | None = None
    ) -> int:
        """Release the oldest ``count`` requests and steps that a rule holds, all if ``count`` is None. Returns the
        number released.

        Detached requests are released too. ``only`` restricts the release by topic, partition, offset, transactional id,
        group, member, client id, sender and node. The rule stays, and holds later requests and steps.

        ``to`` is the id of a rule that is then applied to each released request or step, as if it had just arrived. It is
        not applied to detached requests, whose connections are closed, nor to steps on a log.
        """
        active = self.get(rule_id)
        other = self.get(to) if to is not None else None
        if count is not None and count < 1:
            raise FaultError(f"count: {count} is below 1")
        released = 0
        for held in [each for each in active.held if each.meets(only)][:count]:
            if not held.is_done:
                if other is not None:
                    self._send_on(held, other)
                self._held_items.let_go(held)
                released += 1
        return released

    def _send_on(self, held: HeldItem, other: ActiveRule) -> None:
        """Apply another rule to a held request or step when it is released."""
        if held.call is not None and not held.detached:
            held.go = partial(self._call_rules.goes_on_to, other, held.call)
        elif held.step is not None:
            held.go = partial(self._points.goes_on_to, other, *held.step)

    async def reached(self, rule_id: int, hits: int = 1, timeout_ms: int | None = None) -> ActiveRule:
        """Wait until a rule has ``hits`` hits.

        Raises ``TimeoutError`` after the timeout, ``FaultError`` if the rule is removed earlier.
        """
        active = self.get(rule_id)
        if active.hits >= hits:
            return active
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waits = (hits, future)
        active.waiting.append(waits)
        timer = None
        if timeout_ms is not None:
            too_late = TimeoutError(
                f"rule {rule_id} has {active.hits} hits, not {hits}, after {timeout_ms} ms"
            )

            def give_up() -> None:
                if not future.done():
                    future.set_exception(too_late)

            timer = self.clock.call_later_ms(timeout_ms, give_up, Domain.REQUESTS)
        try:
            await future
        finally:
            if timer is not None:
                timer.cancel()
            if waits in active.waiting:
                active.waiting.remove(waits)
        return active

    def _note_hit(self, active: ActiveRule, at: str, node_id: int, subjects: RequestSubjects) -> None:
        """Record a hit as a `Happening`, which timelines show."""
        text = f"rule {active.id} is hit by {at}: {rule_to_text(active.rule)}"
        partitions = {(topic, index) for topic, index in subjects.partitions if index is not None}
        self.injection.happenings.note(
            Happening(
                self.clock.now_ms(),
                "rule",
                node_id,
                text,
                frozenset(subjects.transactional_ids),
                frozenset(partitions),
                at,
                frozenset(subjects.groups),
                tuple(subjects.offsets),
            )
        )

    def _attach(self) -> None:
        """Set the interceptors for the APIs and points of the rules that must see further requests or steps."""
        looking = [active for active in self._rules.values() if active.looks]
        self._call_rules.look(looking)
        self._points.look(looking)
        if self._call_rules.looks != self._intercepts_calls:
            self._intercepts_calls = self._call_rules.looks
            if self._intercepts_calls:
                self.calls.add(self._call_rules)
            else:
                self.calls.remove(self._call_rules)
        self.injection.points = self._points if self._points.looks else None
