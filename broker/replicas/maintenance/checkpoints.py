"""The checkpoint files of a log directory: recovery points, log start offsets and high watermarks. A thread writes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from broker.logging import get_logger
from storage.checkpoints import OffsetCheckpoint, write_rows
from storage.directory import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, LogDirectory, PartitionKey
from storage.files import StorageError

if TYPE_CHECKING:
    from broker.replicas.partition import Partition

log_events = get_logger()

InBackground = Callable[[Callable[[], None]], "asyncio.Future[None]"]


class Checkpoints:
    """The contents of the checkpoint files for recovery points, log start offsets and high watermarks.

    They are read at start, and then updated in memory for the next write. One thread at a time writes files.
    """

    def __init__(self, directory: LogDirectory, in_background: InBackground) -> None:
        self._directory = directory
        self._in_background = in_background
        self._files = {
            name: OffsetCheckpoint(_read(directory, name))
            for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS)
        }
        self._high_watermarks_moved: dict[Partition, None] = {}
        """Partitions whose high watermark has moved since the checkpoint of high watermarks was last written."""
        self._is_writing = False
        self._to_write: list[tuple[tuple[str, ...], Callable[[], None]]] = []
        """Writes of checkpoint files requested while another write runs. A repeated request is queued once."""
        self._closed = False

    # -- values in the files ------------------------------------------------------------------------------------

    def recovery_point(self, key: PartitionKey) -> int:
        return self._files[RECOVERY_POINTS].get(key)

    def log_start(self, key: PartitionKey) -> int:
        return self._files[LOG_STARTS].get(key)

    def high_watermark(self, key: PartitionKey) -> int:
        return self._files[HIGH_WATERMARKS].get(key)

    # -- values to write ----------------------------------------------------------------------------------------

    def note(self, partition: Partition) -> None:
        """Update the partition's values for all three checkpoint files. The next write of each file contains them."""
        key = (partition.topic, partition.index)
        self._files[RECOVERY_POINTS].set(key, partition.log.recovery_point)
        self._files[HIGH_WATERMARKS].set(key, partition.high_watermark)
        self.note_log_start(partition)

    def note_log_start(self, partition: Partition) -> None:
        """Set the partition's row in the checkpoint of log start offsets. As in Kafka, drop the row if the log start
        offset is the base offset of the first segment.
        """
        log = partition.log
        key = (partition.topic, partition.index)
        if log.exists and log.log_start_offset > log.segments[0].base_offset:
            self._files[LOG_STARTS].set(key, log.log_start_offset)
        else:
            self._files[LOG_STARTS].drop(key)

    def high_watermark_moved(self, partition: Partition) -> None:
        """Mark the high watermark as changed. Its value is read when the checkpoint is written."""
        self._high_watermarks_moved[partition] = None

    def removed(self, partition: Partition) -> None:
        self._high_watermarks_moved.pop(partition, None)

    def forget(self, key: PartitionKey) -> None:
        """Drop the rows of a deleted partition, and write the files soon.

        After a crash the rows would otherwise apply to a new partition with the same name. Kafka:
        ``LogManager.asyncDelete``.
        """
        for checkpoint in self._files.values():
            checkpoint.drop(key)
        if self.is_changed:
            self.write_all(_nothing)

    # -- writing ------------------------------------------------------------------------------------------------

    @property
    def is_changed(self) -> bool:
        """Whether a value in memory differs from the one in its checkpoint file."""
        return any(checkpoint.changed for checkpoint in self._files.values())

    @property
    def is_behind(self) -> bool:
        """Whether a value in memory differs from its file, or a high watermark has moved since the last write."""
        return bool(self._high_watermarks_moved) or self.is_changed

    def write(self, names: Iterable[str], then: Callable[[], None]) -> None:
        """Write those of the named files in a thread whose values have changed.

        ``then`` is called after the write, even if it failed, or at once if nothing has changed. After `close`,
        the call does nothing.
        """
        names = tuple(names)
        if self._closed:
            return
        if self._is_writing:
            if (names, then) not in self._to_write:
                self._to_write.append((names, then))
            return
        if HIGH_WATERMARKS in names:
            self._note_high_watermarks()
        changed = {name: self._files[name] for name in names if self._files[name].changed}
        if not changed:
            then()
            return

        def done(future: asyncio.Future[None]) -> None:
            error = None if future.cancelled() else future.exception()
            if error is not None:
                for checkpoint in changed.values():
                    checkpoint.changed = True
                log_events.error("checkpoints could not be written", reason=str(error))
            self._is_writing = False
            then()
            while self._to_write and not self._is_writing:
                self.write(*self._to_write.pop(0))

        self._is_writing = True
        rows = {name: checkpoint.rows() for name, checkpoint in changed.items()}
        self._in_background(partial(self._write_rows, rows)).add_done_callback(done)

    def write_all(self, then: Callable[[], None]) -> None:
        self.write(tuple(self._files), then)

    def write_at_the_end(self) -> None:
        """Write all three checkpoint files in the caller's thread, after a clean stop."""
        self._write_rows({name: checkpoint.rows() for name, checkpoint in self._files.items()})

    def close(self) -> None:
        """Start no further write of a checkpoint file."""
        self._closed = True

    def _note_high_watermarks(self) -> None:
        moved, self._high_watermarks_moved = self._high_watermarks_moved, {}
        for partition in moved:
            partition.high_watermark_moved = False
            key = (partition.topic, partition.index)
            self._files[HIGH_WATERMARKS].set(key, partition.high_watermark)

    def _write_rows(self, rows: dict[str, list[bytes]]) -> None:
        for name, each in rows.items():
            write_rows(self._directory.path / name, each)


def _read(directory: LogDirectory, name: str) -> Mapping[PartitionKey, int]:
    """Read the rows of a checkpoint file. Empty if the file is invalid: as in Kafka, recovery then starts at offset 0."""
    try:
        return directory.read_checkpoint(name)
    except StorageError as error:
        log_events.warning("checkpoint not usable, treated as empty", file=error.path, reason=str(error))
        return {}


def _nothing() -> None:
    """Callback for a write that no caller waits for."""
