"""Removes segments from their log, and puts compacted ones in their place, by renaming files."""

from __future__ import annotations

from pathlib import Path

from storage.files import remove, rename
from storage.segment import SEGMENT_SUFFIXES, Segment

# Name endings of files that were removed from the log and will be deleted, and of files that a compaction is writing.
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
"""Name ending of the complete files of a compaction, until they replace the files of the compacted segments."""


def delete(segment: Segment) -> None:
    """Remove all files of a segment."""
    segment.close()
    for path in segment.paths():
        remove(path)


def retire(segment: Segment) -> list[Path]:
    """Rename the files of a segment to ``.deleted``; returns the new paths, for a thread to remove later."""
    segment.close()
    return [path for path in map(retire_file, segment.paths()) if path is not None]


def retire_file(path: Path) -> Path | None:
    """Rename a file to ``.deleted`` and return its new path; None if the file does not exist."""
    if not path.exists():
        return None
    retired = path.with_name(path.name + DELETED)
    rename(path, retired)
    return retired


def swap_in(segment: Segment) -> None:
    """Rename the ``.swap`` files of a compacted segment to their final names."""
    segment.has_aborted = False
    for suffix in SEGMENT_SUFFIXES:
        path = segment.path(suffix)
        swap = path.with_name(path.name + SWAP)
        if swap.exists():
            rename(swap, path)
            segment.has_aborted = segment.has_aborted or suffix == "txnindex"
