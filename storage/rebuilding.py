"""Rebuilds lost or damaged files of a partition (leader epochs, transaction indexes) from its batches, for `recovery`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from typing import Final

from protocol.batch import HEADER_BYTES, CorruptBatch, RecordBatch
from protocol.records import producer_snapshot
from storage.epochs import LeaderEpochs
from storage.files import DamagedFile, StorageError, read_file
from storage.folder import Folder
from storage.log import EPOCH_FILE, Log
from storage.segment import REPLAY_BYTES, Segment, file_name

EPOCHS_CHECKED_MAX: Final = 8
"""Number of the newest leader epochs that are compared with the batches when a log is opened."""
GAPS_SEARCHED_SEGMENTS_MAX: Final = 1000
"""Logs with more segments are not searched for gaps between segments, which takes about 0.1 ms per segment."""
SEARCHED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Logs above this size are not searched for ABORT markers that should be in a transaction index, but whose segment has no
such index. The search takes about 30 ms for this size.
"""
NO_MARKER_YET: Final = -1
# The record of an ABORT marker as every Kafka version writes it: length 16, all deltas 0, a key of 4 bytes with version and
# type 0, a value of 6 bytes.
_ABORT_RECORD: Final = bytes.fromhex("2000000008000000000c0000")


# -- leader epochs ----------------------------------------------------------------------------------------------


def load_epochs(log: Log) -> str | None:
    """Load a log's epochs from its checkpoint file, or from its batches if the file is damaged. Returns the damage as text,
    None if there is none.

    Kafka takes the whole log directory offline if such a file is damaged (``LeaderEpochCheckpointFile``).
    """
    path = f"{log.directory}/{EPOCH_FILE}"
    try:
        log.epochs = LeaderEpochs.load(path)
    except DamagedFile as error:
        reason = str(error)
    else:
        wrong = _contradicted(log)
        if wrong is None:
            return None
        reason = f"{path}: epoch {wrong[0]} did not begin at offset {wrong[1]}"
    log.epochs = LeaderEpochs()
    for segment in log.segments:
        with suppress(CorruptBatch):
            for batch in segment.headers():
                log.epochs.assign(batch.partition_leader_epoch, batch.base_offset)
    log.save_epochs()
    return reason


def _contradicted(log: Log) -> tuple[int, int] | None:
    """The newest entry (epoch, start offset) that contradicts the batches around it; None if all entries agree.

    Compaction may have removed batches, which is no contradiction.
    """
    exact = "compact" not in log.config.cleanup_policy
    entries = [(-1, -1), *log.epochs.entries()]
    newest = pairwise(entries)
    for (earlier, _), (epoch, start) in list(newest)[-EPOCHS_CHECKED_MAX:]:
        if not log.log_start_offset < start < log.log_end_offset:
            continue
        try:
            before, first = _batch_at(log, start - 1), _batch_at(log, start)
        except (StorageError, CorruptBatch):
            return None  # the batches themselves are damaged, so they prove nothing
        if first.base_offset < start or first.partition_leader_epoch < epoch:
            return epoch, start
        if before.base_offset >= start:
            continue
        said = before.partition_leader_epoch
        if said >= epoch or (exact and (said != earlier or first.partition_leader_epoch != epoch)):
            return epoch, start
    return None


def _batch_at(log: Log, offset: int) -> RecordBatch:
    place = log.locate(offset)
    if place is None:
        raise StorageError(log.directory, f"there is no batch at offset {offset}")
    return RecordBatch.parse_header(place.segment.log.read(place.position, HEADER_BYTES))


# -- segments ---------------------------------------------------------------------------------------------------


def gaps(segments: Sequence[Segment], log_start_offset: int) -> Iterator[tuple[int, int]]:
    """(first, last) offset of each gap between two neighbouring segments, left by a file that was deleted."""
    if len(segments) > GAPS_SEARCHED_SEGMENTS_MAX:
        return
    for segment, following in pairwise(segments):
        if following.base_offset <= log_start_offset:
            continue
        try:
            end_offset = segment.load_end()
        except (CorruptBatch, StorageError):
            continue
        if end_offset < following.base_offset:
            yield end_offset, following.base_offset - 1


# -- transaction indexes ----------------------------------------------------------------------------------------


class TransactionIndexes:
    """Finds segments that contain ABORT markers of transactions with data, but have no transaction index.

    Without the index, readers would get the aborted records as committed ones, as in Kafka. The index does not list
    transactions that were aborted without data in this partition. It need not list transactions whose data is below the log
    start, where consumers do not read.
    """

    def __init__(self, folder: Folder, segments: Sequence[Segment], log_start_offset: int) -> None:
        self._folder = folder
        self._segments = segments
        self._log_start_offset = log_start_offset
        self._there = folder.offsets("txnindex")

    def is_lost(self, segment: Segment) -> bool:
        """Whether a segment has no transaction index, but needs one. Always False in logs without transactions and
        in large logs, which are not searched.
        """
        if segment.base_offset in self._there or not self._are_searched:
            return False
        aborts = _abort_markers(segment)
        if not aborts:
            return False
        try:
            return not aborts.isdisjoint(self._with_data)
        except (CorruptBatch, StorageError):
            return True  # the check of the segment reports the damage

    @cached_property
    def _with_data(self) -> set[int]:
        """Offsets of all markers that ended a transaction with data in this partition at or above the log start."""
        ended: set[int] = set()
        under_way: set[int] = set()
        for segment in self._segments:
            for batch in segment.headers():
                if not batch.is_transactional:
                    continue
                if not batch.is_control:
                    if batch.last_offset >= self._log_start_offset:
                        under_way.add(batch.producer_id)
                elif batch.producer_id in under_way:
                    under_way.remove(batch.producer_id)
                    ended.add(batch.base_offset)
        return ended

    @cached_property
    def _are_searched(self) -> bool:
        return sum(self._folder.sizes.values()) <= SEARCHED_BYTES_MAX and _has_transactions(self._folder)


def _has_transactions(folder: Folder) -> bool:
    """Whether a producer in the newest snapshot has had a marker. False if there is no snapshot: then recovery reads the
    whole log and rebuilds the transaction indexes anyway.
    """
    snapshots = folder.offsets("snapshot")
    if not snapshots:
        return False
    try:
        content = read_file(f"{folder.path}/{file_name(max(snapshots), 'snapshot')}") or b""
        entries = producer_snapshot.decode(content)
    except (producer_snapshot.MalformedSnapshot, StorageError):
        return True
    return any(entry.coordinator_epoch != NO_MARKER_YET for entry in entries)


def _abort_markers(segment: Segment) -> set[int]:
    """Offsets of the ABORT markers in a segment."""
    found: set[int] = set()
    position = 0
    while position < segment.size:
        window = segment.log.read(position, REPLAY_BYTES)
        at = window.find(_ABORT_RECORD)
        while at >= 0:
            marker = _marker_at(segment, position + at - HEADER_BYTES)
            if marker is not None:
                found.add(marker)
            at = window.find(_ABORT_RECORD, at + 1)
        if len(window) < REPLAY_BYTES:
            return found
        position += len(window) - len(_ABORT_RECORD) + 1
    return found


def _marker_at(segment: Segment, position: int) -> int | None:
    if position < 0:
        return None
    try:
        batch = RecordBatch.parse_header(segment.log.read(position, HEADER_BYTES))
    except CorruptBatch:
        return None
    return batch.base_offset if batch.is_control and batch.is_transactional else None
