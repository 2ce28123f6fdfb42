"""Requests that a rule held or detached and then released: what each of them was answered."""

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
"""Of one rule: the newest released requests."""
ERRORS_KEPT: Final = 8
"""Different error codes of one response."""

IN_PROGRESS: Final = "in progress"
ANSWERED: Final = "answered"
NOT_ANSWERED: Final = "no response"
CLOSED: Final = "connection closed"
LOST: Final = "lost"
"""A detached request for which no node ran."""


@slotted(eq=False)
class ReleasedRequest:
    """One released request, and what became of it."""

    held: dict[str, Any]
    """What the list of held requests showed."""
    released_at_ms: int
    outcome: str = IN_PROGRESS
    errors: tuple[str, ...] = ()
    """The error codes of the response by Kafka's names, each once; ``NONE`` alone if there was no error."""

    def to_json(self) -> dict[str, Any]:
        return {
            **self.held,
            "released_at_ms": self.released_at_ms,
            "outcome": self.outcome,
            "errors": list(self.errors),
        }


def follow(call: Call, released: ReleasedRequest) -> None:
    """Note the response of a request that is about to be handled."""

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
    """The error codes in a response, each once; ``NONE`` only if it has no other."""
    found: dict[str, None] = {}
    for code in error_codes(at_version(api_key, version, "response"), response):
        if code and len(found) < ERRORS_KEPT:
            found[error_name(code)] = None
    return tuple(found) or (error_name(NONE),)
