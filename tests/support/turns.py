"""Waiting for something that other tasks of the same loop bring about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object]) -> None:
    """Let the loop turn until it has come about. What never does ends with the time limit of the test."""
    for _ in iter(lambda: bool(condition()), True):
        await asyncio.sleep(0)
