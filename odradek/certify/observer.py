"""What a user is told while a job is certified."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from odradek.certify.certificate import Certificate, Failure


class Observer(Protocol):
    """Is told what happens, when it happens, from several threads."""

    def says(self, text: str) -> None:
        """A line about the job without faults: started, its own first lines, ended, what is waited for."""

    def begins(self, certificate: Certificate, budget_s: float) -> None:
        """The job is the same twice without faults; plans are tried from now on."""

    def progress(self, certificate: Certificate, text: str) -> None:
        """A run is over; ``text`` is its plan."""

    def found(self, certificate: Certificate, failure: Failure) -> None:
        """A failure, or a plan under which the job is unfinished."""


class Quiet(Observer):
    """Keeps it to itself."""

    def says(self, text: str) -> None: ...

    def begins(self, certificate: Certificate, budget_s: float) -> None: ...

    def progress(self, certificate: Certificate, text: str) -> None: ...

    def found(self, certificate: Certificate, failure: Failure) -> None: ...
