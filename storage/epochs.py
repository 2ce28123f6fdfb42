"""Leader epochs and their start offsets: the content of ``leader-epoch-checkpoint`` (KIP-101, KIP-279)."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

from storage.checkpoints import format_rows, parse_rows
from storage.files import DamagedFile, Name, replace_file

UNDEFINED = (-1, -1)


class LeaderEpochs:
    """Leader epochs and their start offsets, both strictly rising, in memory; ``save`` writes them to the file."""

    __slots__ = ("_changed_from", "_epochs", "_starts")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._epochs = [epoch for epoch, _ in entries or []]
        self._starts = [start for _, start in entries or []]
        # The checkpoint file is up to date for offsets below this one; None: for all offsets.
        self._changed_from: int | None = None

    @classmethod
    def load(cls, path: Name) -> LeaderEpochs:
        """Read a checkpoint file. Drops lines that contradict later lines, as Kafka does."""
        epochs = cls()
        try:
            for epoch, start in parse_rows(path, 2):
                epochs.assign(int(epoch), int(start))
        except ValueError as error:
            raise DamagedFile(path, f"a line has a field that is not a number: {error}") from error
        epochs._changed_from = None
        return epochs

    def save(self, path: Path, *, durable: bool = True) -> None:
        replace_file(path, self.unsaved(), durable=durable)

    def unsaved(self) -> bytes:
        """Content of the checkpoint file. The caller must write it now: the epochs count as saved after this call."""
        self._changed_from = None
        return format_rows(self.entries())

    def unsaved_below(self, end_offset: int) -> bytes | None:
        """Content of the checkpoint file, or None if the file has all epochs of the records below ``end_offset``.

        The caller must write returned content now, as for `unsaved`. After a restart each of ten thousand logs has
        a new epoch, and most logs will never have a record of it. So the file is written only when there is such a
        record.
        """
        if self._changed_from is None or self._changed_from >= end_offset:
            return None
        return self.unsaved()

    @property
    def dirty(self) -> bool:
        """Whether the epochs have changed since the file was written."""
        return self._changed_from is not None

    def _note_change(self, offset: int) -> None:
        if self._changed_from is None or offset < self._changed_from:
            self._changed_from = offset

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        """The newest epoch, -1 if there is none."""
        return self._epochs[-1] if self._epochs else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add an epoch that begins at ``start_offset``. Does nothing if the epoch is not above the latest one.

        Removes the entries that begin at ``start_offset`` or later, because they contradict the new epoch.
        """
        if epoch <= self.latest:
            return
        while self._starts and self._starts[-1] >= start_offset:
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self._note_change(start_offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Response to OffsetForLeaderEpoch for ``epoch``: (epoch, its end offset), or ``UNDEFINED``.

        If the log does not have ``epoch``, the returned epoch is the largest one below it. ``UNDEFINED`` is
        returned if ``epoch`` is above the latest epoch or -1, or if there are no epochs. An epoch below all others
        is returned as it is, with the start offset of the first epoch.
        """
        if epoch == -1 or not self._epochs or epoch > self.latest:
            return UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        if epoch < self._epochs[0]:
            return epoch, self._starts[0]
        index = bisect_right(self._epochs, epoch)
        return self._epochs[index - 1], self._starts[index]

    def epoch_for_offset(self, offset: int) -> int:
        """Epoch of the record at an offset, -1 if the offset is below the first epoch."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else -1

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove epochs that began at or after ``end_offset``."""
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._note_change(self._starts.pop())

    def clear(self) -> None:
        """Remove all epochs."""
        if self._starts:
            self._note_change(self._starts[0])
        self._epochs, self._starts = [], []

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs that ended before ``start_offset``. The epoch that contains it now begins there."""
        index = bisect_right(self._starts, start_offset) - 1
        if index < 0 or (index == 0 and self._starts[0] == start_offset):
            return
        self._epochs = self._epochs[index:]
        self._starts = [start_offset, *self._starts[index + 1 :]]
        self._note_change(0)
