"""A run that is held at a fault, and the description of the held request or step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from odradek.certify.plans.plan import Injection

Process = tuple[int, str]
"""Id and name of a process."""


@dataclass(frozen=True, slots=True)
class HeldMoment:
    """A request or step that a rule holds before the fault is injected."""

    injection: Injection
    bootstrap: str
    """Addresses of the broker, in the format of bootstrap.servers."""
    control: str
    """URL of the broker's control port."""
    instances: Sequence[tuple[int, Sequence[Process]]]
    """Each running instance of the job, with its processes."""
    owner: int | None
    """Number of the instance that sent the request; None if unknown."""
    went_on: threading.Event = field(default_factory=threading.Event)

    def go_on(self) -> None:
        """End the hold: the certifier injects the fault, and the run continues."""
        self.went_on.set()

    def __str__(self) -> str:
        fault = self.injection.fault
        return "\n".join(
            [
                f"held at {self.injection.moment}",
                f"  next {fault.name}: {self.injection.sentence}",
                *map(self._instance, self.instances),
                f"  bootstrap.servers={self.bootstrap}",
                f"  ODRADEK_CONTROL={self.control}",
                "  timeouts of the job's clients, sessions and transactions keep running",
            ]
        )

    def _instance(self, instance: tuple[int, Sequence[Process]]) -> str:
        number, processes = instance
        shown = ", ".join(f"{pid} ({name})" for pid, name in processes)
        return f"  instance {number}: {shown}{', which sent the request' if number == self.owner else ''}"


OnHold = Callable[[HeldMoment], None]
"""Function that is called at each fault of a held run. The run continues when the call returns."""
