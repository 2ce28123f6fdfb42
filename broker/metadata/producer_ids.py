"""Producer ids, in blocks of a thousand (KIP-730).

A node asks for its first block when a client first asks the node for an id. A block belongs to this process from the
moment its record is durable; what is left of it when the process ends is thrown away. So no id is ever given out twice,
whatever way the process ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

BLOCK_SIZE: Final = 1000
PREFETCH_FROM: Final = 900
"""Ids of a block that are given out before the next block is asked for (Kafka: 90 %)."""

PRODUCER_ID_MAX: Final = (1 << 63) - 1


class ProducerIdsExhausted(Exception):
    """2^63 ids were not enough."""


class ProducerIds:
    """Gives out ids. ``claim`` makes the next block durable and returns its first id."""

    def __init__(self, claim: Callable[[], Awaitable[int]]) -> None:
        self._claim = claim
        self._next = 0
        self._end = 0
        self._following: tuple[int, int] | None = None
        self._claiming: asyncio.Task[None] | None = None

    def allocate(self) -> int | Awaitable[int]:
        """The next id; something to wait for only where the following block is not there yet."""
        if self._next == self._end and self._following is not None:
            (self._next, self._end), self._following = self._following, None
        if self._next == self._end:
            return self._allocate_later()
        producer_id = self._next
        self._next += 1
        if self._end - self._next <= BLOCK_SIZE - PREFETCH_FROM and self._following is None:
            self._start_claim()
        return producer_id

    async def _allocate_later(self) -> int:
        while True:
            # Many may wait for one block; more than a block's worth of them wait for the one after it as well.
            await asyncio.shield(self._start_claim())
            producer_id = self.allocate()
            if isinstance(producer_id, int):
                return producer_id
            _discard(producer_id)

    def _start_claim(self) -> asyncio.Task[None]:
        if self._claiming is None:
            self._claiming = asyncio.get_running_loop().create_task(self._claim_block())
            self._claiming.add_done_callback(_retrieve)
        return self._claiming

    async def _claim_block(self) -> None:
        try:
            first = await self._claim()
        finally:
            self._claiming = None
        block = (first, first + BLOCK_SIZE)
        if self._next == self._end:
            self._next, self._end = block
        else:
            self._following = block


def _discard(unused: Awaitable[int]) -> None:
    """Close a coroutine that will not be awaited, so that Python does not warn of it."""
    close = getattr(unused, "close", None)
    if close is not None:
        close()


def _retrieve(task: asyncio.Task[None]) -> None:
    """No caller waits for a prefetch: the next caller that runs out of ids tries again and gets the error."""
    if not task.cancelled():
        task.exception()
