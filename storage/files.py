"""The only module that touches the operating system's files: append, read, sync, cut, rename, replace, remove.

Every call that changes the disk goes through ``system``, so that a test can stop the process between any two of
them, let one fail, or forget what was never synced.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

Buffer = bytes | bytearray | memoryview


class System:
    """The system calls that change files, as in ``os``. Another one may be put in place with ``use_system``."""

    open = staticmethod(os.open)
    pwritev = staticmethod(os.pwritev)
    pwrite = staticmethod(os.pwrite)
    write = staticmethod(os.write)
    ftruncate = staticmethod(os.ftruncate)
    fsync = staticmethod(os.fsync)
    rename = staticmethod(os.rename)
    unlink = staticmethod(os.unlink)
    mkdir = staticmethod(os.mkdir)


system = System()


def use_system(other: System) -> System:
    """Let all file work of this process go through ``other`` from now on; returns what was used before."""
    global system
    before, system = system, other
    return before


class StorageError(Exception):
    """A file could not be read or written; clients see KAFKA_STORAGE_ERROR. Carries the file's name."""

    def __init__(self, path: Path | str, cause: OSError | str) -> None:
        super().__init__(f"{path}: {cause}")
        self.path = str(path)


class Descriptors:
    """The append files that are open now, at most ``limit`` of them: one more closes one that was not used lately.

    A file that was closed like this opens again when it is needed (second chance, so that a use costs one store).
    The files belong to one thread, that of the loop; other threads open what they need by its path.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._open: OrderedDict[AppendFile, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, file: AppendFile) -> int:
        """Open a file for reading and writing, created when it is not there."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            try:
                fd = system.open(file.path, flags, 0o644)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._open:
                    raise
                self._close(len(self._open) // 2 + 1)
                fd = system.open(file.path, flags, 0o644)
        except OSError as error:
            raise StorageError(file.path, error) from error
        self._open[file] = None
        self._close(len(self._open) - self.limit)
        return fd

    def _close(self, count: int) -> None:
        while count > 0 and self._open:
            file, _ = self._open.popitem(last=False)
            if file.used:
                file.used = False
                self._open[file] = None
            else:
                file.rest()
                count -= 1

    def forget(self, file: AppendFile) -> None:
        """A file was closed."""
        self._open.pop(file, None)


DESCRIPTORS = Descriptors(limit=1024)
"""Of this process, whose descriptors are limited as a whole (RLIMIT_NOFILE); the broker sets the limit at its start."""


class AppendFile:
    """An append-only file, opened when needed. ``size`` is what is known to be whole.

    A write that fails half-way is cut off again, so that the file always ends with a whole batch.
    """

    __slots__ = ("_fd", "_synced_size", "path", "size", "used")

    def __init__(self, path: Path, size: int | None = None) -> None:
        self.path = path
        self._fd = -1
        self._synced_size = -1
        self.used = False
        """Since ``Descriptors`` last looked for a file to close."""
        if size is None:
            size = path.stat().st_size if path.exists() else 0
        self.size = size

    def fileno(self) -> int:
        """The open descriptor; the file is created when it is not there."""
        self.used = True
        if self._fd < 0:
            self._fd = DESCRIPTORS.open(self)
        return self._fd

    def append(self, chunks: Sequence[Buffer], length: int) -> int:
        """Write ``chunks`` (``length`` bytes in all) at the end and return the position where they start."""
        fd = self._fd if self._fd >= 0 else self.fileno()
        self.used = True
        position = self.size
        try:
            written = system.pwritev(fd, chunks, position)
            if written != length:
                self._write_rest(fd, b"".join(chunks), position, written)
        except OSError as error:
            self._cut_back(fd, position)
            raise StorageError(self.path, error) from error
        self.size = position + length
        return position

    @staticmethod
    def _write_rest(fd: int, data: bytes, position: int, written: int) -> None:
        while written < len(data):
            written += system.pwrite(fd, memoryview(data)[written:], position + written)

    @staticmethod
    def _cut_back(fd: int, position: int) -> None:
        try:
            system.ftruncate(fd, position)
        except OSError:  # the disk is beyond help: the caller reports the first error, recovery cuts the tail
            return

    def read(self, position: int, length: int) -> bytes:
        """At most ``length`` bytes from ``position``; fewer at the end of the file."""
        length = min(length, self.size - position)
        if length <= 0:
            return b""
        fd = self._fd if self._fd >= 0 else self.fileno()
        self.used = True
        try:
            data = os.pread(fd, length, position)
            while len(data) < length:
                more = os.pread(fd, length - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise StorageError(self.path, error) from error
        return data

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        try:
            system.ftruncate(self.fileno(), size)
        except OSError as error:
            raise StorageError(self.path, error) from error
        self.size = size
        self._synced_size = -1

    def sync(self) -> None:
        """fsync: what was written survives a power cut once this has returned. Nothing new: nothing to do.

        Any thread may call it, so it opens the file anew: the descriptor of the loop may be closed meanwhile.
        """
        size = self.size
        if size != self._synced_size:
            sync_file(self.path)
            self._synced_size = size

    def rest(self) -> None:
        """Give the descriptor back until the file is needed again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        if self._fd >= 0:
            DESCRIPTORS.forget(self)
            self.rest()


def rename(source: Path, target: Path) -> None:
    try:
        system.rename(source, target)
    except OSError as error:
        raise StorageError(source, error) from error


def remove(path: Path) -> None:
    """Remove a file; one that is gone already is as good."""
    try:
        system.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(path, error) from error


def replace_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a small file so that a crash leaves the old content or the new (temporary file, fsync, rename).

    Not ``durable`` is a hundred times quicker: a killed process still leaves the old or the new, but after a power
    cut the file may be missing or empty. It is for what can be written again from elsewhere.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        fd = system.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            view = memoryview(content)
            while view:
                view = view[system.write(fd, view) :]
            if durable:
                system.fsync(fd)
        finally:
            os.close(fd)
        system.rename(temporary, path)
        if durable:
            sync_directory(path.parent)
    except OSError as error:
        raise StorageError(path, error) from error


def write_file(path: Path, content: bytes) -> None:
    """Write a whole file in place: quick and not atomic, for what is rebuilt when it does not fit."""
    try:
        fd = system.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            view = memoryview(content)
            while view:
                view = view[system.write(fd, view) :]
        finally:
            os.close(fd)
    except OSError as error:
        raise StorageError(path, error) from error


def sync_file(path: Path) -> None:
    """Make the content of a file that is not held open durable; one that is gone needs it no more."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(path, error) from error
    try:
        system.fsync(fd)
    except OSError as error:
        raise StorageError(path, error) from error
    finally:
        os.close(fd)


def sync_directory(path: Path) -> None:
    """Make renames, creations and removals in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        system.fsync(fd)
    finally:
        os.close(fd)
