"""The compiler, as this package uses it.

What it makes is kept on the disk where there is a place for it: beside the module, or in the user's cache. An executor may
have neither, and compiles for itself then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any]) -> Any:
    """Compiled when it is first called, and run without the interpreter's lock."""
    return _compiled(function, "never")


def inlined(function: Callable[..., Any]) -> Any:
    """Compiled into those compiled functions that call it."""
    return _compiled(function, "always")


def _compiled(function: Callable[..., Any], inline: str) -> Any:
    jit: Any = njit
    try:
        return jit(cache=True, nogil=True, inline=inline)(function)
    except RuntimeError:
        return jit(nogil=True, inline=inline)(function)
