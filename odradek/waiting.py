"""Wait for a broker whose clock may be advanced during the wait."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Final

from odradek.deadlines import stretched

WAIT_S: Final = stretched(10.0)
_SLICE_MS: Final = 20_000


def slices_ms(timeout_s: float) -> Iterator[int]:
    """Yield the timeouts in ms of consecutive calls until ``timeout_s`` of real time has passed; the last one is 0.

    The broker measures each wait by its own clock, which a test may advance. This function measures real time.
    """
    deadline = time.monotonic() + timeout_s
    left_ms = -1
    while left_ms:
        left_ms = max(0, round((deadline - time.monotonic()) * 1000))
        yield min(left_ms, _SLICE_MS)


def hint_of_coroutine(call: str) -> str:
    """Advice to await ``call`` as a coroutine, for the end of a timeout error; empty without a running event loop."""
    asyncio = sys.modules.get("asyncio")
    try:
        if asyncio is not None:
            asyncio.get_running_loop()
            return f"; the call blocked the event loop: in a coroutine, use `await {call}_async(...)`"
    except RuntimeError:
        pass
    return ""
