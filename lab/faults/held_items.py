"""Everything that rules hold, within limits: requests, steps, and detached requests, whose connections are closed."""

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
"""Largest number of requests and steps that all rules together hold, delay or detach. Further ones are not held."""
HELD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest total size of the held requests, in bytes."""

# Steps on one partition's log happen in the order in which they arrived, whichever is released first.
_IN_ORDER: Final = frozenset({"log.fsync", "log.write", "replica.append"})

_RELEASED: Final = frozenset({"hold", "detach", "reorder"})
"""Actions that hold requests until a release, or until later matches. Responses to such requests are recorded."""

Running = Callable[[int], "ServedNode | None"]
"""Returns the node with an id if it is running, else None."""
Key = tuple[str, int, str, int]

log = get_logger()


class HeldItems:
    """The requests and steps that all rules of a broker hold, and the detached requests."""

    def __init__(self, clock: Clock, running: Running | None, emptied: Callable[[], object]) -> None:
        self._clock = clock
        self._running = running
        self._emptied = emptied
        self._things: dict[HeldItem, ActiveRule] = {}
        self._last: dict[Key, HeldItem] = {}
        self._in_order: Counter[str] = Counter()
        """Number of held steps that later steps must not overtake, by injection point."""

    def __len__(self) -> int:
        return len(self._things)

    @property
    def holds_steps_in_order(self) -> bool:
        """Whether a step is held that later steps must not overtake."""
        return bool(self._in_order)

    def has_steps_at(self, point: str) -> bool:
        """Whether a step is held at this injection point that later steps must not overtake."""
        return point in self._in_order

    def has_room(self, active: ActiveRule, size: int) -> bool:
        """Whether the rule ``active`` may hold another item of ``size`` bytes.

        First drops held requests whose connections are closed, and held steps of dead nodes.
        """
        for held in [each for each in self._things if not each.is_alive()]:
            self._forget(held)
        if len(self._things) < HELD_MAX and sum(each.bytes for each in self._things) + size <= HELD_BYTES_MAX:
            return True
        if not active.told_of_no_room:
            active.told_of_no_room = True
            log.warning("a rule cannot hold more requests", rule=active.id, held=len(self._things))
        return False

    def hold(self, active: ActiveRule, held: HeldItem, delay_ms: int | None = None) -> None:
        """Hold a request or step until it is released, or for ``delay_ms``."""
        self._things[held] = active
        if held.at in _IN_ORDER:
            self._in_order[held.at] += 1
        active.held_things.append(held)
        if delay_ms is not None:
            held.timer = self._clock.call_later_ms(delay_ms, lambda: self.let_go(held), Domain.REQUESTS)

    def let_go(self, held: HeldItem) -> None:
        """Handle a held request or step, then the steps that wait for it.

        If the connection or node is gone, only the waiting steps are handled. While an earlier step on the same log is
        held, a step waits for the earlier one.
        """
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
        """Discard a request or step, which is then never executed."""
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

    # -- creating items --------------------------------------------------------------------------------------------

    def of_call(self, call: Call) -> HeldItem:
        """Create the item for a held request, whose connection stays open."""
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
        """Create the item for a detached request, whose connection is closed.

        The node that is running when the request is released handles it.
        """
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
        """Create the item for a held step.

        A step on a log is executed after all steps on the same log that were held earlier.
        """
        node = self._running(at.node_id) if self._running is not None else None
        held = HeldItem(
            at.point,
            at.node_id,
            go_on,
            # A node that is still starting is not known here yet, so its next life could not be distinguished.
            lambda: node is None or self._is_running(node),
            self._clock.now_ms(Domain.REQUESTS),
            subjects=subjects_at(at),
            # No other rule may apply to a step on a log: if it held the step again, later steps would overtake it.
            step=(at, go_on, refuse) if at.point not in _IN_ORDER else None,
        )
        if at.point in _IN_ORDER:
            held.after = self._step_before(at)
            self._last[_key(at)] = held
        return held

    def hold_behind(
        self, at: InjectionPoint, go_on: Callable[[], object], refuse: Callable[[ErrorCode], object]
    ) -> bool | None:
        """Hold a step that no rule holds, if an earlier step on the same log is held.

        Returns True if the step is now held, None if there is no earlier step, False if too many items are held.
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
        """The last held step on the same log; None if there is none."""
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
            call.note(CallEvent.GONE)  # a login cannot be handled without its connection
            return
        if self._running is not None:
            node = self._running(call.node.node_id)
            if node is None:
                call.note(CallEvent.GONE)  # no node is running at that address
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
