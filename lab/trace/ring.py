"""A buffer of the newest exchanges, within limits. A new exchange displaces the oldest ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from lab.trace.exchange import Exchange
from protocol.slotted import slotted

EXCHANGE_BYTES: Final = 600
"""Approximate memory of an exchange without its frames."""


@slotted(frozen=True)
class TraceLimits:
    """Limits of the trace's memory."""

    entries_max: int = 50_000
    bytes_max: int = 64 * 1024 * 1024
    """Limit of the bytes of all exchanges in the ring: the frames, plus ``EXCHANGE_BYTES`` for each exchange."""
    frame_bytes_max: int = 2 * 1024 * 1024
    """Limit of the bytes of one request or response. A larger frame is cut. (Clients send up to 1 MiB by default.)"""
    head_bytes: int = 16 * 1024
    """Number of bytes that are kept of a frame that is cut."""
    follow_entries_max: int = 1000
    """Limit of the exchanges that wait for one follower. Further ones are dropped and counted."""
    follow_bytes_max: int = 8 * 1024 * 1024

    def cut(self, frame: bytes) -> bytes:
        """The beginning of a frame that is too large."""
        return frame[: min(self.head_bytes, self.frame_bytes_max)]


class Ring:
    """The newest exchanges, in the order of their arrival."""

    def __init__(self, limits: TraceLimits) -> None:
        self._limits = limits
        self._exchanges: deque[Exchange] = deque()
        self.bytes = 0
        self.pushed_out = 0
        """Number of exchanges displaced so far."""

    def __len__(self) -> int:
        return len(self._exchanges)

    def __iter__(self) -> Iterator[Exchange]:
        return iter(tuple(self._exchanges))

    @property
    def first(self) -> Exchange | None:
        return self._exchanges[0] if self._exchanges else None

    def add(self, exchange: Exchange) -> None:
        exchange.in_ring = True
        self._exchanges.append(exchange)
        self.bytes += bytes_of(exchange)
        self._make_room()

    def grow(self, exchange: Exchange, added_bytes: int) -> None:
        """Count ``added_bytes`` more for an exchange that is in the ring: the bytes of its response."""
        if exchange.in_ring:
            self.bytes += added_bytes
            self._make_room()

    def clear(self) -> None:
        for exchange in self._exchanges:
            exchange.in_ring = False
        self._exchanges.clear()
        self.bytes = 0

    def _make_room(self) -> None:
        limits = self._limits
        while self._exchanges and (
            len(self._exchanges) > limits.entries_max or self.bytes > limits.bytes_max
        ):
            oldest = self._exchanges.popleft()
            oldest.in_ring = False
            self.bytes -= bytes_of(oldest)
            self.pushed_out += 1


def bytes_of(exchange: Exchange) -> int:
    """Number of bytes that the ring counts for one exchange: its frames and ``EXCHANGE_BYTES``."""
    return EXCHANGE_BYTES + len(exchange.request) + len(exchange.answer or b"")
