"""The metadata log in the directories of the nodes that are not the controller.

On Kafka every broker follows the controller's log and keeps a copy of it. Here all nodes see one image; the copy is made
when a node starts and when it stops, so that each directory is complete for Kafka's tools, and for Kafka itself.
"""

from __future__ import annotations

from pathlib import Path

from broker.logging import get_logger
from broker.metadata.files import LOG_DIRECTORY
from storage.files import StorageError, make_directory, remove, replace_file

log = get_logger()


def copy_metadata(source: Path, target: Path) -> None:
    """Bring the copy in log directory ``target`` up to date. A failure is logged: no node reads the copy."""
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
