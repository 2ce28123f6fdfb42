"""Waiting for a broker whose clock may be advanced meanwhile."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Final

from odradek.deadlines import stretched

WAIT_S: Final = stretched(10.0)
_SLICE_MS: Final = 20_000


def slices_ms(timeout_s: float) -> Iterator[int]:
    """The timeouts in ms of one call after the other until the time is over; the last one is 0.

    The broker waits by a clock that a test may advance; this side measures how long it was.
    """
    deadline = time.monotonic() + timeout_s
    left_ms = -1
    while left_ms:
        left_ms = max(0, round((deadline - time.monotonic()) * 1000))
        yield min(left_ms, _SLICE_MS)


def hint_of_coroutine(call: str) -> str:
    """For the error of a call that waited in vain: a coroutine that makes it stops the clients on its event loop."""
    asyncio = sys.modules.get("asyncio")
    try:
        if asyncio is not None:
            asyncio.get_running_loop()
            return f"; the event loop stood still meanwhile: in a coroutine it is `await {call}_async(...)`"
    except RuntimeError:
        pass
    return ""
