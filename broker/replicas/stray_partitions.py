"""Folders in a log directory that the cluster metadata does not account for: never an empty topic without a word."""

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
"""Of one partition."""

log_events = get_logger()


def say_unknown(directory: Path, unknown: Mapping[str, Sequence[int]]) -> None:
    """One line for each topic with folders here that the cluster metadata knows nothing of. Kafka renames them to strays."""
    for topic, indexes in unknown.items():
        log_events.warning(
            "logs of a topic that is not in the cluster metadata are left alone",
            topic=topic,
            partitions=indexes,
            directory=str(directory),
        )


def say_damage(key: PartitionKey, recovered: Recovered) -> None:
    """What was lost of a log that has been opened, and what was made good."""
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
            "offsets are in no segment: readers go on behind them",
            topic=key[0],
            partition=key[1],
            first=first,
            last=last,
            gaps=len(recovered.gaps),
        )


def set_aside_foreign(path: Path, topic_id: uuid.UUID) -> None:
    """A folder of an earlier topic of the same name is not this topic's data (a deletion cut short by a crash).

    A ``partition.metadata`` with a few damaged bytes is this topic's all the same, and is written anew.
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
        log_events.error("damaged partition.metadata written anew", directory=str(path))
        return
    aside = path.with_name(f"{path.name}.{found.hex}-stray")
    rename(path, aside)
    log_events.warning(
        "folder of an earlier topic set aside",
        directory=str(path),
        topic_id=str(found),
        moved_to=str(aside),
    )
