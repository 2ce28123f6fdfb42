"""A run that stands still at a fault: what is held there, until the run may go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from odradek.certify.plans.plan import Injection

Process = tuple[int, str]
"""Process id and name."""


@dataclass(frozen=True, slots=True)
class HeldMoment:
    """A request or step that a rule holds. Then the fault strikes it."""

    injection: Injection
    bootstrap: str
    """Addresses of the broker, as bootstrap.servers takes them."""
    control: str
    """The URL of its control port."""
    instances: Sequence[tuple[int, Sequence[Process]]]
    """Each instance of the job that is alive, with its processes."""
    owner: int | None
    """The instance that has sent the request, where it is known."""
    went_on: threading.Event = field(default_factory=threading.Event)

    def go_on(self) -> None:
        """Let the fault strike."""
        self.went_on.set()

    def __str__(self) -> str:
        fault = self.injection.fault
        return "\n".join(
            [
                f"held at {self.injection.moment}",
                f"  next {fault.name}: {fault.sentence}",
                *map(self._instance, self.instances),
                f"  bootstrap.servers={self.bootstrap}",
                f"  ODRADEK_CONTROL={self.control}",
                "  time-outs of the job's clients, of sessions and of transactions go on",
            ]
        )

    def _instance(self, instance: tuple[int, Sequence[Process]]) -> str:
        number, processes = instance
        shown = ", ".join(f"{pid} ({name})" for pid, name in processes)
        return f"  instance {number}: {shown}{', which asks' if number == self.owner else ''}"


OnHold = Callable[[HeldMoment], None]
"""Called at each fault of a run that stands still; the run goes on when it returns."""
