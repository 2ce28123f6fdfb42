"""Segments that leave their log, and compacted ones that take their places: by the names of their files."""

from __future__ import annotations

from pathlib import Path

from storage.files import remove, rename
from storage.segment import SEGMENT_SUFFIXES, Segment

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
"""Endings of files that are to be deleted, that a compaction is writing, and that it is putting in place."""


def delete(segment: Segment) -> None:
    """Remove every file of a segment."""
    segment.close()
    for path in segment.paths():
        remove(path)


def retire(segment: Segment) -> list[Path]:
    """Take the files out of the log by their names (``.deleted``); returns them, to be removed later in a thread."""
    segment.close()
    return [path for path in map(retire_file, segment.paths()) if path is not None]


def retire_file(path: Path) -> Path | None:
    """Give a file the name of one that is on its way out, and return it; None if there is no such file."""
    if not path.exists():
        return None
    retired = path.with_name(path.name + DELETED)
    rename(path, retired)
    return retired


def swap_in(segment: Segment) -> None:
    """Give the files of a compacted segment, which end in ``.swap``, their final names."""
    segment.has_aborted = False
    for suffix in SEGMENT_SUFFIXES:
        path = segment.path(suffix)
        swap = path.with_name(path.name + SWAP)
        if swap.exists():
            rename(swap, path)
            segment.has_aborted = segment.has_aborted or suffix == "txnindex"
