"""Find the partition directories of a path, and their segments.

A path is a single partition directory, a log directory of Apache Kafka or of one Odradek node, or a data directory with
``node-1`` … ``node-N`` in it. Directories that brokers have renamed (``….<uuid>-delete``, ``-future``, ``-stray``) are not
partitions. Files that a broker is about to delete (``.deleted``), or that compaction is writing (``.cleaned``, ``.swap``),
are not segments.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from odradek.errors import OdradekError

INTERNAL_TOPICS = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)

_PARTITION = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>0|[1-9]\d*)")
_SEGMENT = re.compile(r"(\d{20})\.log")
_NODE = re.compile(r"node-\d+")


class NoSuchDirectory(OdradekError):
    """A path that contains no partition."""


class Partition(NamedTuple):
    """One partition's directory. ``asked_for``: whether the user's path is this directory, not a directory above it."""

    log_dir: str
    topic: str
    partition: int
    directory: str
    asked_for: bool = False


class Segment(NamedTuple):
    """One segment, a ``.log`` file. ``next_offset`` is the base offset of the next segment, None for the last one."""

    partition: Partition
    file: str
    base_offset: int
    next_offset: int | None
    size: int
    inode: int

    @property
    def path(self) -> str:
        return os.path.join(self.partition.directory, self.file)


def roots(path: str) -> list[str]:
    """The directories in the option ``path``, separated by commas, unless the whole text is an existing directory."""
    whole = _plain(path)
    return [whole] if os.path.isdir(whole) else [_plain(part) for part in path.split(",") if part.strip()]


def _plain(path: str) -> str:
    path = path.strip()
    if path.startswith("file:"):
        path = "/" + path[len("file:") :].lstrip("/")
    return os.path.abspath(os.path.expanduser(path))


def partitions(paths: Iterable[str]) -> list[Partition]:
    """All partitions under ``paths``, sorted by name; a directory that occurs twice counts once."""
    found: dict[str, Partition] = {}
    for path in paths:
        if not os.path.isdir(path):
            raise NoSuchDirectory(f"{path} is not a directory.")
        here = list(_partitions(path))
        if not here and not _is_log_directory(path):
            raise NoSuchDirectory(
                f"{path} is neither a partition's directory nor one that contains partitions (a log.dir of Apache Kafka, a"
                " data directory of Odradek, or one of its nodes)."
            )
        for partition in here:
            found.setdefault(os.path.realpath(partition.directory), partition)
    return sorted(found.values())


def _partitions(path: str) -> Iterator[Partition]:
    name = os.path.basename(path)
    if any(_SEGMENT.fullmatch(file) for file in _names(path)):
        parsed = _PARTITION.fullmatch(name)
        if parsed is None:
            raise NoSuchDirectory(
                f"{path} has segments, but its name is not that of a partition: topic-number."
            )
        yield Partition(os.path.dirname(path), parsed["topic"], int(parsed["partition"]), path, True)
        return
    yield from _in_log_directory(path)
    for node in _names(path):
        inner = os.path.join(path, node)
        if _NODE.fullmatch(node) and _is_log_directory(inner):
            yield from _in_log_directory(inner)


def _in_log_directory(path: str) -> Iterator[Partition]:
    for name in _names(path):
        parsed = _PARTITION.fullmatch(name)
        if parsed is None:
            continue
        directory = os.path.join(path, name)
        if any(_SEGMENT.fullmatch(file) for file in _names(directory)):
            yield Partition(path, parsed["topic"], int(parsed["partition"]), directory)


def _is_log_directory(path: str) -> bool:
    return os.path.exists(os.path.join(path, "meta.properties"))


def _names(path: str) -> list[str]:
    """The names in a directory; empty if it is not a directory, or was removed a moment ago."""
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []


def chosen(found: Iterable[Partition], topics: Iterable[str] | None) -> list[Partition]:
    """The partitions of ``topics``; if ``topics`` is None, those of all topics except Kafka's internal topics."""
    if topics is None:
        return [one for one in found if one.asked_for or one.topic not in INTERNAL_TOPICS]
    wanted = frozenset(topics)
    return [one for one in found if one.topic in wanted]


def segments(partition: Partition) -> list[Segment]:
    """The segments of a partition by offset, without those that are deleted during the search."""
    files = sorted(name for name in _names(partition.directory) if _SEGMENT.fullmatch(name))
    bases = [int(name[:20]) for name in files]
    result = []
    for name, base, following in zip(files, bases, [*bases[1:], None], strict=True):
        try:
            status = os.stat(os.path.join(partition.directory, name))
        except FileNotFoundError:
            continue
        result.append(Segment(partition, name, base, following, status.st_size, status.st_ino))
    return result
