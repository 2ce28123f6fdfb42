"""Callbacks that wait for an offset, ordered by offset (Kafka: purgatory)."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from protocol.errors import NONE, ErrorCode

Callback = Callable[[ErrorCode], object]


class OffsetPurgatory:
    """Calls each callback once: when its offset is reached, or with an error if the offset will never be reached."""

    __slots__ = ("_arrivals", "pending")

    def __init__(self) -> None:
        self.pending: list[tuple[int, int, Callback]] = []
        """Heap of (offset, sequence number, callback). Other modules only test whether it is empty."""
        self._arrivals = count()

    def add(self, end_offset: int, callback: Callback) -> None:
        heappush(self.pending, (end_offset, next(self._arrivals), callback))

    def release(self, reached_offset: int, verdict: ErrorCode = NONE) -> None:
        """Call the callbacks whose offset is reached, with ``verdict``. A callback may add further callbacks."""
        while self.pending and self.pending[0][0] <= reached_offset:
            heappop(self.pending)[2](verdict)

    def dismiss(self, error: ErrorCode) -> None:
        """Call all callbacks with ``error``, because their offsets will not be reached."""
        while self.pending:
            heappop(self.pending)[2](error)
