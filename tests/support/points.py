"""A rule in small: stands at steps inside the broker, and holds or refuses those that a test names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from broker.hooks import Passage
from protocol.errors import ErrorCode


@dataclass
class Held:
    passage: Passage
    go_on: Callable[[], object]
    refuse: Callable[[ErrorCode], object]


@dataclass
class Gate:
    """`broker.hooks.PointHook`: holds what comes to `point` (and for which `holds` says so) until `release`."""

    point: str
    holds: Callable[[Passage], bool] = lambda _: True
    passed: list[Passage] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    is_open: bool = False

    def watches(self, point: str) -> bool:
        return point == self.point

    def reached(
        self, passage: Passage, go_on: Callable[[], object], refuse: Callable[[ErrorCode], object]
    ) -> None:
        if self.is_open or not self.holds(passage):
            self.passed.append(passage)
            go_on()
        else:
            self.held.append(Held(passage, go_on, refuse))

    def release(self) -> None:
        """Let through what stands here, and all that comes."""
        self.is_open = True
        held, self.held = self.held, []
        for each in held:
            self.passed.append(each.passage)
            each.go_on()

    def refuse(self, error: ErrorCode) -> None:
        """Have what stands here fail."""
        held, self.held = self.held, []
        for each in held:
            each.refuse(error)
