"""Turns of the loop, for walks over many things."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")


async def in_turns(elements: Iterable[T], per_turn: int) -> AsyncIterator[T]:
    """The elements, and after so many of them a turn for everything else."""
    for number, element in enumerate(elements, 1):
        yield element
        if number % per_turn == 0:
            await asyncio.sleep(0)
