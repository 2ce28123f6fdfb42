"""The only module that touches the operating system's files: append, read, sync, cut, replace.

Every write of log data passes ``before_write`` first, so that a test can stop the process between any two system calls.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

Buffer = bytes | bytearray | memoryview

before_write: Callable[[], None] | None = None
"""Called before each write system call on an append-only file, when set (crash points, fault injection)."""


class StorageError(Exception):
    """A file could not be read or written; clients see KAFKA_STORAGE_ERROR. Carries the file's name."""

    def __init__(self, path: Path | str, cause: OSError | str) -> None:
        super().__init__(f"{path}: {cause}")
        self.path = str(path)


class AppendFile:
    """An append-only file, opened when first needed. ``size`` is what is known to be whole.

    A write that fails half-way is cut off again, so that the file always ends with a whole batch.
    """

    __slots__ = ("_fd", "_synced_size", "path", "size")

    def __init__(self, path: Path, size: int | None = None) -> None:
        self.path = path
        self._fd = -1
        self._synced_size = -1
        if size is None:
            size = path.stat().st_size if path.exists() else 0
        self.size = size

    def fileno(self) -> int:
        """The open descriptor; the file is created when it is not there."""
        if self._fd < 0:
            try:
                self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise StorageError(self.path, error) from error
        return self._fd

    def append(self, chunks: Sequence[Buffer], length: int) -> int:
        """Write ``chunks`` (``length`` bytes in all) at the end and return the position where they start."""
        fd = self._fd if self._fd >= 0 else self.fileno()
        position = self.size
        if before_write is not None:
            before_write()
        try:
            written = os.pwritev(fd, chunks, position)
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
            written += os.pwrite(fd, memoryview(data)[written:], position + written)

    @staticmethod
    def _cut_back(fd: int, position: int) -> None:
        try:
            os.ftruncate(fd, position)
        except OSError:  # the disk is beyond help: the caller reports the first error, recovery cuts the tail
            return

    def read(self, position: int, length: int) -> bytes:
        """At most ``length`` bytes from ``position``; fewer at the end of the file."""
        length = min(length, self.size - position)
        if length <= 0:
            return b""
        fd = self._fd if self._fd >= 0 else self.fileno()
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
            os.ftruncate(self.fileno(), size)
        except OSError as error:
            raise StorageError(self.path, error) from error
        self.size = size
        self._synced_size = -1

    def sync(self) -> None:
        """fsync: what was written survives a power cut once this has returned. Nothing new: nothing to do."""
        size = self.size
        if self._fd >= 0 and size != self._synced_size:
            try:
                os.fsync(self._fd)
            except OSError as error:
                raise StorageError(self.path, error) from error
            self._synced_size = size

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def replace_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a small file so that a crash leaves the old content or the new (temporary file, fsync, rename).

    Not ``durable`` is a hundred times quicker: a killed process still leaves the old or the new, but after a power
    cut the file may be missing or empty. It is for what can be written again from elsewhere.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(fd, view) :]
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
        if durable:
            sync_directory(path.parent)
    except OSError as error:
        raise StorageError(path, error) from error


def write_file(path: Path, content: bytes) -> None:
    """Write a whole file in place: quick and not atomic, for what is rebuilt when it does not fit."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(fd, view) :]
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
        os.fsync(fd)
    except OSError as error:
        raise StorageError(path, error) from error
    finally:
        os.close(fd)


def sync_directory(path: Path) -> None:
    """Make renames, creations and removals in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
