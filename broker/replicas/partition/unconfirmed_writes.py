"""Appends of a partition that the disk has not confirmed: held at the injection point ``log.write``, or not fsynced."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.injection.points import InjectionPoint
from broker.replicas.partition.offset_purgatory import Callback, OffsetPurgatory
from protocol.errors import NONE, ErrorCode
from storage.files import StorageError

if TYPE_CHECKING:
    from broker.injection.points import FaultInjection
    from storage.log import Log


class HeldWrite:
    """One append at the injection point ``log.write``: held until a fault rule releases or refuses it."""

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
        """Why the append was refused; empty if it was not refused."""
        return "" if self.refused is None else f"refused with {self.refused.name.upper()}"

    def when_decided(self, callback: Callable[[], None]) -> None:
        """Set the callback that is called when a held write is released or refused."""
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
    """The appends of a partition's log that the disk has not confirmed yet, for one of two reasons.

    A held write is an append that a fault rule holds at the injection point ``log.write``: its base offset and all
    later offsets count as not written. If ``flush.messages`` requires an fsync, offsets after the last fsync are not
    confirmed.
    """

    __slots__ = ("_flush", "_injection", "_log", "_node_id", "_place", "_purgatory", "held")

    def __init__(
        self,
        place: tuple[str, int],
        log: Log,
        flush: Callable[[], None] | None,
        injection: FaultInjection,
        node_id: int,
    ) -> None:
        """``place`` is topic and partition; ``flush`` starts an fsync (None: ``flush.messages`` has no effect)."""
        self._place = place
        self._log = log
        self._flush = flush
        self._injection = injection
        self._node_id = node_id
        self.held: dict[HeldWrite, int] = {}
        """The writes that a fault rule holds at ``log.write``, with their base offsets, in the order of the offsets."""
        self._purgatory = OffsetPurgatory()

    # -- held writes --------------------------------------------------------------------------------------------

    def intercept(self) -> HeldWrite | None:
        """Pass the injection point ``log.write`` before an append. Returns the write if a rule holds it, else None.

        Raises StorageError if a rule refuses the write.
        """
        if self._injection.points is None:
            return None
        held = HeldWrite(self._injection, self._node_id, *self._place)
        if held.refused is not None:
            raise StorageError(self._log.directory, held.reason)
        return None if held.released else held

    def add(self, held: HeldWrite, base_offset: int, decided: Callable[[HeldWrite], None]) -> None:
        """Add a held write. ``decided`` is called when the write is released or refused, unless it was truncated."""

        def end() -> None:
            if self.held.pop(held, None) is not None:
                decided(held)

        self.held[held] = base_offset
        held.when_decided(end)

    def cut(self, offset: int) -> None:
        """Forget held writes from ``offset`` on, after the log was truncated to ``offset``."""
        self.held = {held: base for held, base in self.held.items() if base < offset}

    # -- confirmed offsets --------------------------------------------------------------------------------------

    @property
    def written_end_offset(self) -> int:
        """End offset of the written part of the log: the base offset of the first held write, or the log end."""
        return next(iter(self.held.values())) if self.held else self._log.log_end_offset

    @property
    def confirmed_end_offset(self) -> int:
        """End offset that a follower may acknowledge: written, and fsynced if ``flush.messages`` requires it."""
        end_offset = self.written_end_offset
        return min(end_offset, self._log.flushed_offset) if self._must_flush else end_offset

    @property
    def _must_flush(self) -> bool:
        log = self._log
        return (
            self._flush is not None and log.log_end_offset - log.flushed_offset >= log.config.flush_messages
        )

    def flush_if_due(self) -> bool:
        """Start an fsync if ``flush.messages`` requires one. Returns whether an fsync is required."""
        if self._flush is None or not self._must_flush:
            return False
        self._flush()
        return True

    def committable_end_offset(self) -> int:
        """Highest high watermark that this replica allows. Starts an fsync if the high watermark has to wait for one."""
        end_offset = self._log.log_end_offset
        if self.flush_if_due():  # the partition calls this again after the fsync
            end_offset = self._log.flushed_offset  # later records wait for the next fsync
        if self.held:
            end_offset = min(end_offset, self.written_end_offset)
        return end_offset

    # -- callbacks ----------------------------------------------------------------------------------------------

    def on_written(self, end_offset: int, callback: Callback) -> None:
        """Call ``callback`` once all records below ``end_offset`` are written (acks=1): at once, unless a write is held."""
        if self.written_end_offset >= end_offset:
            callback(NONE)
        else:
            self._purgatory.add(end_offset, callback)

    def release_waiting(self) -> None:
        """Call the waiting callbacks whose records now count as written, after a held write was released."""
        self._purgatory.release(self.written_end_offset)

    def dismiss(self, error: ErrorCode) -> None:
        """Call all waiting callbacks with ``error``: no further write is confirmed."""
        self._purgatory.dismiss(error)

    def close(self) -> None:
        """Start no further fsync of the log."""
        self._flush = None
