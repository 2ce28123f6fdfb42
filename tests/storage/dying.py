"""A simulation of a process that is killed at one of its system calls."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

from storage import files


class Killed(BaseException):
    """Raised at the system call where the process is killed. The class is not an Exception, so no error handler catches
    it."""


class Dying(files.System):
    """A ``files.System`` whose process is killed after ``calls`` system calls. If the process is killed in a write to a log,
    the first ``torn`` bytes are written.
    """

    def __init__(self, calls: int, torn: int) -> None:
        self._calls = calls
        self._torn = torn

    def __getattribute__(self, name: str) -> Any:
        call = super().__getattribute__(name)
        if name.startswith("_"):
            return call

        def passing(*arguments: Any, **named: Any) -> Any:
            self._calls -= 1
            if self._calls >= 0:
                return call(*arguments, **named)
            if name == "pwritev" and self._calls == -1:
                fd, chunks, position = arguments
                _write_part(fd, chunks, position, self._torn)
            raise Killed(name)

        return passing


def _write_part(fd: int, chunks: Sequence[bytes], position: int, length: int) -> None:
    os.pwrite(fd, b"".join(chunks)[:length], position)


def survived(work: Callable[[], object], calls: int, torn: int = 0) -> bool:
    """Run ``work`` with a ``Dying`` system. True if it ended before the process was killed."""
    before = files.use_system(Dying(calls, torn))
    try:
        with contextlib.suppress(Killed):
            work()
            return True
        return False
    finally:
        files.use_system(before)
