"""Rules on the steps inside the broker: what is done with a step that is about to be taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from broker.faults.active import Active
from broker.faults.powers import Powers
from broker.faults.rules import Match, matches
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.hooks import Passage

GoOn = Callable[[], object]
Refuse = Callable[[ErrorCode], object]


class PointRules:
    """Stands at points (`broker.hooks.PointHook`) while a rule looks at some, or a step is held there."""

    def __init__(self, powers: Powers) -> None:
        self._powers = powers
        self._by_point: dict[str, tuple[Active, ...]] = {}

    def look(self, rules: Iterable[Active]) -> None:
        """These are the rules that look."""
        self._by_point = {}
        for active in rules:
            for point in active.points:
                self._by_point[point] = (*self._by_point.get(point, ()), active)

    @property
    def looks(self) -> bool:
        return bool(self._by_point) or self._powers.holding.holds_steps_in_order

    def watches(self, point: str) -> bool:
        return point in self._by_point or self._powers.holding.has_steps_at(point)

    def reached(self, passage: Passage, go_on: GoOn, refuse: Refuse) -> None:
        for active in self._by_point.get(passage.point, ()):
            if _meets(active.rule.match, passage) and self._powers.takes(active):
                _ACTIONS[active.rule.action.do](self._powers, active, passage, go_on, refuse)
                return
        waits = self._powers.holding.hold_behind(passage, go_on)
        if waits is None:
            go_on()
        elif not waits:
            refuse(ErrorCode.kafka_storage_error)


def _meets(match: Match, passage: Passage) -> bool:
    return (
        match.node in (None, passage.node_id)
        and match.partition in (None, passage.partition)
        and all(
            pattern is None or matches(pattern, name)
            for pattern, name in (
                (match.topic, passage.topic or None),
                (match.transactional_id, passage.transactional_id),
                (match.group, passage.group_id),
            )
        )
    )


# ---- actions


def _error(powers: Powers, active: Active, passage: Passage, go_on: GoOn, refuse: Refuse) -> None:
    code = active.rule.action.code
    assert code is not None, "a rule without it is refused"
    refuse(code)


def _full_disk(powers: Powers, active: Active, passage: Passage, go_on: GoOn, refuse: Refuse) -> None:
    refuse(ErrorCode.kafka_storage_error)


def _hold(powers: Powers, active: Active, passage: Passage, go_on: GoOn, refuse: Refuse) -> None:
    powers.holding.hold(active, powers.holding.of_step(passage, go_on), active.rule.action.delay_ms)
    powers.changed()


def _lose(powers: Powers, active: Active, passage: Passage, go_on: GoOn, refuse: Refuse) -> None:
    """It never happens, and nobody is told."""


def _kill(powers: Powers, active: Active, passage: Passage, go_on: GoOn, refuse: Refuse) -> None:
    powers.kill(passage.node_id)


def _crash(powers: Powers, active: Active, passage: Passage, go_on: GoOn, refuse: Refuse) -> None:
    powers.crash(f"{passage.point}, rule {active.id}")


_ACTIONS: Final[dict[str, Callable[[Powers, Active, Passage, GoOn, Refuse], None]]] = {
    "error": _error,
    "hold": _hold,
    "delay": _hold,
    "lose": _lose,
    "kill": _kill,
    "crash": _crash,
    "slow-disk": _hold,
    "full-disk": _full_disk,
}
