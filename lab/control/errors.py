"""The error with which the control port refuses a call."""

from __future__ import annotations

from collections.abc import Iterable

from broker.config.definitions import nearest


class HttpError(Exception):
    """A call that cannot be served: an HTTP status of the 400s, and an error message for the caller."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


def not_found(what: str, name: str, known: Iterable[str]) -> HttpError:
    """404 for a name that nothing has; it asks whether the nearest known name was meant."""
    return HttpError(404, unknown(what, name, known))


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The sentence for a name that nothing has; it asks whether the nearest known name was meant."""
    near = nearest(name, known)
    return f"there is no {what} {name}" + (f"; did you mean {near}?" if near else "")
