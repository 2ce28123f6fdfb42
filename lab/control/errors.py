"""The exception that becomes the control port's error response."""

from __future__ import annotations

from collections.abc import Iterable

from broker.config.definitions import nearest


class HttpError(Exception):
    """An error of the caller: an HTTP status from 400 to 499, and a message."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


def not_found(what: str, name: str, known: Iterable[str]) -> HttpError:
    """The ``HttpError`` 404 for an unknown name, with the most similar known name as a suggestion."""
    return HttpError(404, unknown(what, name, known))


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Message for an unknown name, with the most similar known name as a suggestion."""
    near = nearest(name, known)
    return f"there is no {what} {name}" + (f"; did you mean {near}?" if near else "")
