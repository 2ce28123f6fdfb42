"""Callbacks for the progress of a certification."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from odradek.certify.certificate import Certificate, Failure


class Observer(Protocol):
    """Callbacks for events of a certification. Several threads call them."""

    def says(self, text: str) -> None:
        """Print a line about a run without faults: start, first lines of output, end, what the run waits for."""

    def begins(self, certificate: Certificate, budget_s: float) -> None:
        """Called after the runs without faults if the job can be judged; runs with faults follow."""

    def progress(self, certificate: Certificate, text: str) -> None:
        """Called after each run with faults; ``text`` is its plan."""

    def found(self, certificate: Certificate, failure: Failure) -> None:
        """Called for a new failure, and for a plan under which the job ended before the input was processed."""


class Quiet(Observer):
    """Observer that ignores all events."""

    def says(self, text: str) -> None: ...

    def begins(self, certificate: Certificate, budget_s: float) -> None: ...

    def progress(self, certificate: Certificate, text: str) -> None: ...

    def found(self, certificate: Certificate, failure: Failure) -> None: ...
