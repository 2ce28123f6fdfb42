"""The files of a snapshot: copies of a node's log directory at one instant, and their restoration.

The files of a partition are hard links. That is safe, since older segments take no appends, a log that truncates such a file
copies it first (`storage.files.AppendFile.unshare`), and files outside of segments are only replaced as a whole. The last
segment of each partition is at first a link, too, because a link takes a fraction of the time of a copy; `finish` then
replaces these links by copies of the recorded lengths. Nothing is synced: a snapshot does not outlive the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.metadata.files import LOG_DIRECTORY
from protocol.slotted import slotted
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
from storage.files import (
    Name,
    StorageError,
    copy_file,
    make_directory,
    remove,
    remove_tree,
    rename,
    write_file,
)
from storage.log import EPOCH_FILE, Log

if TYPE_CHECKING:
    from broker.node import Node
    from broker.replicas.partition import Partition

SNAPSHOTS: Final = ".snapshots"
"""Directory for snapshots in the broker's data directory. No partition's directory can have this name."""
_CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)
_GROWING: Final = (".log", ".index", ".timeindex", ".txnindex")
"""Suffixes of segment files, which grow by appends."""
_PASSING: Final = (".deleted", ".cleaned", ".tmp")
"""Suffixes of files that a running broker is about to delete, or has not completed."""


Signature = frozenset[tuple[str, int, int, int]]
"""(name, inode, size, modification time in ns) of each file in a directory."""


@slotted
class NodeFiles:
    """The files of one node in a snapshot."""

    path: Path
    lengths: dict[str, int] = field(default_factory=dict)
    """Lengths of segment files, by path in the snapshot."""
    epochs: dict[str, bytes] = field(default_factory=dict)
    """Leader epoch files that the node has not written yet, by directory name."""
    unchanged: dict[str, Signature] = field(default_factory=dict)
    """Signature of each partition's directory, taken when it had the snapshot's content. If a directory still has this
    signature, it need not be restored."""


def prepare(source: Path, target: Path) -> None:
    """Create the directories for a node's files. Run this in a thread: on a disk it takes longer than creating all links.

    If a partition's directory is removed before `capture`, its copy stays empty, and `finish` removes the copy.
    """
    make_directory(target)
    for folder in _folders(source):
        if _is_partition(folder.name):
            make_directory(target / folder.name)


def capture(source: Path, target: Path, node: Node | None) -> NodeFiles:
    """Capture a node's directory now, in one turn of the event loop. ``node`` is None if it is not running.

    Call `finish` afterwards.
    """
    files = NodeFiles(target)
    opened = {} if node is None else _seal(node)
    for entry in os.scandir(source):
        if entry.is_dir(follow_symlinks=False):
            if _is_partition(entry.name):
                _capture_folder(Path(entry.path), target / entry.name, files)
        elif entry.name not in (LOCK, CLEAN_MARK) and not entry.name.endswith(_PASSING):
            _copy(Path(entry.path), target / entry.name)
    for folder, log in opened.items():
        if log.exists and log.epochs.dirty:
            # Only in the snapshot: the node's own file is written by its next flush, which also syncs it.
            files.epochs[folder] = format_rows(log.epochs.entries())
            files.unchanged.pop(folder, None)
    if node is not None:
        _write_checkpoints(source, target, node)
        # For a fork: another broker that starts on a copy of the snapshot.
        write_file(target / CLEAN_MARK, b'{"version":0,"brokerEpoch":-1}')
    return files


def finish(files: NodeFiles) -> None:
    """Replace the links to growing files by copies. Run this in a thread."""
    for name, content in files.epochs.items():
        write_file(files.path / name / EPOCH_FILE, content)
    captured = {*files.unchanged, *files.epochs}
    for folder in list(_folders(files.path)):
        if folder.name not in captured:
            remove_tree(folder)
            continue
        last = _last_segment(folder)
        for suffix in _GROWING if last is not None else ():
            path = f"{folder}/{last}{suffix}"
            if path in files.lengths:
                _copy(path, path + ".copy", files.lengths[path])
                rename(Path(path + ".copy"), Path(path))


def put_back(files: NodeFiles, directory: LogDirectory) -> None:
    """Restore a node's locked and unused ``directory`` from its snapshot. Run this in a thread.

    Replaced partitions are marked for deletion; the next start removes their files.
    """
    kept = {LOG_DIRECTORY}
    for (topic, index), path in list(directory.partition_directories()):
        if files.unchanged.get(path.name) == _signature(path):
            kept.add(path.name)
        else:
            directory.mark_for_deletion(topic, index)
    for folder in _folders(files.path):
        if folder.name not in kept:
            path = directory.path / folder.name
            _put_folder_back(folder, path, files)
            files.unchanged[path.name] = _signature(path)
    for name in _CHECKPOINTS:
        remove(directory.path / name)
        if (files.path / name).exists():
            _copy(files.path / name, directory.path / name)
    # The restored files are complete as after a clean stop, but no clean shutdown file is written: the next start would
    # have to remove it with an fsync.
    directory.was_clean = True


# -- one directory ----------------------------------------------------------------------------------------------


def _capture_folder(source: Path, target: Path, files: NodeFiles) -> None:
    make_directory(target)
    is_metadata = source.name == LOG_DIRECTORY
    signature = []
    for entry in os.scandir(source):
        if entry.name.endswith(_PASSING):
            continue
        path = f"{target}/{entry.name}"
        status = entry.stat()
        signature.append(_of_file(entry.name, status))
        if is_metadata:
            _copy(entry.path, path)
            continue
        if entry.name.endswith(_GROWING):
            files.lengths[path] = status.st_size
        _link(entry.path, path, status.st_size)
    files.unchanged[source.name] = frozenset(signature)


def _put_folder_back(source: Path, target: Path, files: NodeFiles) -> None:
    make_directory(target)
    last = _last_segment(source)
    for entry in os.scandir(source):
        length = files.lengths.get(entry.path)
        grows = length is not None and entry.name.partition(".")[0] == last
        if grows or length not in (None, entry.stat().st_size):
            _copy(entry.path, f"{target}/{entry.name}", length)
        else:
            _link(entry.path, f"{target}/{entry.name}", length)


def _of_file(name: str, status: os.stat_result) -> tuple[str, int, int, int]:
    return name, status.st_ino, status.st_size, status.st_mtime_ns


def _signature(folder: Path) -> Signature:
    with os.scandir(folder) as entries:
        return frozenset(
            _of_file(entry.name, entry.stat()) for entry in entries if not entry.name.endswith(_PASSING)
        )


def _is_partition(name: str) -> bool:
    return "-" in name and name.rpartition("-")[2].isdecimal() and not name.endswith(DELETION)


def _folders(path: Path) -> Iterator[Path]:
    return (Path(entry.path) for entry in os.scandir(path) if entry.is_dir())


def _last_segment(folder: Path) -> str | None:
    """Base offset of the last segment, as in its file names; None if there is no segment."""
    logs = (name for name in os.listdir(folder) if name.endswith(".log"))
    return max(logs, default="").removesuffix(".log") or None


def _link(source: Name, target: Name, length: int | None) -> None:
    try:
        os.link(source, target)
    except FileExistsError as error:
        raise StorageError(target, error) from error
    except OSError:  # the file system does not support hard links
        _copy(source, target, length)


def _copy(source: Name, target: Name, length: int | None = None) -> None:
    try:
        copy_file(source, target, length)
    except OSError as error:
        raise StorageError(target, error) from error


# -- a running node ---------------------------------------------------------------------------------------------


def _seal(node: Node) -> dict[str, Log]:
    """Complete the index files and producer snapshots of all open logs. Returns the logs by directory name."""
    found = {}
    for partition in node.replicas.opened():
        log = partition.log
        if partition.offline is None and log.segments:
            log.active.seal()
            log.take_snapshot()
            found[partition.name] = log
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
    """The log start offset if it is inside the first segment, as in Kafka's checkpoint; else None."""
    log = partition.log
    return log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None
