"""Callbacks that wait for an offset to be reached, in the order of the offsets (Kafka: purgatory)."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from protocol.errors import NONE, ErrorCode

Callback = Callable[[ErrorCode], object]


class OffsetPurgatory:
    """Each callback is called once: when the offset is reached, or with the error why it never will be."""

    __slots__ = ("_arrivals", "pending")

    def __init__(self) -> None:
        self.pending: list[tuple[int, int, Callback]] = []
        """A heap; others only look whether there are any."""
        self._arrivals = count()

    def add(self, end_offset: int, callback: Callback) -> None:
        heappush(self.pending, (end_offset, next(self._arrivals), callback))

    def release(self, reached_offset: int, verdict: ErrorCode = NONE) -> None:
        """Call the callbacks whose offset is reached. A callback may add further callbacks."""
        while self.pending and self.pending[0][0] <= reached_offset:
            heappop(self.pending)[2](verdict)

    def dismiss(self, error: ErrorCode) -> None:
        """Nothing more will be reached."""
        while self.pending:
            heappop(self.pending)[2](error)
