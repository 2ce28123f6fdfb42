"""Writes that are done but do not count yet: a disk that is slow, by somebody's will (``log.write``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.hooks import Passage
from broker.partition.waiting import Told, Waiting
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
    def reason(self) -> str:
        """Why it was refused."""
        return "" if self.refused is None else f"refused with {self.refused.name.upper()}"

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


class HeldWrites:
    """Those of one partition, and who waits for them to count. Offsets rise from one to the next."""

    __slots__ = ("_first_offsets", "_waiting")

    def __init__(self) -> None:
        self._first_offsets: dict[HeldWrite, int] = {}
        self._waiting = Waiting()

    @property
    def any(self) -> bool:
        return bool(self._first_offsets)

    def add(self, held: HeldWrite, base_offset: int, decided: Callable[[HeldWrite], None]) -> None:
        """A write was done and is held; ``decided`` hears of its end, unless it was cut off meanwhile."""

        def end() -> None:
            if self._first_offsets.pop(held, None) is not None:
                decided(held)

        self._first_offsets[held] = base_offset
        held.when_decided(end)

    def written_end(self, log_end_offset: int) -> int:
        """Up to where the log has been written, as far as the disk has said so."""
        return next(iter(self._first_offsets.values())) if self._first_offsets else log_end_offset

    def cut(self, offset: int) -> None:
        """The log was truncated to here."""
        self._first_offsets = {held: base for held, base in self._first_offsets.items() if base < offset}

    def on_written(self, end_offset: int, log_end_offset: int, told: Told) -> None:
        """Tell once all below ``end_offset`` counts: at once, or when what is held is released."""
        if self.written_end(log_end_offset) >= end_offset:
            told(ErrorCode.none)
        else:
            self._waiting.add(end_offset, told)

    def release_waiting(self, log_end_offset: int) -> None:
        """One write less is held."""
        self._waiting.release(self.written_end(log_end_offset))

    def dismiss(self, error: ErrorCode) -> None:
        """Nothing more will count: whoever waits hears why."""
        self._waiting.dismiss(error)
