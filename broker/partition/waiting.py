"""Those who wait for an offset to be reached, in the order of the offsets."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from protocol.errors import ErrorCode

Told = Callable[[ErrorCode], object]


class Waiting:
    """Whoever waits is told once: that it has come so far, or why it never will."""

    __slots__ = ("_arrivals", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Told]] = []
        self._arrivals = count()

    def add(self, end_offset: int, told: Told) -> None:
        heappush(self._heap, (end_offset, next(self._arrivals), told))

    def release(self, reached_offset: int, verdict: ErrorCode = ErrorCode.none) -> None:
        """Tell those whose offset is reached. Who is told may add himself anew, or others."""
        while self._heap and self._heap[0][0] <= reached_offset:
            heappop(self._heap)[2](verdict)

    def dismiss(self, error: ErrorCode) -> None:
        """Nothing more will be reached."""
        while self._heap:
            heappop(self._heap)[2](error)
