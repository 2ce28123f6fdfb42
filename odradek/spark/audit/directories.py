"""The small files of a log directory: checkpoints, ``meta.properties``, and the lock of a running broker.

The driver reads these files. A file that is missing, empty or malformed is treated as absent (a partition directory that was
copied alone has none of them).
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import struct
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_LOG_STARTS: Final = "log-start-offset-checkpoint"
_HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
_RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
_CLEANER: Final = "cleaner-offset-checkpoint"
_LOCK: Final = ".lock"
_CLEAN_MARK: Final = ".kafka_cleanshutdown"
_PROPERTIES: Final = "meta.properties"
_FLOCK: Final = "hhqqi4x"
"""struct flock of Linux: l_type, l_whence, l_start, l_len, l_pid."""

Key = tuple[str, int]
OFFSET_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True)
class LogDirectory:
    """The contents of the small files of a log directory. Offsets are by (topic, partition)."""

    path: str
    live: bool = False
    """Whether a running broker has locked the directory (``.lock``)."""
    stopped_cleanly: bool = False
    whole: bool = True
    """Whether the directory is a broker's log directory with checkpoint files, not only copied partition directories."""
    log_starts: dict[Key, int] = field(default_factory=dict)
    high_watermarks: dict[Key, int] = field(default_factory=dict)
    cleaned_up_to: dict[Key, int] = field(default_factory=dict)
    recovery_points: dict[Key, int] = field(default_factory=dict)
    node_id: int | None = None
    """The broker's id from ``meta.properties``; None if unknown."""
    id: uuid.UUID | None = None
    """The directory's id (``directory.id`` in ``meta.properties``), which a broker's directories have since Kafka 3.7."""
    coordinator_partitions: frozenset[int] = frozenset()
    """Partitions of ``__transaction_state`` that have a directory in this log directory."""

    def indexed_below(self, topic: str, partition: int) -> int:
        """Offset below which the index files of a partition must be right.

        The broker's next start rebuilds the indexes above this offset (LogLoader).
        """
        if self.stopped_cleanly:
            return OFFSET_MAX
        return self.recovery_points.get((topic, partition), 0)


def look_at(path: str) -> LogDirectory:
    here = Path(path)
    node_id, directory_id = _identity(here / _PROPERTIES)
    live = is_locked(here / _LOCK)
    return LogDirectory(
        path,
        live=live,
        # A broker that starts takes the lock before it removes the clean-shutdown file.
        stopped_cleanly=not live and (here / _CLEAN_MARK).exists(),
        whole=(here / _PROPERTIES).exists(),
        log_starts=_offsets(here / _LOG_STARTS),
        high_watermarks=_offsets(here / _HIGH_WATERMARKS),
        cleaned_up_to=_offsets(here / _CLEANER),
        recovery_points=_offsets(here / _RECOVERY_POINTS),
        node_id=node_id,
        id=directory_id,
        coordinator_partitions=_partitions(here, "__transaction_state"),
    )


def _offsets(path: Path) -> dict[Key, int]:
    """Read a checkpoint file. It contains a version, a count, then lines of ``topic partition offset`` (CheckpointFile)."""
    try:
        lines = path.read_text("utf-8").splitlines()[2:]
        rows = [line.rsplit(" ", 2) for line in lines]
        return {(topic, int(partition)): int(offset) for topic, partition, offset in rows}
    except (OSError, ValueError):
        return {}


def _identity(path: Path) -> tuple[int | None, uuid.UUID | None]:
    """The broker's id and the directory's id from ``meta.properties``; each is None if it cannot be read."""
    node_id = directory_id = None
    with contextlib.suppress(OSError, ValueError):
        lines = path.read_text("utf-8").splitlines()
        named = dict(line.split("=", 1) for line in lines if "=" in line)
        node_id = int(named.get("node.id", named.get("broker.id", "")))
        # Kafka's spelling of a uuid is base64url without padding (Uuid.toString).
        directory_id = uuid.UUID(bytes=base64.urlsafe_b64decode(named.get("directory.id", "") + "=="))
    return node_id, directory_id


def _partitions(here: Path, topic: str) -> frozenset[int]:
    try:
        names = [entry.name for entry in os.scandir(here) if entry.name.startswith(topic + "-")]
    except OSError:
        return frozenset()
    indexes = (name.removeprefix(topic + "-") for name in names)
    return frozenset(int(index) for index in indexes if index.isascii() and index.isdecimal())


def is_locked(lock: Path) -> bool:
    """Whether another process has locked this file. The check locks nothing, so it cannot prevent a broker's start."""
    try:
        with lock.open("rb") as file:
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            # F_GETLK works on a file that is opened for reading only.
            answer = fcntl.fcntl(file, fcntl.F_GETLK, asked)
    except OSError:
        return False
    kind: int = struct.unpack(_FLOCK, answer)[0]
    return kind != fcntl.F_UNLCK
