"""Simulates a power loss: removes the batches of a log that were never synced.

The log belongs to a dead node, and no thread uses it any more. Each ``.log`` file is cut to the bytes that its last fsync
covered, but not below the flushed offset. Later segments are removed with all their files, and so are the producer snapshots
above the new end. Indexes, leader epochs and checkpoints stay as they are: recovery does not trust them beyond the end of
the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from storage.files import remove
from storage.log import Log
from storage.renaming import delete
from storage.segment import Segment


def synced_lengths(logs: Iterable[Log]) -> dict[str, int]:
    """Number of bytes known to be on the disk, by the name of the ``.log`` file. Files without such bytes are left out."""
    return {
        segment.log.name: segment.synced_size
        for log in logs
        for segment in log.segments
        if segment.synced_size > 0
    }


def note_synced(logs: Iterable[Log], lengths: Mapping[str, int]) -> None:
    """Note for reopened logs how many bytes of each file were synced before the node's restart.

    The recovery point covers less: it is written later, and never covers the last batch.
    """
    if not lengths:
        return
    for log in logs:
        for segment in log.segments:
            length = lengths.get(str(segment.path("log")), 0)
            if length > 0:
                segment.log.note_synced(length)


def forget_unsynced(log: Log, before_cut: Callable[[int], None]) -> dict[str, int]:
    """Cut a log's files to the synced bytes; returns the known sizes, as `synced_lengths` does.

    ``before_cut`` is called with the new log end offset, but only if batches will be cut off.
    Raises ``StorageError`` if the files cannot be read or cut.
    """
    first = log.segment_index(log.flushed_offset) if log.segments else 0
    unsure = log.segments[first:]
    known = synced_lengths([log])
    for index, segment in enumerate(unsure):
        kept = _synced_bytes(segment, log.flushed_offset)
        if kept < segment.size:
            end_offset = _end_offset(segment, kept)
            before_cut(end_offset)
            # The last one first: a failure in between must not leave a gap between segments.
            for later in reversed(unsure[index + 1 :]):
                delete(later)
            _cut(segment, kept)
            _remove_snapshots(log, end_offset)
            return {**known, segment.log.name: kept}
    return known | {segment.log.name: segment.size for segment in unsure}


def _synced_bytes(segment: Segment, flushed_offset: int) -> int:
    flushed = 0
    if segment.size and flushed_offset > segment.base_offset:
        found = segment.locate(flushed_offset)
        flushed = segment.size if found is None else found[0]
    return max(flushed, segment.synced_size)


def _end_offset(segment: Segment, size: int) -> int:
    """Log end offset after a cut of the segment to ``size`` bytes: the base offset of the first batch that is cut off."""
    return int.from_bytes(segment.log.read(size, 8), "big") if size else segment.base_offset


def _cut(segment: Segment, size: int) -> None:
    if size == 0:
        delete(segment)  # the directory entry of an empty file was not synced either
    else:
        segment.log.truncate(size)
        segment.close()


def _remove_snapshots(log: Log, end_offset: int) -> None:
    for path in log.directory.glob("*.snapshot"):
        if path.stem.isdecimal() and int(path.stem) > end_offset:
            remove(path)
