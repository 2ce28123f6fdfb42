"""A subscriber that receives each exchange when it ends. A slow subscriber misses some, and delays no request."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Self

from broker.clock import stopwatch_us
from lab.trace.exchange import Exchange
from lab.trace.filters import TraceFilter
from lab.trace.ring import TraceLimits, bytes_of


class Subscription:
    """An asynchronous iterator over exchanges. It ends after ``close``."""

    def __init__(
        self,
        wanted: TraceFilter,
        limits: TraceLimits,
        on_close: Callable[[Subscription], object],
        per_second: int | None = None,
        now_us: Callable[[], int] = stopwatch_us,
    ) -> None:
        """``per_second``: largest number of exchanges in one second. Further ones are dropped."""
        self._wanted = wanted
        self._per_second = per_second
        self._now_us = now_us
        self._second = 0
        self._in_second = 0
        self._limits = limits
        self._on_close = on_close
        self._waiting: deque[tuple[Exchange, int]] = deque()
        self._bytes = 0
        self._wake: asyncio.Future[None] | None = None
        self._closed = False
        self.dropped = 0
        """Number of exchanges dropped so far, because too many were queued, or came in one second."""

    def offer(self, exchange: Exchange) -> None:
        """Queue an exchange if it matches the filter, or drop it at a limit.

        The trace calls this method when the exchange has an outcome, and when a rule holds the request.
        """
        if not self._wanted.matches(exchange):
            return
        size = bytes_of(exchange)
        if self._per_second is not None and not self._may_take(self._per_second):
            self.dropped += 1
            return
        if (
            len(self._waiting) >= self._limits.follow_entries_max
            or self._bytes + size > self._limits.follow_bytes_max
        ):
            self.dropped += 1
            return
        self._waiting.append((exchange, size))
        self._bytes += size
        self._wake_up()

    def _may_take(self, per_second: int) -> bool:
        second = self._now_us() // 1_000_000
        if second != self._second:
            self._second, self._in_second = second, 0
        self._in_second += 1
        return self._in_second <= per_second

    def take(self) -> Exchange | None:
        """Return the next queued exchange without waiting; None if none is queued."""
        if not self._waiting:
            return None
        exchange, size = self._waiting.popleft()
        self._bytes -= size
        return exchange

    def close(self) -> None:
        """End the subscription. Queued exchanges can still be read. A second call does nothing."""
        if not self._closed:
            self._closed = True
            self._on_close(self)
            self._wake_up()

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Exchange:
        while True:
            exchange = self.take()
            if exchange is not None:
                return exchange
            if self._closed:
                raise StopAsyncIteration
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
