"""Producer snapshots inside a segment: a recovery reads no more of a large segment than ``SNAPSHOT_BYTES`` again.

Kafka takes them where a segment is rolled and at a clean stop: after a kill it reads the whole active segment again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from storage.files import remove
from storage.segment import Segment, file_name

if TYPE_CHECKING:
    from broker.replicas.partition import Partition

SNAPSHOT_BYTES: Final = 32 * 1024 * 1024
"""How much of a log a recovery may have to read again for its producers."""
SNAPSHOTS_KEPT: Final = 2
"""Inside of a segment, for the recovery point that is checkpointed and for the one that is not yet."""


class ProducerSnapshots:
    """Of each partition: where in which segment the last snapshot was taken, and those that are kept."""

    def __init__(self) -> None:
        self._last: dict[Partition, tuple[Segment, int]] = {}
        self._kept: dict[Partition, deque[int]] = {}

    def forget(self, partition: Partition) -> None:
        """Its log was truncated or removed, the snapshots with it."""
        self._last.pop(partition, None)
        self._kept.pop(partition, None)

    def take_if_due(self, partition: Partition) -> None:
        """Take one at the log end, where the recovery point is about to be, if the last one is far behind.

        ``StorageError`` when an old one cannot be removed.
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
