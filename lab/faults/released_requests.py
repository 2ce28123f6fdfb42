"""Requests that a rule held or detached and then released, with their responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.net.calls import CallEvent
from broker.requests.api import NO_RESPONSE
from protocol.error_codes import error_codes, error_name
from protocol.errors import NONE
from protocol.slotted import slotted
from protocol.versions import at_version

if TYPE_CHECKING:
    from broker.net.calls import Call

RELEASED_KEPT: Final = 64
"""Number of the newest released requests that each rule remembers."""
ERRORS_KEPT: Final = 8
"""Maximum number of error codes in `ReleasedRequest.errors`; further codes of the response are left out."""

IN_PROGRESS: Final = "in progress"
ANSWERED: Final = "answered"
NOT_ANSWERED: Final = "no response"
CLOSED: Final = "connection closed"
LOST: Final = "lost"
"""Outcome of a detached request if no node was running."""


@slotted(eq=False)
class ReleasedRequest:
    """One released request and its outcome."""

    held: dict[str, Any]
    """JSON form of the request, as the list of held requests showed it before the release."""
    released_at_ms: int
    outcome: str = IN_PROGRESS
    errors: tuple[str, ...] = ()
    """Kafka's names of the error codes in the response, without repetition; only ``NONE`` if there was no error.
    Empty if there is no response."""

    def to_json(self) -> dict[str, Any]:
        return {
            **self.held,
            "released_at_ms": self.released_at_ms,
            "outcome": self.outcome,
            "errors": list(self.errors),
        }


def follow(call: Call, released: ReleasedRequest) -> None:
    """Record in ``released`` the outcome of the request ``call``, which is about to be handled."""

    def ended(of: Call, event: CallEvent) -> None:
        if event is CallEvent.GONE and released.outcome is IN_PROGRESS:
            released.outcome = LOST if released.held["detached"] else CLOSED

    def answered(outcome: object) -> object:
        if outcome is NO_RESPONSE:
            released.outcome = NOT_ANSWERED
        elif isinstance(outcome, BaseException):
            released.outcome = CLOSED
        else:
            released.outcome = ANSWERED
            released.errors = error_names(call.context.api_key, call.context.api_version, outcome)
        return outcome

    call.watch(ended)
    call.on_outcome(answered)


def error_names(api_key: int, version: int, response: object) -> tuple[str, ...]:
    """The different error codes in a response; ``NONE`` only if there is no other code."""
    found: dict[str, None] = {}
    for code in error_codes(at_version(api_key, version, "response"), response):
        if code and len(found) < ERRORS_KEPT:
            found[error_name(code)] = None
    return tuple(found) or (error_name(NONE),)
