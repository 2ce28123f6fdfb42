"""Waits for something that other tasks of the same event loop do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object]) -> None:
    """Yield to the event loop until the condition is true. If the condition never becomes true, the test's timeout fails the
    test."""
    for _ in iter(lambda: bool(condition()), True):
        await asyncio.sleep(0)
