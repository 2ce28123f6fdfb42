"""Stray and damaged partition directories: each is reported in the log, so that no data is silently treated as an empty
topic.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from broker.logging import get_logger
from storage.checkpoints import (
    is_damaged_partition_metadata,
    read_partition_metadata,
    write_partition_metadata,
)
from storage.directory import PartitionKey
from storage.files import StorageError, rename
from storage.recovery import Recovered

GAP_LINES_MAX: Final = 10
"""Maximum number of log lines about gaps in one partition."""

log_events = get_logger()


def log_unknown(directory: Path, unknown: Mapping[str, Sequence[int]]) -> None:
    """Log one line for each topic that has partition directories, but is not in the cluster metadata.

    Kafka renames such directories.
    """
    for topic, indexes in unknown.items():
        log_events.warning(
            "logs of a topic that is not in the cluster metadata are ignored",
            topic=topic,
            partitions=indexes,
            directory=str(directory),
        )


def log_damage(key: PartitionKey, recovered: Recovered) -> None:
    """Log what the recovery cut off, rebuilt or found missing in a partition's log."""
    if recovered.cut_bytes:
        log_events.warning(
            "log cut at the first bad batch",
            topic=key[0],
            partition=key[1],
            bytes=recovered.cut_bytes,
            log_end_offset=recovered.log.log_end_offset,
            reason=recovered.reason,
        )
    for wrong in recovered.rebuilt:
        log_events.warning("file rebuilt from the log", topic=key[0], partition=key[1], reason=wrong)
    for first, last in recovered.gaps[:GAP_LINES_MAX]:
        log_events.error(
            "no segment has these offsets: readers skip them",
            topic=key[0],
            partition=key[1],
            first=first,
            last=last,
            gaps=len(recovered.gaps),
        )


def set_aside_foreign(path: Path, topic_id: uuid.UUID) -> None:
    """Rename a directory of an earlier topic with the same name, which a crash during its deletion left behind.

    If only a few bytes of ``partition.metadata`` are damaged, the directory is this topic's, and the file is rewritten.
    """
    try:
        found = read_partition_metadata(path)
    except StorageError:
        if not is_damaged_partition_metadata(path, topic_id):
            raise
        found = uuid.UUID(int=0)
    if found is None or found == topic_id:
        return
    if is_damaged_partition_metadata(path, topic_id):
        write_partition_metadata(path, topic_id)
        log_events.error("damaged partition.metadata rewritten", directory=str(path))
        return
    aside = path.with_name(f"{path.name}.{found.hex}-stray")
    rename(path, aside)
    log_events.warning(
        "folder of an earlier topic set aside",
        directory=str(path),
        topic_id=str(found),
        moved_to=str(aside),
    )
