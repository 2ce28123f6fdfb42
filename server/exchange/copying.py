"""Copies files and folders of logs, with their modification times and their holes."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from broker.config.authority_files import FOLDER
from storage.directory import DELETION, LOCK

_COPY_BYTES: Final = 1 << 24

# Errors of a file system that cannot share or copy a range. The bytes are then copied by this process.
_CANNOT_COPY_RANGES: Final = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)


def copy_directory(source: Path, target: Path) -> None:
    """Copy a log directory, except its lock, the folders of deleted topics and the certificates of --tls."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in sorted(source.iterdir()):
        if entry.is_dir() and entry.name != FOLDER and not entry.name.endswith(DELETION):
            copy_directory(entry, target / entry.name)
        elif entry.is_file() and entry.name != LOCK:
            copy_file(entry, target / entry.name)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file with its times and its holes.

    Kafka preallocates 10 MiB for each index file, most of which it never writes.
    """
    with source.open("rb") as reading, target.open("xb") as writing:
        size = os.fstat(reading.fileno()).st_size
        for begin, end in _extents(reading.fileno(), size):
            _copy_range(reading.fileno(), writing.fileno(), begin, end)
        os.ftruncate(writing.fileno(), size)
    shutil.copystat(source, target)


def _extents(fd: int, size: int) -> Iterator[tuple[int, int]]:
    position = 0
    while position < size:
        try:
            position = os.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # the rest of the file is a hole
                return
            raise
        end = os.lseek(fd, position, os.SEEK_HOLE)
        yield position, end
        position = end


def _copy_range(source: int, target: int, begin: int, end: int) -> None:
    copy: Callable[[int, int, int, int], int] = _by_the_system if hasattr(os, "copy_file_range") else _by_hand
    while begin < end:
        try:
            copied = copy(source, target, begin, min(end - begin, _COPY_BYTES))
        except OSError as error:
            if copy is _by_hand or error.errno not in _CANNOT_COPY_RANGES:
                raise
            copy = _by_hand
            continue
        if copied == 0:
            raise OSError(errno.EIO, "a file has become shorter while it was copied")
        begin += copied


def _by_the_system(source: int, target: int, position: int, length: int) -> int:
    return os.copy_file_range(source, target, length, position, position)


def _by_hand(source: int, target: int, position: int, length: int) -> int:
    return os.pwrite(target, os.pread(source, length, position), position)
