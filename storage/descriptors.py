"""Spare file descriptors, kept open so that a log's file can still be opened when the process has no other left.

EMFILE and ENFILE say nothing about the disk. The limit is one for files and sockets together, and a partition must not fail
because clients have taken what was left. A caller that opens a file briefly gives the spare descriptor back at the close.
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
    """For all threads."""

    def __init__(self, count: int = 0) -> None:
        self.count = count
        """How many there are to be; none until the broker says so at its start."""
        self._held: list[int] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def open(self, call: Callable[..., int], path: object, flags: int, mode: int = 0o777) -> int:
        """``call``, which is ``os.open`` or stands for it, with a spare descriptor if there is no other."""
        return self._call(call, path, flags, mode)

    def _call(self, call: Callable[..., T], *arguments: object) -> T:
        try:
            return call(*arguments)
        except OSError as error:
            if error.errno not in NONE_LEFT:
                raise
            failure = error
        # Another thread, or a socket, may be quicker to take what was set free.
        while self._set_one_free():
            try:
                return call(*arguments)
            except OSError as error:
                if error.errno not in NONE_LEFT:
                    raise
        raise failure

    def entries(self, path: Path | str) -> list[os.DirEntry[str]]:
        """What a folder holds. To list it takes a descriptor, too: a spare one if there is no other."""
        try:
            with self._call(os.scandir, path) as found:
                return list(found)
        finally:
            self._take_back()

    def close(self, fd: int) -> None:
        """Close a file, and take back what was lent."""
        os.close(fd)
        self._take_back()

    def _take_back(self) -> None:
        if len(self._held) < self.count:
            self.fill()

    def fill(self) -> None:
        """Hold as many as there are to be, as far as that can be."""
        with self._lock:
            while len(self._held) < self.count:
                try:
                    self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
                except OSError:
                    return

    def drop(self) -> None:
        """Hold none any more."""
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
"""Of this process."""
