"""Spare file descriptors: kept open, so that a log's file can be opened even when the process has no other descriptor left.

EMFILE and ENFILE do not mean that the disk fails. The limit covers files and sockets together, and a partition must not go
offline because clients use up the descriptors. Code that opens a file only briefly refills the spare descriptors when it
closes the file.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

SPARE_DESCRIPTORS: Final = 16
NONE_LEFT: Final = (errno.EMFILE, errno.ENFILE)

T = TypeVar("T")


class Spares:
    """Spare file descriptors of a process, which all threads may use."""

    def __init__(self, count: int = 0) -> None:
        self.count = count
        """Number of descriptors to keep open; 0 until the broker sets it at its start."""
        self._held: list[int] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def open(self, call: Callable[..., int], path: object, flags: int, mode: int = 0o777) -> int:
        """Call ``call`` (``os.open`` or a substitute) and return the descriptor.

        If no descriptor is left, a spare one is closed and ``call`` is called again, until it succeeds or no spare
        is left.
        """
        return self._call(call, path, flags, mode)

    def _call(self, call: Callable[..., T], *arguments: object) -> T:
        try:
            return call(*arguments)
        except OSError as error:
            if error.errno not in NONE_LEFT:
                raise
            failure = error
        # Another thread, or a socket, may take the freed descriptor first.
        while self._set_one_free():
            try:
                return call(*arguments)
            except OSError as error:
                if error.errno not in NONE_LEFT:
                    raise
        raise failure

    def entries(self, path: Path | str) -> list[os.DirEntry[str]]:
        """Entries of a folder. If the process has no descriptor left to list it, a spare one is used."""
        try:
            with self._call(os.scandir, path) as found:
                return list(found)
        finally:
            self._take_back()

    def close(self, fd: int) -> None:
        """Close a file, and refill the spare descriptors."""
        os.close(fd)
        self._take_back()

    def _take_back(self) -> None:
        if len(self._held) < self.count:
            self.fill()

    def fill(self) -> None:
        """Open descriptors until there are ``count``, or no more can be opened."""
        with self._lock:
            while len(self._held) < self.count:
                try:
                    self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
                except OSError:
                    return

    def drop(self) -> None:
        """Close all spare descriptors."""
        self.count = 0
        while self._set_one_free():
            pass

    def _set_one_free(self) -> bool:
        with self._lock:
            if not self._held:
                return False
            os.close(self._held.pop())
            return True


SPARES: Final = Spares()
"""The spare descriptors of this process."""
