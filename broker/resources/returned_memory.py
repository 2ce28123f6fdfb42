"""What ended connections with TLS have freed goes back to the system.

A handshake takes some 50 KB from the allocator in hundreds of pieces, between buffers of 256 KiB of uvloop's. What is freed
of them leaves pages that are free, and that the allocator keeps: a thousand clients that connect and go would leave 50 MB
for ever, and the next thousand more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

ENDS: Final = 256
"""So many of them are some 12 MB, and a millisecond or two."""


class ReturnedMemory:
    """Call it for each connection that has ended."""

    def __init__(self, give_back: Callable[[], object] | None = None) -> None:
        self._give_back = give_back or _system_s()
        self._ends = 0

    def __call__(self) -> None:
        self._ends += 1
        if self._ends >= ENDS:
            self._ends = 0
            self._give_back()


def _system_s() -> Callable[[], object]:
    """That of glibc; other allocators have none, or do it by themselves."""
    try:
        import ctypes

        trim = ctypes.CDLL(None).malloc_trim
    except (ImportError, OSError, AttributeError):
        return int
    return lambda: trim(0)
