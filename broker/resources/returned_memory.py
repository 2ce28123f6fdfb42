"""Returns the memory of closed TLS connections to the operating system.

A handshake allocates about 50 KB in hundreds of pieces, between uvloop's buffers of 256 KiB. When they are freed, pages
become free that the allocator does not return: a thousand clients that connect and disconnect would leave 50 MB allocated
forever, and the next thousand another 50 MB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

ENDS: Final = 256
"""Number of closed TLS connections after which malloc_trim is called. They have used about 12 MB; the call takes a
millisecond or two."""


class ReturnedMemory:
    """A callable that must be called for each closed TLS connection; every ``ENDS``-th call trims the heap."""

    def __init__(self, give_back: Callable[[], object] | None = None) -> None:
        self._give_back = give_back or _malloc_trim()
        self._ends = 0

    def __call__(self) -> None:
        self._ends += 1
        if self._ends >= ENDS:
            self._ends = 0
            self._give_back()


def _malloc_trim() -> Callable[[], object]:
    """Return glibc's ``malloc_trim``; with other allocators, a function that does nothing."""
    try:
        import ctypes

        trim = ctypes.CDLL(None).malloc_trim
    except (ImportError, OSError, AttributeError):
        return int
    return lambda: trim(0)
