"""Deletion of retired log files (with the suffix ``.deleted``), in a thread. A file that cannot be deleted is logged, and
deleted at the next start.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from broker.logging import get_logger
from storage.files import StorageError, remove_all

log_events = get_logger()


def remove_retired(paths: Iterable[Path]) -> None:
    for error in remove_all(paths):
        log_not_removed(error)


def log_not_removed(error: StorageError) -> None:
    log_events.warning("file cannot be removed", file=error.path, reason=str(error))
