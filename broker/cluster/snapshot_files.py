"""The files of a snapshot: a node's log directory as it is at one instant, and how it comes back.

``.log`` files below the last one take no appends any more: the snapshot has them by hard link, and a log that truncates
such a file makes a copy first (`storage.files.AppendFile.unshare`). All other files are copied. Nothing is forced to the
disk: a snapshot ends with the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from broker.metadata.files import LOG_DIRECTORY
from storage.checkpoints import format_rows, read_offsets
from storage.directory import (
    CLEAN_MARK,
    CLEANER_OFFSETS,
    DELETION,
    HIGH_WATERMARKS,
    LOCK,
    LOG_STARTS,
    RECOVERY_POINTS,
    LogDirectory,
)
from storage.files import StorageError, copy_file, make_directory, remove, write_file
from storage.log import EPOCH_FILE, Log

if TYPE_CHECKING:
    from broker.node import Node
    from broker.replicas.partition import Partition

SNAPSHOTS: Final = ".snapshots"
"""The directory below the broker's data directory; no name of a partition's folder."""
_CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)
_PASSING: Final = (".deleted", ".cleaned", ".tmp")
"""Endings of files that a running broker is about to remove, or has not finished."""


Signature = frozenset[tuple[str, int, int, int]]
"""(name, inode, size, time of the last change in ns) of each file in a folder."""


@dataclass(slots=True)
class NodeFiles:
    """One node's files in a snapshot."""

    path: Path
    lengths: dict[Path, int] = field(default_factory=dict)
    """Of the ``.log`` files, by their paths in the snapshot."""
    unchanged: dict[str, Signature] = field(default_factory=dict)
    """How the folders of the node looked when they said the same as the snapshot: these need not be put back."""


def capture(source: Path, target: Path, node: Node | None) -> NodeFiles:
    """Take a node's directory as it is now: call it in a turn of the loop. ``node`` is None for one that does not run.

    The last ``.log`` of each partition is linked at first, since copying may take long: `finish` follows.
    """
    files = NodeFiles(target)
    make_directory(target)
    opened = {} if node is None else _seal(node)
    for entry in os.scandir(source):
        if entry.is_dir(follow_symlinks=False):
            if _is_partition(entry.name):
                _capture_folder(Path(entry.path), target / entry.name, files)
        elif entry.name not in (LOCK, CLEAN_MARK) and not entry.name.endswith(_PASSING):
            _copy(Path(entry.path), target / entry.name)
    for folder, log in opened.items():
        if log.exists and log.epochs.dirty:
            # Only here: the node's own file is for its next flush, which makes it durable.
            write_file(target / folder / EPOCH_FILE, format_rows(log.epochs.entries()))
            files.unchanged.pop(folder, None)
    if node is not None:
        _write_checkpoints(source, target, node)
        # For a broker of its own that starts on a copy.
        write_file(target / CLEAN_MARK, b'{"version":0,"brokerEpoch":-1}')
    return files


def finish(files: NodeFiles) -> None:
    """Give the snapshot copies of its own of what still grows; in a thread."""
    for folder in _folders(files.path):
        last = _last_log(folder)
        if last is not None and last in files.lengths:
            copy = last.with_name(f"{last.name}.copy")
            _copy(last, copy, files.lengths[last])
            copy.rename(last)


def put_back(files: NodeFiles, directory: LogDirectory) -> None:
    """Let a locked directory that no node reads yet be as it was; in a thread. The next start removes what was there."""
    kept = {LOG_DIRECTORY}
    for (topic, index), path in list(directory.partition_directories()):
        if files.unchanged.get(path.name) == _signature(path):
            kept.add(path.name)
        else:
            directory.mark_for_deletion(topic, index, uuid4().hex)
    for folder in _folders(files.path):
        if folder.name not in kept:
            path = directory.path / folder.name
            _put_folder_back(folder, path, files)
            files.unchanged[path.name] = _signature(path)
    for name in _CHECKPOINTS:
        remove(directory.path / name)
        if (files.path / name).exists():
            _copy(files.path / name, directory.path / name)
    # What the snapshot has is complete, as after a clean stop; a mark on the disk would have to be removed durably.
    directory.was_clean = True


# -- one folder -------------------------------------------------------------------------------------------------


def _capture_folder(source: Path, target: Path, files: NodeFiles) -> None:
    make_directory(target)
    for entry in os.scandir(source):
        if entry.name.endswith(_PASSING):
            continue
        path = target / entry.name
        if entry.name.endswith(".log") and source.name != LOG_DIRECTORY:
            files.lengths[path] = entry.stat().st_size
            _link(Path(entry.path), path, files.lengths[path])
        else:
            _copy(Path(entry.path), path)
    files.unchanged[source.name] = _signature(source)


def _put_folder_back(source: Path, target: Path, files: NodeFiles) -> None:
    make_directory(target)
    last = _last_log(source)
    for entry in os.scandir(source):
        path = Path(entry.path)
        length = files.lengths.get(path)
        if length is not None and path != last and entry.stat().st_size == length:
            _link(path, target / entry.name, length)
        else:
            _copy(path, target / entry.name, length)


def _signature(folder: Path) -> Signature:
    with os.scandir(folder) as entries:
        return frozenset(
            (entry.name, status.st_ino, status.st_size, status.st_mtime_ns)
            for entry in entries
            if not entry.name.endswith(_PASSING)
            for status in (entry.stat(),)
        )


def _is_partition(name: str) -> bool:
    return "-" in name and name.rpartition("-")[2].isdecimal() and not name.endswith(DELETION)


def _folders(path: Path) -> Iterator[Path]:
    return (Path(entry.path) for entry in os.scandir(path) if entry.is_dir())


def _last_log(folder: Path) -> Path | None:
    return max(folder.glob("*.log"), default=None)


def _link(source: Path, target: Path, length: int) -> None:
    try:
        os.link(source, target)
    except FileExistsError as error:
        raise StorageError(target, error) from error
    except OSError:  # a file system without hard links
        _copy(source, target, length)


def _copy(source: Path, target: Path, length: int | None = None) -> None:
    try:
        copy_file(source, target, length)
    except OSError as error:
        raise StorageError(target, error) from error


# -- a running node ---------------------------------------------------------------------------------------------


def _seal(node: Node) -> dict[str, Log]:
    """The open logs by the names of their folders, with index files and producer snapshots as a clean stop leaves them."""
    found = {}
    for partition in node.replicas.opened():
        log = partition.log
        if partition.offline is None and log.segments:
            log.active.seal()
            log.take_snapshot()
            found[f"{partition.topic}-{partition.index}"] = log
    return found


def _write_checkpoints(source: Path, target: Path, node: Node) -> None:
    opened = [each for each in node.replicas.opened() if each.offline is None and each.log.exists]
    for name, offset_of in (
        (RECOVERY_POINTS, lambda each: each.log.log_end_offset),
        (HIGH_WATERMARKS, lambda each: each.high_watermark),
        (LOG_STARTS, _log_start),
    ):
        offsets: dict[tuple[str, int], int | None] = dict(read_offsets(source / name))
        offsets |= {(each.topic, each.index): offset_of(each) for each in opened}
        rows = [(*key, offset) for key, offset in offsets.items() if offset is not None]
        write_file(target / name, format_rows(rows))


def _log_start(partition: Partition) -> int | None:
    """Kept only where it lies inside the first segment, as in Kafka."""
    log = partition.log
    return log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None
