"""Applies rules to the steps inside the broker, before each step is executed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from lab.faults.active_rule import ActiveRule
from lab.faults.matching import step_meets
from lab.faults.rule_executor import RuleExecutor
from lab.faults.values import parse_code
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.injection.points import InjectionPoint

GoOn = Callable[[], object]
Refuse = Callable[[ErrorCode], object]


class PointRules:
    """A `broker.injection.points.PointInterceptor`, in use while a rule names an injection point or holds a step."""

    def __init__(self, executor: RuleExecutor) -> None:
        self._executor = executor
        self._by_point: dict[str, tuple[ActiveRule, ...]] = {}

    def look(self, rules: Iterable[ActiveRule]) -> None:
        """Replace the rules that are applied to steps inside the broker."""
        self._by_point = {}
        for active in rules:
            for point in active.points:
                self._by_point[point] = (*self._by_point.get(point, ()), active)

    @property
    def looks(self) -> bool:
        return bool(self._by_point) or self._executor.held_items.holds_steps_in_order

    def watches(self, point: str) -> bool:
        return point in self._by_point or self._executor.held_items.has_steps_at(point)

    def reached(self, at: InjectionPoint, go_on: GoOn, refuse: Refuse) -> None:
        if any(self._takes(active, at, go_on, refuse) for active in self._by_point.get(at.point, ())):
            return
        waits = self._executor.held_items.hold_behind(at, go_on, refuse)
        if waits is None:
            go_on()
        elif not waits:
            refuse(ErrorCode.kafka_storage_error)

    def goes_on_to(self, active: ActiveRule, at: InjectionPoint, go_on: GoOn, refuse: Refuse) -> None:
        """Apply ``active`` to a step that another rule released. Execute the step unless the rule hits."""
        if at.point not in active.points or not self._takes(active, at, go_on, refuse):
            go_on()

    def _takes(self, active: ActiveRule, at: InjectionPoint, go_on: GoOn, refuse: Refuse) -> bool:
        if not step_meets(active.rule.match, at) or not self._executor.takes_step(active, at):
            return False
        _ACTIONS[active.rule.action.do](self._executor, active, at, go_on, refuse)
        return True


# -- actions -------------------------------------------------------------------------------------------------------


def _error(
    executor: RuleExecutor, active: ActiveRule, at: InjectionPoint, go_on: GoOn, refuse: Refuse
) -> None:
    assert active.rule.action.code is not None, "a rule without it is refused"
    refuse(parse_code(active.rule.action.code))


def _full_disk(
    executor: RuleExecutor, active: ActiveRule, at: InjectionPoint, go_on: GoOn, refuse: Refuse
) -> None:
    refuse(ErrorCode.kafka_storage_error)


def _hold(
    executor: RuleExecutor, active: ActiveRule, at: InjectionPoint, go_on: GoOn, refuse: Refuse
) -> None:
    held = executor.held_items.of_step(at, go_on, refuse)
    executor.held_items.hold(active, held, active.rule.action.delay_ms)
    executor.changed()


def _lose(
    executor: RuleExecutor, active: ActiveRule, at: InjectionPoint, go_on: GoOn, refuse: Refuse
) -> None:
    """Neither execute nor refuse the step. The code that waits for the step gets no result."""


def _kill(
    executor: RuleExecutor, active: ActiveRule, at: InjectionPoint, go_on: GoOn, refuse: Refuse
) -> None:
    executor.kill(at.node_id)


def _crash(
    executor: RuleExecutor, active: ActiveRule, at: InjectionPoint, go_on: GoOn, refuse: Refuse
) -> None:
    executor.crash(f"{at.point}, rule {active.id}")


_ACTIONS: Final[dict[str, Callable[[RuleExecutor, ActiveRule, InjectionPoint, GoOn, Refuse], None]]] = {
    "error": _error,
    "hold": _hold,
    "delay": _hold,
    "lose": _lose,
    "kill": _kill,
    "crash": _crash,
    "slow-disk": _hold,
    "full-disk": _full_disk,
}
