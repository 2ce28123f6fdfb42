"""Copies the metadata log to the directories of the nodes that are not the controller.

In Kafka every broker follows the controller's log and has a copy of it. Here all nodes share one image. The copy is written
when a node starts and when it stops, so that each directory is complete for Kafka and its tools.
"""

from __future__ import annotations

from pathlib import Path

from broker.logging import get_logger
from broker.metadata.files import LOG_DIRECTORY
from storage.files import StorageError, make_directory, remove, replace_file

log = get_logger()


def copy_metadata(source: Path, target: Path) -> None:
    """Copy the metadata log from one log directory to another. A failure is only logged: no node reads the copy."""
    if source == target:
        return
    copy = target / LOG_DIRECTORY
    try:
        make_directory(copy)
        files = {path.name: path for path in (source / LOG_DIRECTORY).iterdir() if path.is_file()}
        for path in copy.iterdir():
            if path.name not in files:
                remove(path)
        for name, path in files.items():
            replace_file(copy / name, path.read_bytes(), durable=False)
    except (OSError, StorageError) as error:
        log.warning("copying the metadata log failed", directory=str(copy), reason=str(error))
