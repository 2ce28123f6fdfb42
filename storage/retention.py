"""Decides which of a log's oldest segments to delete, and when to check again (`UnifiedLog.deleteOldSegments`).

Pure: segments and settings in, numbers out. Three rules apply, in Kafka's order. Each rule deletes segments, from the
oldest on, while its condition holds: all offsets of the segment are below the log start; the log without the segment
still has ``retention.bytes``; the segment's newest record is older than ``retention.ms``. A segment that ends above the
high watermark is never deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Generic, Protocol, TypeVar

from protocol.named_tuple import NamedTuple
from protocol.slotted import slotted
from storage.config import LogConfig


class Reason(Enum):
    """The rule by which segments are deleted, as text for the log."""

    LOG_START = "log start offset"
    SIZE = "retention.bytes"
    TIME = "retention.ms"


class AnySegment(Protocol):
    """The properties of a segment that the retention rules need."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int:
        """Size of the ``.log`` file in bytes."""
        ...

    @property
    def max_timestamp_ms(self) -> int:
        """Largest timestamp of the segment's records, -1 if none has one."""
        ...


S = TypeVar("S", bound=AnySegment)


class Expired(NamedTuple):
    """How many segments to delete for one reason: ``segments`` segments with ``size`` bytes in total. They are the oldest
    ones, without those of the preceding `Expired` objects.
    """

    reason: Reason
    segments: int
    size: int


@slotted(frozen=True)
class Ageing(Generic[S]):
    """The values of a log on which retention depends. The last segment is the active one."""

    segments: Sequence[S]
    size: Callable[[], int]
    """Returns the bytes of all segments. Called only if ``retention.bytes`` is set."""
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    modified_ms: Callable[[S], int]
    """Returns when a segment was last modified. Called only if its records have no timestamps."""

    def expired(self, config: LogConfig, now_ms: int, limit: int) -> list[Expired]:
        """Segments to delete now, from the oldest on, at most ``limit``. If these are all segments, the log must roll first.

        If ``cleanup.policy`` has no ``delete``, these are only the segments below the log start (DeleteRecords).
        """
        found: list[Expired] = []
        first = self._take(found, Reason.LOG_START, 0, limit, self._is_below_log_start)
        if config.delete and config.retention_bytes >= 0:
            spare = self.size() - sum(each.size for each in found) - config.retention_bytes

            def too_much(index: int) -> bool:
                nonlocal spare
                spare -= self.segments[index].size
                return spare >= 0

            first = self._take(found, Reason.SIZE, first, limit, too_much)
        if config.delete and config.retention_ms >= 0:
            oldest_ms = now_ms - config.retention_ms
            self._take(found, Reason.TIME, first, limit, lambda index: self._time_of(index) < oldest_ms)
        return found

    def due_ms(self, config: LogConfig) -> int | None:
        """Time at which the oldest segment expires; None if it never does. Later records may postpone it."""
        if not config.delete or config.retention_ms < 0 or self._is_empty_end(0):
            return None
        return self._time_of(0) + config.retention_ms + 1

    def _take(
        self, found: list[Expired], reason: Reason, first: int, limit: int, goes: Callable[[int], bool]
    ) -> int:
        """Append to ``found`` an `Expired` for the segments from ``first`` on that the rule ``goes`` deletes.

        Appends nothing if there are no such segments. Returns the index of the first segment that stays.
        """
        index, size = first, 0
        end = min(limit, len(self.segments))
        while index < end and self._may_go(index) and goes(index):
            size += self.segments[index].size
            index += 1
        if index > first:
            found.append(Expired(reason, index - first, size))
        return index

    def _may_go(self, index: int) -> bool:
        return self._end_of(index) <= self.high_watermark and not self._is_empty_end(index)

    def _is_empty_end(self, index: int) -> bool:
        """Whether the segment is active and has no records. Such a segment stays: a new one would only replace it."""
        return index >= len(self.segments) - 1 and (not self.segments or self.segments[index].size == 0)

    def _end_of(self, index: int) -> int:
        """End offset of a segment (exclusive)."""
        following = index + 1
        return self.segments[following].base_offset if following < len(self.segments) else self.log_end_offset

    def _is_below_log_start(self, index: int) -> bool:
        return index + 1 < len(self.segments) and self._end_of(index) <= self.log_start_offset

    def _time_of(self, index: int) -> int:
        segment = self.segments[index]
        timestamp_ms = segment.max_timestamp_ms
        return timestamp_ms if timestamp_ms >= 0 else self.modified_ms(segment)
