"""The error with which the control port refuses a call."""

from __future__ import annotations


class HttpError(Exception):
    """A call that cannot be served: an HTTP status of the 400s, and an error message for the caller."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
