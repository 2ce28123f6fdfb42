"""All that rules hold, within bounds: requests, steps, and detached requests, whose connections are closed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from broker.clock import Clock, Domain
from broker.logging import get_logger
from broker.net.calls import CallEvent
from lab.faults.active_rule import ActiveRule, HeldItem
from lab.faults.fields import LOGINS
from lab.faults.released_requests import ReleasedRequest, follow
from lab.faults.request_subjects import subjects_at, subjects_of
from protocol.errors import ErrorCode
from protocol.messages.index import APIS
from protocol.versions import message_name

if TYPE_CHECKING:
    from broker.injection.points import InjectionPoint
    from broker.net.calls import Call
    from broker.node.served import ServedNode

HELD_MAX: Final = 1024
"""Requests and steps that all rules together hold, delay or keep detached; what comes then passes by untouched."""
HELD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of the requests among them."""

# Steps on one partition's log happen in the order in which they came, whatever a rule holds back.
_IN_ORDER: Final = frozenset({"log.fsync", "log.write", "replica.append"})

_RELEASED: Final = frozenset({"hold", "detach", "reorder"})
"""Actions whose requests wait for a release, or for later matches, and then tell what they were answered."""

Running = Callable[[int], "ServedNode | None"]
"""The node of an id, while it runs."""
Key = tuple[str, int, str, int]

log = get_logger()


class HeldItems:
    """All that rules hold."""

    def __init__(self, clock: Clock, running: Running | None, emptied: Callable[[], object]) -> None:
        self._clock = clock
        self._running = running
        self._emptied = emptied
        self._things: dict[HeldItem, ActiveRule] = {}
        self._last: dict[Key, HeldItem] = {}
        self._in_order: Counter[str] = Counter()
        """How many steps are held that others must wait for, by point."""

    def __len__(self) -> int:
        return len(self._things)

    @property
    def holds_steps_in_order(self) -> bool:
        """Is one held that others must wait for?"""
        return bool(self._in_order)

    def has_steps_at(self, point: str) -> bool:
        """Is one held that others of this kind must wait for?"""
        return point in self._in_order

    def has_room(self, active: ActiveRule, size: int) -> bool:
        """May one more be held? Held requests of closed connections and steps of dead nodes make room."""
        for held in [each for each in self._things if not each.is_alive()]:
            self._forget(held)
        if len(self._things) < HELD_MAX and sum(each.bytes for each in self._things) + size <= HELD_BYTES_MAX:
            return True
        if not active.told_of_no_room:
            active.told_of_no_room = True
            log.warning("a rule cannot hold more requests", rule=active.id, held=len(self._things))
        return False

    def hold(self, active: ActiveRule, held: HeldItem, delay_ms: int | None = None) -> None:
        """Keep it until it is released, or for so long."""
        self._things[held] = active
        if held.at in _IN_ORDER:
            self._in_order[held.at] += 1
        active.held_things.append(held)
        if delay_ms is not None:
            held.timer = self._clock.call_later_ms(delay_ms, lambda: self.let_go(held), Domain.REQUESTS)

    def let_go(self, held: HeldItem) -> None:
        """The item happens now, unless its connection or its node's life is over; then those behind it happen."""
        active = self._forget(held)
        before = held.after
        if before is not None and not before.is_done and before.is_alive():
            if held not in before.behind:
                before.behind.append(held)
            return
        held.is_done = True
        if held.is_alive():
            if active is not None and held.call is not None and active.rule.action.do in _RELEASED:
                released = ReleasedRequest(held.to_json(), self._clock.now_ms(Domain.REQUESTS))
                active.released.append(released)
                follow(held.call, released)
            held.go()
        for each in held.behind:
            self.let_go(each)

    def drop(self, held: HeldItem) -> None:
        """It never happens."""
        self._forget(held)
        held.is_done = True

    def _forget(self, held: HeldItem) -> ActiveRule | None:
        active = self._things.pop(held, None)
        if active is not None:
            active.held_things.remove(held)
            if held.at in _IN_ORDER:
                self._in_order -= Counter({held.at: 1})
        if held.timer is not None:
            held.timer.cancel()
        if not self._things:
            self._last.clear()
            self._emptied()
        return active

    # ---- what can be held

    def of_call(self, call: Call) -> HeldItem:
        """A held request, with its connection."""
        node = call.node
        return HeldItem(
            message_name(APIS[call.context.api_key][0]),
            node.node_id,
            call.proceed,
            lambda: not call.connection.is_closed and self._is_running(node),
            self._clock.now_ms(Domain.REQUESTS),
            **_of_call(call),
        )

    def of_bytes(self, call: Call, later_matches: int | None = None) -> HeldItem:
        """A request whose connection is closed: it lingers in the network, and the node that then runs handles it."""
        return HeldItem(
            message_name(APIS[call.context.api_key][0]),
            call.node.node_id,
            lambda: self._arrive_late(call),
            lambda: True,
            self._clock.now_ms(Domain.REQUESTS),
            **_of_call(call),
            detached=True,
            later_matches=later_matches,
        )

    def of_step(
        self, at: InjectionPoint, go_on: Callable[[], object], refuse: Callable[[ErrorCode], object]
    ) -> HeldItem:
        """A step inside the broker. On a log it waits for those that were held before it."""
        node = self._running(at.node_id) if self._running is not None else None
        held = HeldItem(
            at.point,
            at.node_id,
            go_on,
            # A node that is only starting cannot be told from its next life.
            lambda: node is None or self._is_running(node),
            self._clock.now_ms(Domain.REQUESTS),
            subjects=subjects_at(at),
            # Another rule that held a step on a log again would let those behind it overtake.
            step=(at, go_on, refuse) if at.point not in _IN_ORDER else None,
        )
        if at.point in _IN_ORDER:
            held.after = self._step_before(at)
            self._last[_key(at)] = held
        return held

    def hold_behind(
        self, at: InjectionPoint, go_on: Callable[[], object], refuse: Callable[[ErrorCode], object]
    ) -> bool | None:
        """No rule holds this step; but if one before it on the same log is held, it waits as well.

        None if there is none. False if there is, and no room to wait.
        """
        before = self._step_before(at)
        if before is None:
            return None
        active = self._things.get(before)
        if active is None:
            active = next(holder for held, holder in self._things.items() if before in held.behind)
        if not self.has_room(active, 0):
            return False
        held = self.of_step(at, go_on, refuse)
        before.behind.append(held)
        self.hold(active, held)
        return True

    def _step_before(self, at: InjectionPoint) -> HeldItem | None:
        """The last step on the same log that is held."""
        if at.point not in _IN_ORDER:
            return None
        last = self._last.get(_key(at))
        if last is None or last.is_done or not last.is_alive():
            self._last.pop(_key(at), None)
            return None
        return last

    def _is_running(self, node: ServedNode) -> bool:
        return self._running is None or self._running(node.node_id) is node

    def _arrive_late(self, call: Call) -> None:
        if call.context.api_key in LOGINS:
            call.note(CallEvent.GONE)  # of which connection would it be the login?
            return
        if self._running is not None:
            node = self._running(call.node.node_id)
            if node is None:
                call.note(CallEvent.GONE)  # no node runs at that address
                return
            call.move_to(node)
        call.handle_without_response()


def _of_call(call: Call) -> dict[str, Any]:
    return {
        "subjects": subjects_of(call.request, call.context),
        "client_id": call.context.client_id,
        "call": call,
        "connection_id": call.context.connection_id,
        "bytes": len(call.frame),
    }


def _key(at: InjectionPoint) -> Key:
    return at.point, at.node_id, at.topic, at.partition
