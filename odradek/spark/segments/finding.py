"""Which partition directories a path means, and which segments lie in them.

A path is a single partition directory, a log directory of Apache Kafka or of one node of ours, or a data directory with
``node-1`` … ``node-N`` in it. Directories that brokers have put aside (``….<uuid>-delete``, ``-future``, ``-stray``) are no
partitions, and neither are files that await their removal (``.deleted``), or that compaction is at work on (``.cleaned``,
``.swap``).
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
    """A path that holds no partition."""


class Partition(NamedTuple):
    """One partition's directory. ``asked_for``: by its own path, not by that of a directory that holds it."""

    log_dir: str
    topic: str
    partition: int
    directory: str
    asked_for: bool = False


class Segment(NamedTuple):
    """One ``.log`` file. ``next_offset`` is the base offset of the segment after it, None for the last one."""

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
    """The directories of one option ``path``: several by commas, unless one is called so as a whole."""
    whole = _plain(path)
    return [whole] if os.path.isdir(whole) else [_plain(part) for part in path.split(",") if part.strip()]


def _plain(path: str) -> str:
    path = path.strip()
    if path.startswith("file:"):
        path = "/" + path[len("file:") :].lstrip("/")
    return os.path.abspath(os.path.expanduser(path))


def partitions(paths: Iterable[str]) -> list[Partition]:
    """All partitions under ``paths``, in the order of their names; a directory that is named twice counts once."""
    found: dict[str, Partition] = {}
    for path in paths:
        if not os.path.isdir(path):
            raise NoSuchDirectory(f"{path} is no directory.")
        here = list(_partitions(path))
        if not here and not _is_log_directory(path):
            raise NoSuchDirectory(
                f"{path} is neither a partition's directory nor one that holds partitions (a log.dir of Apache Kafka, a"
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
    """What is in a directory; nothing if it is none, or was removed a moment ago."""
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []


def chosen(found: Iterable[Partition], topics: Iterable[str] | None) -> list[Partition]:
    """Those of the named topics; without names all but Kafka's internal ones, which must be named."""
    if topics is None:
        return [one for one in found if one.asked_for or one.topic not in INTERNAL_TOPICS]
    wanted = frozenset(topics)
    return [one for one in found if one.topic in wanted]


def segments(partition: Partition) -> list[Segment]:
    """The segments of a partition by offset; those that vanish meanwhile are left out."""
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
