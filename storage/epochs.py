"""Which leader epoch began at which offset: the content of ``leader-epoch-checkpoint`` (KIP-101, KIP-279)."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

from storage.checkpoints import format_rows, parse_rows
from storage.files import DamagedFile, Name, replace_file

UNDEFINED = (-1, -1)


class LeaderEpochs:
    """Epochs and start offsets, both strictly rising. In memory; ``save`` writes the file."""

    __slots__ = ("_changed_from", "_epochs", "_starts")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._epochs = [epoch for epoch, _ in entries or []]
        self._starts = [start for _, start in entries or []]
        # Below this offset the file says the same; None: it does so everywhere.
        self._changed_from: int | None = None

    @classmethod
    def load(cls, path: Name) -> LeaderEpochs:
        """The epochs in a checkpoint file; lines that contradict later ones are dropped, as in Kafka."""
        epochs = cls()
        try:
            for epoch, start in parse_rows(path, 2):
                epochs.assign(int(epoch), int(start))
        except ValueError as error:
            raise DamagedFile(path, f"a line does not hold numbers: {error}") from error
        epochs._changed_from = None
        return epochs

    def save(self, path: Path, *, durable: bool = True) -> None:
        replace_file(path, self.unsaved(), durable=durable)

    def unsaved(self) -> bytes:
        """What the file should hold, for the caller to write now."""
        self._changed_from = None
        return format_rows(self.entries())

    def unsaved_below(self, end_offset: int) -> bytes | None:
        """The same, if the file does not say yet in which epochs the records below an offset were written.

        After a restart there is a new epoch in each of ten thousand logs, and most of them will never have a record
        of it.
        """
        if self._changed_from is None or self._changed_from >= end_offset:
            return None
        return self.unsaved()

    @property
    def dirty(self) -> bool:
        """Whether the file does not say all."""
        return self._changed_from is not None

    def _note_change(self, offset: int) -> None:
        if self._changed_from is None or offset < self._changed_from:
            self._changed_from = offset

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        """The newest epoch, -1 when none began yet."""
        return self._epochs[-1] if self._epochs else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """An epoch begins. Entries that it contradicts (same start, later start) go."""
        if epoch <= self.latest:
            return
        while self._starts and self._starts[-1] >= start_offset:
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self._note_change(start_offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) for OffsetForLeaderEpoch; UNDEFINED when we cannot know."""
        if epoch == -1 or not self._epochs or epoch > self.latest:
            return UNDEFINED
        if epoch == self.latest:
            return epoch, log_end_offset
        if epoch < self._epochs[0]:
            return epoch, self._starts[0]
        index = bisect_right(self._epochs, epoch)
        return self._epochs[index - 1], self._starts[index]

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch in which an offset was written, -1 when before the first."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else -1

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that began at or after ``end_offset``."""
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._note_change(self._starts.pop())

    def clear(self) -> None:
        """Forget all of them."""
        if self._starts:
            self._note_change(self._starts[0])
        self._epochs, self._starts = [], []

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that ended before ``start_offset``; the one it lies in now begins there."""
        index = bisect_right(self._starts, start_offset) - 1
        if index < 0 or (index == 0 and self._starts[0] == start_offset):
            return
        self._epochs = self._epochs[index:]
        self._starts = [start_offset, *self._starts[index + 1 :]]
        self._note_change(0)
