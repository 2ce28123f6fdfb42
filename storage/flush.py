"""Syncs a log before its recovery point moves, in an order that is safe if the power fails at any step."""

from __future__ import annotations

from pathlib import Path

from storage.files import StorageError, replace_file, sync_file
from storage.log import EPOCH_FILE, Log
from storage.segment import Segment, file_name


class Flush:
    """One flush of a log. The log's own thread creates and finishes it; any thread may run it.

    If ``whole`` is true, batches up to the log end offset at the time of creation are flushed, else batches below
    the base offset of the active segment. The constructor raises ``StorageError`` if it cannot write the index
    entries in memory.
    """

    __slots__ = (
        "_epoch_file",
        "_epochs",
        "_log",
        "_segments",
        "_snapshot",
        "_truncations",
        "abandoned",
        "end_offset",
    )

    def __init__(self, log: Log, *, whole: bool) -> None:
        self._log = log
        self._truncations = log.truncations
        segments = log.flush_targets()
        if whole:
            self.end_offset = log.log_end_offset
        else:
            self.end_offset = segments.pop().base_offset
        self._segments: list[Segment] = segments
        self._snapshot: Path = log.directory / file_name(log.last_snapshot_offset, "snapshot")
        # Epochs stay in memory until a record of theirs is flushed (`Log.assign_epoch`).
        self._epochs = log.epochs.unsaved_below(self.end_offset)
        self._epoch_file = log.directory / EPOCH_FILE
        self.abandoned = False
        """Whether the log was deleted before this flush ended. If so, `run` no longer writes the epoch file: another log may
        have the same directory by now.
        """

    def run(self) -> StorageError | None:
        """Sync all files. Files deleted meanwhile are skipped. Returns the error, None if there was none."""
        try:
            for segment in self._segments:
                segment.sync()
            sync_file(self._snapshot)
            if self._epochs is not None:
                self._write_epochs(self._epochs)
        except StorageError as error:
            return error
        return None

    def _write_epochs(self, epochs: bytes) -> None:
        with self._log.epoch_file_lock:
            if not self.abandoned and self._truncations == self._log.truncations:
                replace_file(self._epoch_file, epochs)

    def finish(self) -> None:
        """Move the flushed offset, after a run without an error. Does nothing if the log was truncated meanwhile."""
        if self._truncations == self._log.truncations:
            self._log.flushed_up_to(self.end_offset)
