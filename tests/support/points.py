"""A fake fault rule that holds or refuses the steps of the broker that a test names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from broker.injection.points import InjectionPoint
from protocol.errors import ErrorCode


@dataclass
class Held:
    at: InjectionPoint
    go_on: Callable[[], object]
    refuse: Callable[[ErrorCode], object]


@dataclass
class Gate:
    """A `PointInterceptor` that holds the steps at `point` for which `holds` is true, until `release`."""

    point: str
    holds: Callable[[InjectionPoint], bool] = lambda _: True
    passed: list[InjectionPoint] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    is_open: bool = False

    def watches(self, point: str) -> bool:
        return point == self.point

    def reached(
        self, at: InjectionPoint, go_on: Callable[[], object], refuse: Callable[[ErrorCode], object]
    ) -> None:
        if self.is_open or not self.holds(at):
            self.passed.append(at)
            go_on()
        else:
            self.held.append(Held(at, go_on, refuse))

    def release(self) -> None:
        """Release the held steps, and let all later steps pass."""
        self.is_open = True
        held, self.held = self.held, []
        for each in held:
            self.passed.append(each.at)
            each.go_on()

    def refuse(self, error: ErrorCode) -> None:
        """Fail the held steps with an error."""
        held, self.held = self.held, []
        for each in held:
            each.refuse(error)
