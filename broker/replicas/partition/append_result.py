"""What an append to a partition answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.errors import ErrorCode
from protocol.named_tuple import NamedTuple


class AppendResult(NamedTuple):
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


GONE: Final = AppendResult(ErrorCode.not_leader_or_follower)
"""The replica is no more: its node was killed, the last time at ``log.write``, or its topic was deleted."""
