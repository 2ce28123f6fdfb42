"""Decorators for numba, with a cache of compiled code on the disk.

Compiling takes 4 CPU seconds, and without the cache each new Python worker of Spark would compile again. numba chooses the
place of the cache (``NUMBA_CACHE_DIR``, beside the module, or in the user's cache). If none of these is writable, as for an
executor's user in a container, the cache is in a private directory of the user below the directory for temporary files.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from numba import njit


def compiled(function: Callable[..., Any]) -> Any:
    """Decorator: compile ``function`` at its first call. The compiled function runs without the interpreter's lock."""
    return _compiled(function, "never")


def inlined(function: Callable[..., Any]) -> Any:
    """Decorator: inline ``function`` into each compiled function that calls it."""
    return _compiled(function, "always")


def _compiled(function: Callable[..., Any], inline: str) -> Any:
    jit: Any = njit
    try:
        return jit(cache=True, nogil=True, inline=inline)(function)
    except RuntimeError:
        # numba has found no writable directory for its cache.
        with _caching_in(private_directory(Path(tempfile.gettempdir()))), contextlib.suppress(RuntimeError):
            return jit(cache=True, nogil=True, inline=inline)(function)
    return jit(nogil=True, inline=inline)(function)


@contextlib.contextmanager
def _caching_in(directory: Path | None) -> Iterator[None]:
    """Context manager in which numba caches newly declared functions in ``directory``; with None it changes nothing."""
    config: Any = numba.config
    before = config.CACHE_DIR
    if directory is not None:
        config.CACHE_DIR = str(directory)
    try:
        yield
    finally:
        config.CACHE_DIR = before


def private_directory(parent: Path) -> Path | None:
    """A directory that only this user can write to, the same for all processes of the user; None if it cannot be created.

    The cache is pickled code, so a cache of another user must not be loaded."""
    if not hasattr(os, "getuid"):
        return None
    directory = parent / f"odradek-numba-{os.getuid()}"
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
    except OSError:
        return None
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return directory if private else None
