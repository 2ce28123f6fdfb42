"""A node's log directory: lock, clean shutdown file, checkpoints, partition directories."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from storage import files
from storage.checkpoints import read_offsets, write_offsets
from storage.descriptors import SPARES
from storage.files import make_directory, remove, remove_tree, rename, replace_file, sync_directory

CLEAN_MARK = ".kafka_cleanshutdown"
NO_EPOCH = -1
"""Broker epoch after an unclean shutdown."""
LOCK = ".lock"
DELETION = "-delete"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
DIRECTORY_NAME_MAX = 255

PartitionKey = tuple[str, int]


_OPEN: set[Path] = set()
"""The log directories that this process has open. The file lock keeps out only other processes."""


class DirectoryInUse(Exception):
    """The log directory is locked by another process, or by another node of this process."""


def _lock(directory: Path) -> int:
    path = directory / LOCK
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        fd = files.system.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise DirectoryInUse(f"{directory} is in use by another broker") from error
    return fd


def _refuse_if_open(directory: Path) -> None:
    if directory.resolve() in _OPEN:
        raise DirectoryInUse(f"{directory} is in use by another node of this process")


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Context manager: lock a directory against Odradek and Kafka brokers, without opening it as a `LogDirectory`. Raises
    ``DirectoryInUse``.
    """
    _refuse_if_open(directory)
    fd = _lock(directory)
    try:
        yield
    finally:
        os.close(fd)


def _segment_bytes(folder: Path) -> int:
    size = 0
    # Files may disappear meanwhile, by retention or the deletion of a topic.
    with suppress(FileNotFoundError):
        for entry in SPARES.entries(folder):
            if entry.name.endswith(".log"):
                with suppress(FileNotFoundError):
                    size += entry.stat().st_size
    return size


def _epoch_of(mark: Path) -> int:
    """Broker epoch in a clean shutdown file; -1 if the file does not exist, or is not of version 0."""
    try:
        content = json.loads(mark.read_bytes())
        return int(content["brokerEpoch"]) if content["version"] == 0 else NO_EPOCH
    except (OSError, ValueError, KeyError, TypeError):
        return NO_EPOCH


class LogDirectory:
    """One log directory. It is locked exclusively while it is open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        make_directory(path)
        self._resolved = path.resolve()
        _refuse_if_open(path)
        self._lock_fd = _lock(path)
        _OPEN.add(self._resolved)
        self.is_open = True
        try:
            self._take_mark(path / CLEAN_MARK)
        except BaseException:
            self.close(clean=False)
            raise

    def _take_mark(self, mark: Path) -> None:
        self.was_clean = mark.exists() or not any(self.partition_directories())
        self.previous_epoch = _epoch_of(mark)
        """Broker epoch of the previous stop if it was clean; otherwise -1 (``CleanShutdownFileHandler``)."""
        # A crash after this line must count as a crash, and a power cut must not bring the file back.
        if mark.exists():
            remove(mark)
            sync_directory(self.path)

    def partition_path(self, topic: str, index: int) -> Path:
        return self.path / f"{topic}-{index}"

    def partition_directories(self) -> Iterator[tuple[PartitionKey, Path]]:
        """(partition, path) of each partition directory.

        The name is split at the last dash, as topics may contain dashes.
        """
        entries = SPARES.entries(self.path)
        found = sorted(entry.name for entry in entries if "-" in entry.name and entry.is_dir())
        for name in found:
            topic, _, index = name.rpartition("-")
            if topic and index.isascii() and index.isdecimal() and topic != "__cluster_metadata":
                yield (topic, int(index)), self.path / name

    def sizes(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """Bytes of each partition's segments, 0 for a missing directory. Slow for many partitions: call it in a thread."""
        return {key: _segment_bytes(self.partition_path(*key)) for key in keys}

    def volume(self) -> tuple[int, int]:
        """(total bytes, bytes available to this process) of the directory's file system."""
        found = os.statvfs(self.path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def doomed_directories(self) -> Iterator[Path]:
        """Directories of deleted topics that have not been removed completely."""
        return (entry for entry in self.path.iterdir() if entry.name.endswith(DELETION) and entry.is_dir())

    def mark_for_deletion(self, topic: str, index: int) -> Path | None:
        """Rename a partition's directory, which frees its name at once. Its files can be removed later.

        The new name differs each time (``LocalLog.logDeleteDirName``): a partition that is created again with the same
        topic id may be deleted again before the earlier files are gone.
        """
        source = self.partition_path(topic, index)
        if not source.exists():
            return None
        suffix = f"-{index}.{uuid4().hex}{DELETION}"
        target = self.path / f"{topic[: DIRECTORY_NAME_MAX - len(suffix)]}{suffix}"
        rename(source, target)
        return target

    @staticmethod
    def remove(path: Path) -> None:
        """Remove a directory and its files. Slow for big ones: call it in a thread."""
        remove_tree(path)

    def read_checkpoint(self, name: str) -> dict[PartitionKey, int]:
        return read_offsets(self.path / name)

    def write_checkpoint(self, name: str, offsets: Mapping[PartitionKey, int]) -> None:
        write_offsets(self.path / name, offsets)

    def close(self, *, clean: bool, broker_epoch: int = 0) -> None:
        """Release the lock. After a clean stop, write the clean shutdown file, so that the next start skips recovery."""
        self.is_open = False
        _OPEN.discard(self._resolved)
        try:
            if clean:
                replace_file(self.path / CLEAN_MARK, f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode())
        finally:
            os.close(self._lock_fd)
