"""Producer snapshots inside large segments, so that a recovery reads at most about ``SNAPSHOT_BYTES`` of records again.

Kafka takes snapshots when a segment is rolled and at a clean stop, and so reads the whole active segment after a kill.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from storage.files import remove
from storage.segment import Segment, file_name

if TYPE_CHECKING:
    from broker.replicas.partition import Partition

SNAPSHOT_BYTES: Final = 32 * 1024 * 1024
"""Number of bytes by which a log grows before the next producer snapshot is taken."""
SNAPSHOTS_KEPT: Final = 2
"""Number of producer snapshots kept inside a segment: for the checkpointed and for the next recovery point."""


class ProducerSnapshots:
    """For each partition, segment and position of the last snapshot, and the offsets of the kept snapshots."""

    def __init__(self) -> None:
        self._last: dict[Partition, tuple[Segment, int]] = {}
        self._kept: dict[Partition, deque[int]] = {}

    def forget(self, partition: Partition) -> None:
        """Forget the snapshots of a partition whose log was truncated or removed: their files were deleted, too."""
        self._last.pop(partition, None)
        self._kept.pop(partition, None)

    def take_if_due(self, partition: Partition) -> None:
        """Take a snapshot at the log end if the active segment has grown by ``SNAPSHOT_BYTES`` since the last one.

        Raises ``StorageError`` if an old snapshot cannot be removed.
        """
        log = partition.log
        active = log.active
        segment, size = self._last.get(partition, (active, 0))
        if active.size - (size if segment is active else 0) < SNAPSHOT_BYTES:
            return
        self._last[partition] = active, active.size
        before = log.last_snapshot_offset
        log.try_snapshot()
        if log.last_snapshot_offset == before:
            return
        kept = self._kept.setdefault(partition, deque())
        kept.append(log.log_end_offset)
        if len(kept) > SNAPSHOTS_KEPT:
            offset = kept.popleft()
            if log.segments[log.segment_index(offset)].base_offset != offset:
                remove(log.directory / file_name(offset, "snapshot"))
