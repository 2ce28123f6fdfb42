"""Which part of a log may be compacted, whether that is worth it, and when to check again (`LogCleanerManager`).

Writes nothing, and looks into a segment only for the first record's time, and a file's age where its records have none.
"""

from __future__ import annotations

from protocol.named_tuple import NamedTuple
from storage.config import NEVER
from storage.files import StorageError
from storage.log import Log
from storage.segment import Segment


class LogToClean(NamedTuple):
    """The part of a log that may be compacted now."""

    first_dirty_offset: int
    """Up to here an earlier pass came."""
    upper_bound: int
    """The base offset of the first segment that must be left alone."""
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """A record has waited for longer than ``max.compaction.lag.ms``."""
    ask_again_ms: int | None
    """When passing time alone may change the answer; None: only when something happens to the log."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_wanted(self, min_dirty_ratio: float) -> bool:
        """Tombstones and markers that are due do not count: they go when there is something dirty, as in Kafka."""
        return (self.overdue and self.dirty_bytes > 0) or self.dirty_ratio > min_dirty_ratio


def first_dirty_offset(log: Log, checkpoint: int | None) -> tuple[int, str | None]:
    """Where the uncompacted part begins, and why a checkpoint that says otherwise cannot be right."""
    start = log.log_start_offset
    if checkpoint is None:
        return start, None
    if checkpoint > log.log_end_offset:
        return start, f"it lies behind the log's end {log.log_end_offset}"
    if checkpoint < start:
        # With retention beside compaction that is how things go.
        return start, None if log.config.delete else f"it lies before the log's start {start}"
    return checkpoint, None


def compactable(log: Log, first_dirty: int, last_stable_offset: int, now_ms: int) -> LogToClean:
    """What may be compacted of a log; whole segments only."""
    segments = log.segments
    active = len(segments) - 1
    active_base = segments[active].base_offset
    dirty = log.segment_index(first_dirty)
    ask_again: list[int] = []
    bound = active_base
    if last_stable_offset < bound:
        bound = last_stable_offset
        ask_again.append(now_ms)
    lag_ms = max(log.config.min_compaction_lag_ms, 0)
    if lag_ms > 0:
        young = next((s for s in segments[dirty:active] if _largest_timestamp_ms(s) > now_ms - lag_ms), None)
        if young is not None:
            bound = min(bound, young.base_offset)
            ask_again.append(_largest_timestamp_ms(young) + lag_ms)
    # The segment that the bound lies in is left alone as a whole.
    end = log.segment_index(max(bound, first_dirty))
    overdue = False
    max_lag_ms = max(log.config.max_compaction_lag_ms, 0)
    if max_lag_ms < NEVER and first_dirty < active_base:
        first_ms = min((ms for s in segments[dirty:active] if (ms := s.first_timestamp_ms) > 0), default=None)
        if first_ms is not None:
            overdue = first_ms < now_ms - max_lag_ms
            ask_again.append(first_ms + max_lag_ms + 1)
    clean = dirty + (segments[dirty].base_offset < first_dirty)
    return LogToClean(
        first_dirty,
        segments[end].base_offset,
        log.sealed_bytes(0, min(clean, active)) + (segments[active].size if clean > active else 0),
        log.sealed_bytes(min(dirty, end), end),
        overdue,
        max(now_ms, min(ask_again)) if ask_again and first_dirty < active_base else None,
    )


def _largest_timestamp_ms(segment: Segment) -> int:
    if segment.max_timestamp_ms >= 0:
        return segment.max_timestamp_ms
    path = segment.path("log")
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except OSError as error:
        raise StorageError(path, error) from error
