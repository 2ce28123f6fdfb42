"""Lets long pieces of work that no one may cut into slices have turns of the loop that lie apart."""

from __future__ import annotations

import asyncio


class TurnsApart:
    """One piece of work in a turn of the loop; others have the next turn."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def turn(self) -> None:
        """Return in a turn in which no other one has returned."""
        await self._lock.acquire()
        asyncio.get_running_loop().call_soon(self._lock.release)
