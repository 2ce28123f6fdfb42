"""The results of reading a partition."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.errors import ErrorCode
from protocol.named_tuple import NamedTuple
from protocol.slotted import slotted


class ReadResult(NamedTuple):
    """The batches for a Fetch response (the last may be incomplete), and the offsets at the time of the read."""

    error: ErrorCode
    records: bytes = b""
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) of aborted transactions, in the order of their markers; None for read_uncommitted."""


@slotted(frozen=True)
class TimestampOffset:
    """The result of ListOffsets for a partition; offset and timestamp are -1 if no record was found."""

    error: ErrorCode
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1
