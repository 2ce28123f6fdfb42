"""The result of an append to a partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.errors import ErrorCode
from protocol.named_tuple import NamedTuple


class AppendResult(NamedTuple):
    """The result of appending one batch.

    ``base_offset`` and ``last_offset`` are -1 on error; ``log_start_offset`` is -1 if Kafka sends -1 with the error.
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
"""Result if the log was closed: the node was killed (possibly during this append), or the topic was deleted."""
