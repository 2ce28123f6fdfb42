"""What the active segment surely takes, so that an append compares a few numbers instead of asking each rule of a roll."""

from __future__ import annotations

from typing import Final, Self

from storage.config import LogConfig
from storage.segment import Segment

RELATIVE_OFFSET_MAX: Final = 2**31 - 1
"""An index has offsets relative to its segment's, in 32 bits."""
TIMESTAMP_MAX_MS: Final = 2**63 - 1
"""Of a batch; ``segment.ms`` may be as large by itself, and a bound beyond it is no number of 64 bits."""


class Room:
    """What the active segment surely takes; beyond any of the bounds the log asks the full rule, `_must_roll` (ADR 23)."""

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
        """The settings that it was worked out with."""
        self.bytes = bytes
        """The size of the segment with the batch in it."""
        self.timestamp_ms = timestamp_ms
        self.last_offset = last_offset
        self.leader_epoch = leader_epoch
        """The newest that the log knows."""

    @classmethod
    def of(cls, segment: Segment, config: LogConfig, leader_epoch: int) -> Self:
        """Of `Log._must_roll`: the bounds of a segment with a first batch that has a timestamp; none of another."""
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
