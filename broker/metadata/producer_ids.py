"""Allocation of producer ids from blocks of a thousand (KIP-730).

A node claims its first block when a client first needs an id. A block may be used once its record is durable. When the
process ends, the unused ids of a block are lost. So no id is ever allocated twice, however the process ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

BLOCK_SIZE: Final = 1000
PREFETCH_FROM: Final = 900
"""Number of used ids of a block after which the next block is claimed (as in Kafka, 90 %)."""

PRODUCER_ID_MAX: Final = (1 << 63) - 1


class ProducerIdsExhausted(Exception):
    """All producer ids below 2^63 are allocated."""


class ProducerIds:
    """The producer ids of one node. ``claim`` makes the next block durable and returns its first id."""

    def __init__(self, claim: Callable[[], Awaitable[int]]) -> None:
        self._claim = claim
        self._next = 0
        self._end = 0
        self._following: tuple[int, int] | None = None
        self._claiming: asyncio.Task[None] | None = None

    def allocate(self) -> int | Awaitable[int]:
        """Return the next id, or an awaitable if the next block is not durable yet."""
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
            # Many callers may wait for one block. If the block has too few ids, the others wait for the next block.
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
    """Close a coroutine that will not be awaited, so that Python does not print a warning."""
    close = getattr(unused, "close", None)
    if close is not None:
        close()


def _retrieve(task: asyncio.Task[None]) -> None:
    """Retrieve the error of a failed claim, so that asyncio does not log it.

    The callers that wait for the claim get the error. The next caller that finds no id claims a block again.
    """
    if not task.cancelled():
        task.exception()
