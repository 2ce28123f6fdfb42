"""What a read of a partition comes to."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.errors import ErrorCode
from protocol.named_tuple import NamedTuple
from protocol.slotted import slotted


class ReadResult(NamedTuple):
    """Bytes for a Fetch: whole batches but for a possibly cut last one, and the offsets they were read under."""

    error: ErrorCode
    records: bytes = b""
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) in marker order; None for read_uncommitted."""


@slotted(frozen=True)
class TimestampOffset:
    """An answer of ListOffsets; offset and timestamp -1 when there is none."""

    error: ErrorCode
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1
