"""Writes that the disk has not confirmed yet, because a rule makes it slow (``log.write``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.injection.points import InjectionPoint
from broker.replicas.partition.offset_purgatory import Callback, OffsetPurgatory
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.injection.points import FaultInjection


class HeldWrite:
    """One append at ``log.write``: it may be let through, refused, or held, and then let through or refused later."""

    __slots__ = ("_later", "refused", "released")

    def __init__(self, injection: FaultInjection, node_id: int, topic: str, partition: int) -> None:
        self.released = False
        self.refused: ErrorCode | None = None
        self._later: Callable[[], None] | None = None
        injection.intercept(
            InjectionPoint("log.write", node_id, topic, partition), self._release, self._refuse
        )

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


class UnconfirmedWrites:
    """The held writes of one partition, and the callbacks that wait for them to count. Offsets rise from one to the next."""

    __slots__ = ("_first_offsets", "_purgatory")

    def __init__(self) -> None:
        self._first_offsets: dict[HeldWrite, int] = {}
        self._purgatory = OffsetPurgatory()

    @property
    def any(self) -> bool:
        return bool(self._first_offsets)

    def add(self, held: HeldWrite, base_offset: int, decided: Callable[[HeldWrite], None]) -> None:
        """A write was done and is held; ``decided`` is called at its end, unless the write was truncated meanwhile."""

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

    def on_written(self, end_offset: int, log_end_offset: int, callback: Callback) -> None:
        """Tell once all below ``end_offset`` counts: at once, or when what is held is released."""
        if self.written_end(log_end_offset) >= end_offset:
            callback(ErrorCode.none)
        else:
            self._purgatory.add(end_offset, callback)

    def release_waiting(self, log_end_offset: int) -> None:
        """One write less is held."""
        self._purgatory.release(self.written_end(log_end_offset))

    def dismiss(self, error: ErrorCode) -> None:
        """No further write is confirmed: waiting callbacks get ``error``."""
        self._purgatory.dismiss(error)
