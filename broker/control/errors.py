"""What the control port says no with."""

from __future__ import annotations


class Refused(Exception):
    """A call that cannot be served: an HTTP status of the 400s, and a sentence for whoever made it."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
