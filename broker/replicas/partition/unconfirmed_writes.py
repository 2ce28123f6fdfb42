"""What the disk has not confirmed of a partition's log: a write is held at ``log.write``, or an fsync is due."""

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
    """How far the disk has a partition's log: what it has not confirmed is a held write, or is not fsynced in time.

    The offsets of the held writes rise from one to the next. No offset behind the first of them counts as written. Where
    ``flush.messages`` asks for an fsync, no offset behind the last fsync counts as confirmed either.
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
        """``place`` is topic and partition; ``flush`` begins an fsync (None: `flush.messages` has no effect)."""
        self._place = place
        self._log = log
        self._flush = flush
        self._injection = injection
        self._node_id = node_id
        self.held: dict[HeldWrite, int] = {}
        """The writes that are held at ``log.write``, and their first offsets."""
        self._purgatory = OffsetPurgatory()

    # -- a write ------------------------------------------------------------------------------------------------

    def intercept(self) -> HeldWrite | None:
        """Pass ``log.write``: None if the write counts as soon as it is done. Raises what a refusal stands for."""
        if self._injection.points is None:
            return None
        held = HeldWrite(self._injection, self._node_id, *self._place)
        if held.refused is not None:
            raise StorageError(self._log.directory, held.reason)
        return None if held.released else held

    def add(self, held: HeldWrite, base_offset: int, decided: Callable[[HeldWrite], None]) -> None:
        """A write was done and is held; ``decided`` is called at its end, unless the write was truncated meanwhile."""

        def end() -> None:
            if self.held.pop(held, None) is not None:
                decided(held)

        self.held[held] = base_offset
        held.when_decided(end)

    def cut(self, offset: int) -> None:
        """The log was truncated to here."""
        self.held = {held: base for held, base in self.held.items() if base < offset}

    # -- how far the disk is ------------------------------------------------------------------------------------

    @property
    def written_end_offset(self) -> int:
        """Up to where the log has been written, as far as the disk has said so."""
        return next(iter(self.held.values())) if self.held else self._log.log_end_offset

    @property
    def confirmed_end_offset(self) -> int:
        """Up to where a follower has what it may say that it has: written, and fsynced where ``flush.messages`` asks."""
        end_offset = self.written_end_offset
        return min(end_offset, self._log.flushed_offset) if self._must_flush else end_offset

    @property
    def _must_flush(self) -> bool:
        log = self._log
        return (
            self._flush is not None and log.log_end_offset - log.flushed_offset >= log.config.flush_messages
        )

    def flush_if_due(self) -> bool:
        """Begin an fsync, where ``flush.messages`` asks for one; whether it does."""
        if self._flush is None or not self._must_flush:
            return False
        self._flush()
        return True

    def committable_end_offset(self) -> int:
        """Up to where this replica lets the high watermark come; begins an fsync, where that waits for one."""
        end_offset = self._log.log_end_offset
        if self.flush_if_due():  # the partition asks again when the bytes are on the disk
            end_offset = self._log.flushed_offset  # more may have come meanwhile: it waits for the next round
        if self.held:
            end_offset = min(end_offset, self.written_end_offset)
        return end_offset

    # -- callbacks that wait for the disk -----------------------------------------------------------------------

    def on_written(self, end_offset: int, callback: Callback) -> None:
        """Call back once the disk has taken all below ``end_offset`` (acks=1): at once, unless a write is held."""
        if self.written_end_offset >= end_offset:
            callback(NONE)
        else:
            self._purgatory.add(end_offset, callback)

    def release_waiting(self) -> None:
        """One write less is held."""
        self._purgatory.release(self.written_end_offset)

    def dismiss(self, error: ErrorCode) -> None:
        """No further write is confirmed: waiting callbacks get ``error``."""
        self._purgatory.dismiss(error)

    def close(self) -> None:
        """Begin no fsync any more."""
        self._flush = None
