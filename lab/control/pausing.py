"""A pause of a call."""

from __future__ import annotations

import asyncio

from broker.clock import Domain, SystemClock


async def pause(pause_ms: float) -> None:
    """Pause in real time: an hour that the clock is advanced by is not an hour of pauses."""
    over = asyncio.Event()
    timer = SystemClock().call_later_ms(pause_ms, over.set, Domain.REQUESTS)
    try:
        await over.wait()
    finally:
        timer.cancel()
