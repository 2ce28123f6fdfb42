"""What a power loss takes of a log: the batches that were never forced to the disk.

The log is that of a dead node, and no thread works on it any more. Of each ``.log`` file stay the bytes that its last fsync
has covered, and all bytes below the flushed offset. Segments that come later go with all their files, and so do the
snapshots of producers above the new end. Indexes, leader epochs and checkpoints stay: recovery believes none of them
further than the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from storage.files import remove
from storage.log import Log
from storage.renaming import delete
from storage.segment import Segment


def synced_lengths(logs: Iterable[Log]) -> dict[str, int]:
    """How many bytes of each ``.log`` file are known to be on the disk, by the files' names; of most it is not known."""
    return {
        segment.log.name: segment.synced_size
        for log in logs
        for segment in log.segments
        if segment.synced_size > 0
    }


def note_synced(logs: Iterable[Log], lengths: Mapping[str, int]) -> None:
    """Tell logs that were opened again what an earlier life of their node had synced.

    The recovery point says less: it is written later, and never vouches for the last batch.
    """
    if not lengths:
        return
    for log in logs:
        for segment in log.segments:
            length = lengths.get(str(segment.path("log")), 0)
            if length > 0:
                segment.log.note_synced(length)


def forget_unsynced(log: Log, before_cut: Callable[[int], None]) -> dict[str, int]:
    """Cut the files of a log to what was synced; returns what is known to be on the disk, as `synced_lengths` does.

    ``before_cut`` gets the offset at which the log is about to end, if that is not where it ends now.
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
            # The last one first: a gap between segments would be another failure.
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
    """The offset at which a log ends that is cut to so many bytes of a segment: that of the first batch behind them."""
    return int.from_bytes(segment.log.read(size, 8), "big") if size else segment.base_offset


def _cut(segment: Segment, size: int) -> None:
    if size == 0:
        delete(segment)  # an empty file was not named on the disk either
    else:
        segment.log.truncate(size)
        segment.close()


def _remove_snapshots(log: Log, end_offset: int) -> None:
    for path in log.directory.glob("*.snapshot"):
        if path.stem.isdecimal() and int(path.stem) > end_offset:
            remove(path)
