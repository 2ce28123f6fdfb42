"""Writes that are done but do not count yet: a disk that is slow, by somebody's will (``log.write``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.hooks import Passage
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.hooks import Hooks


class HeldWrite:
    """One passage of ``log.write``: it may be let through, refused, or held, and then let through or refused later."""

    __slots__ = ("_later", "refused", "released")

    def __init__(self, hooks: Hooks, node_id: int, topic: str, partition: int) -> None:
        self.released = False
        self.refused: ErrorCode | None = None
        self._later: Callable[[], None] | None = None
        hooks.at_point(Passage("log.write", node_id, topic, partition), self._release, self._refuse)

    @property
    def is_decided(self) -> bool:
        return self.released or self.refused is not None

    def when_decided(self, callback: Callable[[], None]) -> None:
        """The write was done, and this one is still held."""
        self._later = callback

    def _release(self) -> None:
        self.released = True
        self._tell()

    def _refuse(self, error: ErrorCode) -> None:
        self.refused = error
        self._tell()

    def _tell(self) -> None:
        if self._later is not None:
            self._later()
