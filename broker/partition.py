"""A partition's replica on this node, with the rules its leader keeps.

The log knows bytes and offsets; this class knows who leads, what is committed (the high watermark), who waits for it,
and which producers were checked with their coordinator. Nothing here waits: callers pass callbacks or watch.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class AppendResult:
    """What became of one batch.

    ``base_offset`` and ``last_offset`` are -1 on error; ``log_start_offset`` is -1 where Kafka sends -1 with the error.
    """

    error: ErrorCode
    base_offset: int = -1
    last_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    duplicate: bool = False
    message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Bytes for a Fetch: whole batches but for a possibly cut last one, and the offsets they were read under."""

    error: ErrorCode
    records: bytes = b""
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) in marker order; None for read_uncommitted."""
    diverging: tuple[int, int] | None = None
    """(epoch, end offset) where the reader's log has left ours (KIP-320)."""


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """An answer of ListOffsets; offset and timestamp -1 when there is none."""

    error: ErrorCode
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1


class Partition:
    """One replica. Attributes are read-only to others.

    topic, index, topic_id, leader_id, leader_epoch, replicas, isr.
    """

    topic: str
    index: int
    topic_id: uuid.UUID
    leader_id: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...

    def append(self, records: bytes, *, required_acks: int, guard: object | None = None) -> AppendResult:
        """Append what a client sent (one batch): every check of LogValidator and of the producer state applies."""
        ...

    def append_internal(self, records: bytes) -> AppendResult:
        """Append a coordinator's batch (its own topic): offsets are assigned, sequences are not checked."""
        ...

    def on_committed(self, end_offset: int, callback: Callable[[ErrorCode], None]) -> None:
        """Call back once the high watermark has reached ``end_offset``: at once if it has, with an error if it never will."""
        ...

    def read(
        self, offset: int, max_bytes: int, *, read_committed: bool, whole_first_batch: bool
    ) -> ReadResult: ...

    def watch(self, callback: Callable[[], None]) -> None:
        """Call back, until unwatched, whenever the high watermark, the last stable offset, the log start or the leader changes."""
        ...

    def unwatch(self, callback: Callable[[], None]) -> None: ...
