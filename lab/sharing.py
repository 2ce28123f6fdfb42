"""Lets the event loop run promptly while a thread does long work: the thread yields the interpreter after half a
millisecond."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SWITCH_S: Final = 0.000_5
"""Interpreter switch interval while a thread works. Python's default is 5 ms."""

_LOCK = threading.Lock()
_usual: list[float] = []
"""The interpreter's original switch interval, repeated for each thread that is in `loop_goes_first` now."""


@contextmanager
def loop_goes_first() -> Iterator[None]:
    """Context manager for work in a thread: the event loop gets the GIL within 0.5 ms, unless a C call keeps it."""
    with _LOCK:
        _usual.append(_usual[0] if _usual else sys.getswitchinterval())
        sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        with _LOCK:
            before = _usual.pop()
            if not _usual:
                sys.setswitchinterval(before)
