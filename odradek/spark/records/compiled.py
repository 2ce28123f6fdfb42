"""The compiler, as this package uses it.

What it makes is kept on the disk, since compiling costs 4 CPU seconds and each Python worker of Spark would pay them again:
where numba keeps it by itself (``NUMBA_CACHE_DIR``, beside the module, in the user's cache), or, where none of these can be
written to, as for an executor's user in an image, in a directory of that user's own under the one for temporary files.
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
        # numba has found no place that it can write to.
        with _caching_in(private_directory(Path(tempfile.gettempdir()))), contextlib.suppress(RuntimeError):
            return jit(cache=True, nogil=True, inline=inline)(function)
    return jit(nogil=True, inline=inline)(function)


@contextlib.contextmanager
def _caching_in(directory: Path | None) -> Iterator[None]:
    """Functions that are declared meanwhile are cached there, if there is such a directory; others as before."""
    config: Any = numba.config
    before = config.CACHE_DIR
    if directory is not None:
        config.CACHE_DIR = str(directory)
    try:
        yield
    finally:
        config.CACHE_DIR = before


def private_directory(parent: Path) -> Path | None:
    """A directory that only this user can write to, the same for all of the user's processes; None if there cannot be one.

    What is cached is pickled code: another user's must not be loaded."""
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
