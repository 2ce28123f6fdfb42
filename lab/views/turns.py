"""Splits a walk over many elements into turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")


async def in_turns(elements: Iterable[T], per_turn: int) -> AsyncIterator[T]:
    """Yield the elements; after each ``per_turn`` of them let the event loop run other tasks."""
    for number, element in enumerate(elements, 1):
        yield element
        if number % per_turn == 0:
            await asyncio.sleep(0)
