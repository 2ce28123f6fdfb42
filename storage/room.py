"""Bounds within which a batch surely fits into the active segment, so that an append only compares a few numbers."""

from __future__ import annotations

from typing import Final, Self

from storage.config import LogConfig
from storage.segment import Segment

RELATIVE_OFFSET_MAX: Final = 2**31 - 1
"""Largest offset relative to a segment's base: indexes have 32 bits for it."""
TIMESTAMP_MAX_MS: Final = 2**63 - 1
"""Largest 64-bit timestamp in milliseconds. The sum of a timestamp and ``segment.ms`` is limited to this value."""


class Room:
    """Bounds for a batch to be appended without rolling. Beyond any of these bounds the log calls `_must_roll` (ADR 23)."""

    __slots__ = ("bytes", "config", "last_offset", "leader_epoch", "segment", "timestamp_ms")

    def __init__(
        self,
        segment: Segment,
        config: LogConfig | None,
        bytes: int,
        timestamp_ms: int,
        last_offset: int,
        leader_epoch: int,
    ) -> None:
        self.segment = segment
        self.config = config
        """The log's settings from which the bounds were computed."""
        self.bytes = bytes
        """Largest size of the segment, with the new batch."""
        self.timestamp_ms = timestamp_ms
        self.last_offset = last_offset
        self.leader_epoch = leader_epoch
        """The newest leader epoch of the log."""

    @classmethod
    def of(cls, segment: Segment, config: LogConfig, leader_epoch: int) -> Self:
        """The bounds within which `Log._must_roll` certainly returns False. If the segment has no batch, or its first batch
        has no timestamp, no batch is within the bounds.
        """
        if segment.size == 0 or (first_ms := segment.first_timestamp_ms) < 0:
            return cls(segment, None, 0, 0, 0, leader_epoch)
        lasts_ms = min(
            config.segment_ms,
            config.max_compaction_lag_ms if config.compact else config.segment_ms,
            TIMESTAMP_MAX_MS - first_ms,
        )
        return cls(
            segment,
            config,
            min(config.segment_bytes, segment.bytes_until_index_is_full(config.segment_index_bytes)),
            first_ms + lasts_ms - segment.jitter_ms,
            segment.base_offset + RELATIVE_OFFSET_MAX,
            leader_epoch,
        )
