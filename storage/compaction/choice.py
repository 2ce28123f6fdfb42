"""Decides which part of a log may be compacted, whether to compact it now, and when to check again (`LogCleanerManager`).

Writes nothing. Reads from a segment only the first batch's timestamp, or the file's modification time if the records
have no timestamps.
"""

from __future__ import annotations

from protocol.named_tuple import NamedTuple
from storage.config import NEVER
from storage.files import StorageError
from storage.log import Log
from storage.segment import Segment


class LogToClean(NamedTuple):
    """The part of a log that may be compacted now, and the sizes from which `is_wanted` decides whether to compact it."""

    first_dirty_offset: int
    """Offset up to which an earlier pass has compacted the log."""
    upper_bound: int
    """Base offset of the first segment that may not be compacted."""
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """Whether a record has been uncompacted for longer than ``max.compaction.lag.ms``."""
    ask_again_ms: int | None
    """Time at which `compactable` may return another result for the same log; None if only a change of the log matters."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_wanted(self, min_dirty_ratio: float) -> bool:
        """Whether to compact the log now.

        Tombstones and markers past their delete horizon are no reason to compact, as in Kafka. The next pass removes them.
        """
        return (self.overdue and self.dirty_bytes > 0) or self.dirty_ratio > min_dirty_ratio


def first_dirty_offset(log: Log, checkpoint: int | None) -> tuple[int, str | None]:
    """Return the offset where the uncompacted part begins, and the reason why ``checkpoint`` was rejected.

    ``checkpoint`` is the partition's offset in the cleaner checkpoint, if it has one. The reason is None if the
    checkpoint was not rejected.
    """
    start = log.log_start_offset
    if checkpoint is None:
        return start, None
    if checkpoint > log.log_end_offset:
        return start, f"it lies behind the log's end {log.log_end_offset}"
    if checkpoint < start:
        # With cleanup.policy=compact,delete, retention moves the log start past the checkpoint.
        return start, None if log.config.delete else f"it lies before the log's start {start}"
    return checkpoint, None


def compactable(log: Log, first_dirty: int, last_stable_offset: int, now_ms: int) -> LogToClean:
    """The part of a log that may be compacted. It consists of whole segments."""
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
        # The segment that contains the bound is not compacted at all.
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
