"""Opens a partition's directory: after a clean stop as it is, after a crash by checking the batches that were not flushed.

The order is Kafka's (``LogLoader``): leftovers of deletions and compactions first, then segments, then the producers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from struct import Struct
from zlib import crc32

from protocol.batch import LOG_OVERHEAD_BYTES, CorruptBatch
from protocol.named_tuple import NamedTuple
from protocol.records import producer_snapshot
from protocol.slotted import slotted
from storage.checking import Check
from storage.checkpoints import read_partition_metadata, write_partition_metadata
from storage.config import LogConfig
from storage.files import StorageError, read_file, remove
from storage.folder import Folder
from storage.log import Log
from storage.producers import ProducerStateManager
from storage.rebuilding import TransactionIndexes, gaps, load_epochs
from storage.renaming import retire
from storage.segment import REPLAY_BYTES, SCAN_BYTES, Segment, file_name

# offset | length, CRC-32 of the rest, magic
_OLD_HEADER = Struct(">8xiIB")
_OLD_CRC_FROM = 16
_OLD_FORMATS = (0, 1)


@slotted
class Recovered:
    """An opened log, and the repairs of its recovery."""

    log: Log
    cut_bytes: int = 0
    """Number of bytes removed from the end: torn or corrupt batches, and the segments behind them."""
    scanned_bytes: int = 0
    first_scanned: int | None = None
    """Base offset of the first segment that was checked batch by batch."""
    reason: str | None = None
    rebuilt: list[str] = field(default_factory=list)
    """Lost or damaged files that were rebuilt from the batches, each with the damage."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """(first, last) offset of each gap in the log. Only for logs that were never compacted."""
    doomed: list[Path] = field(default_factory=list)
    """Renamed files (``.deleted``) for the caller to remove in a thread: big ones take long."""


@slotted(frozen=True)
class OpenOptions:
    """Parameters of opening a log, besides its files."""

    topic_id: uuid.UUID
    config: LogConfig
    now_ms: int
    clean: bool
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int | None = None
    """Records below this offset are committed. None for a partition with one replica, where all records are committed."""
    producer_id_expiration_ms: int = 86_400_000
    jitter: Callable[[int], int] = lambda bound_ms: 0


def open_log(directory: Path, options: OpenOptions) -> Recovered:
    """Open the log in ``directory``. If there is no directory, the log is empty and has no files yet."""
    recovered = Recovered(_empty(directory, options))
    folder = Folder(directory, doomed=recovered.doomed)
    try:
        folder.look()
    except (FileNotFoundError, NotADirectoryError):
        return recovered
    except OSError as error:
        raise StorageError(directory, error) from error
    try:
        folder.finish()
        segments = _segments(folder, options)
        checked = _check_segments(folder, segments, options, recovered)
        end_offset = _load_end(segments, options, recovered, checked)
        recovered.log = _assemble(directory, segments, end_offset, options, recovered)
        if "compact" not in options.config.cleanup_policy:
            recovered.gaps = list(gaps(segments, options.log_start_offset))
        if options.clean and not checked:
            recovered.log.note_sealed()
        _load_producers(recovered.log, options, checked, folder.offsets("snapshot"))
        if read_partition_metadata(directory) is None:
            write_partition_metadata(directory, options.topic_id)
    except (OSError, CorruptBatch) as error:
        raise StorageError(directory, str(error)) from error
    return recovered


def truncate(log: Log, offset: int, options: OpenOptions) -> None:
    """Cut every batch with offsets at or above ``offset``, and restore the producer state of that offset.

    If there is nothing to cut, the producer state does not change: a reload would lose all but the last batch of each
    producer before the snapshot.
    """
    if not log.truncate_to(offset):
        return
    if log.exists:
        folder = Folder(log.directory)
        folder.look()
        _load_producers(log, options, {}, folder.offsets("snapshot"))
    else:
        log.restore_producers(ProducerStateManager(), 0)


def truncate_fully_and_start_at(log: Log, offset: int, now_ms: int) -> list[Path]:
    """Remove all batches and continue at ``offset``, because the leader's log starts above the end of this one.

    Returns files for the caller to remove in a thread.
    """
    doomed = log.truncate_fully(offset, now_ms)
    if log.exists:
        folder = Folder(log.directory)
        folder.look()
        folder.remove("snapshot")
    return doomed


def _empty(directory: Path, options: OpenOptions) -> Log:
    start = options.log_start_offset
    return Log(directory, options.topic_id, options.config, log_start_offset=start, jitter=options.jitter)


# -- segments ---------------------------------------------------------------------------------------------------


class _Checked(NamedTuple):
    """Result of the check of one segment, for the later steps of the recovery."""

    replay_from: int
    """Offset from which the segment's aborted transactions must be indexed again."""
    end_offset: int
    whole: Check | None
    """The check, with which the producer state can be restored without a replay. None if the check began inside
    the segment, or found transactions."""


def _segments(folder: Folder, options: OpenOptions) -> list[Segment]:
    """The segments in the folder, by base offset."""
    aborting = folder.offsets("txnindex")
    segments = [
        Segment(
            folder.path,
            base,
            created_ms=options.now_ms,
            size=folder.sizes[base],
            has_aborted=base in aborting,
        )
        for base in sorted(folder.sizes)
    ]
    if segments:
        segments[-1].jitter_ms = options.jitter(
            min(options.config.segment_jitter_ms, options.config.segment_ms)
        )
    return segments


def _check_segments(
    folder: Folder, segments: list[Segment], options: OpenOptions, recovered: Recovered
) -> dict[int, _Checked]:
    """Check every batch that may not have reached the disk. The log ends at the first invalid batch.

    Returns the results of the checked segments, by base offset. After a crash these are the segments from the recovery point
    on, otherwise the segments without an index. A segment that ends exactly at the recovery point is checked too, as it may
    not have been sealed by then.
    """
    checked: dict[int, _Checked] = {}
    transactions = TransactionIndexes(folder, segments, options.log_start_offset)
    indexed = folder.offsets("index") & folder.offsets("timeindex")
    for index, segment in enumerate(segments):
        base = segment.base_offset
        next_base = segments[index + 1].base_offset if index + 1 < len(segments) else None
        usable = base in indexed and (not segment.has_aborted or segment.transaction_index.is_sane(base))
        below = next_base is not None and next_base <= options.recovery_point
        if usable and (options.clean or (below and next_base != options.recovery_point)):
            if not transactions.is_lost(segment):
                continue
            usable = False
            recovered.rebuilt.append(f"{segment.path('txnindex')}: is missing")
        checked[base], cut = _check_segment(segment, options, recovered, believe=usable and not options.clean)
        if below and not cut:
            segment.sync()  # no flush will sync it, because it is below the recovery point
        if cut or _lacks_its_end(checked[base], next_base, options, recovered):
            _remove_from(segments, index + 1, recovered)
            break
    return checked


def _check_segment(
    segment: Segment, options: OpenOptions, recovered: Recovered, *, believe: bool
) -> tuple[_Checked, int]:
    """Check one segment, rebuild its indexes and record the repairs in ``recovered``.

    Returns (result, number of bytes cut off). ``believe``: whether the segment has indexes whose entries below the
    recovery point may be trusted. If so, the check begins at the last of these entries.
    """
    point = options.recovery_point
    start = _start_inside(segment, point) if believe and point > segment.base_offset else None
    if not start:
        segment.offset_index.clear()
        segment.time_index.clear()
        segment.max_timestamp_ms, segment.max_timestamp_offset = -1, segment.base_offset
    if recovered.first_scanned is None:
        recovered.first_scanned = segment.base_offset
    recovered.scanned_bytes += segment.size - (start or 0)
    check = Check(segment, start or 0, options.config.index_interval_bytes)
    check.run()
    cut = segment.size - check.position
    if cut:
        _refuse_old_format(segment, check.position)
        segment.log.truncate(check.position)
    segment.forget_batches()
    segment.seal()
    recovered.cut_bytes += cut
    recovered.reason = check.reason or recovered.reason
    replay_from = segment.base_offset if start is None else min(point, check.end_offset)
    whole = None if start or check.has_transactions else check
    return _Checked(replay_from, check.end_offset, whole), cut


def _start_inside(segment: Segment, recovery_point: int) -> int | None:
    """Position of the batch of the last index entry below the recovery point. Entries after it are removed.

    The flush that moved the recovery point past a batch synced its index entries before (`Log.flush_targets`; Kafka also
    forces its mapped indexes when it flushes a segment). So these entries are complete, and only later ones may be torn:
    zeros, or entries of lost batches. Returns 0 if there is no such entry. Returns None if the entry does not point to a
    whole batch with its offset: then the index cannot be trusted at all.
    """
    count = segment.offset_index.count_below(recovery_point)
    if not count:
        return 0
    relative, position = segment.offset_index.entry(count - 1)
    offset = segment.base_offset + relative
    try:
        batch = next(segment.batches(position, SCAN_BYTES), None)
    except CorruptBatch:
        return None
    if batch is None or batch.last_offset != offset or not batch.has_valid_crc():
        return None
    segment.offset_index.keep(count)
    segment.time_index.keep(segment.time_index.count_below(offset + 1))
    segment.load_timestamps()
    return int(position)


def _refuse_old_format(segment: Segment, position: int) -> None:
    """Raise if there is a whole message of format 0 or 1 (Kafka before 0.11).

    Such a message is not damage, so it must not be cut off.
    """
    header = segment.log.read(position, _OLD_HEADER.size)
    if len(header) < _OLD_HEADER.size:
        return
    length, expected, magic = _OLD_HEADER.unpack(header)
    start, end = position + _OLD_CRC_FROM, position + LOG_OVERHEAD_BYTES + length
    if magic not in _OLD_FORMATS or not start < end <= segment.size:
        return
    crc = 0
    while start < end:
        piece = segment.log.read(start, min(end - start, REPLAY_BYTES))
        crc = crc32(piece, crc)
        start += len(piece)
    if crc == expected:
        raise StorageError(
            segment.log.path,
            f"there is a message of format {magic} at position {position}: only format 2 can be read "
            "(Kafka 0.11 and newer), and nothing was changed",
        )


def _lacks_its_end(
    checked: _Checked, next_base: int | None, options: OpenOptions, recovered: Recovered
) -> bool:
    """Whether the last batches of a segment were lost in a power cut, although the next segment was not.

    False in compacted logs, where compaction causes such gaps, and for a folder that was copied without checkpoints.
    """
    if (
        next_base is None
        or options.clean
        or options.recovery_point <= 0
        or "compact" in options.config.cleanup_policy
    ):
        return False
    if checked.end_offset >= next_base:
        return False
    recovered.reason = f"offsets {checked.end_offset} to {next_base - 1} are missing"
    return True


def _remove_from(segments: list[Segment], index: int, recovered: Recovered) -> None:
    for later in segments[index:]:
        recovered.cut_bytes += later.size
        recovered.doomed += retire(later)
    del segments[index:]


def _load_end(
    segments: list[Segment], options: OpenOptions, recovered: Recovered, checked: dict[int, _Checked]
) -> int:
    """Log end offset. Checks the last segment if it does not end with a whole batch.

    After a clean stop the segment ends with a whole batch, unless the partition folder is a copy taken from a running
    broker.
    """
    if not segments:
        return options.log_start_offset
    last = segments[-1]
    if last.base_offset not in checked:
        try:
            return last.load_end()
        except CorruptBatch:
            checked[last.base_offset], _ = _check_segment(last, options, recovered, believe=False)
    return checked[last.base_offset].end_offset


def _assemble(
    directory: Path, segments: list[Segment], end: int, options: OpenOptions, recovered: Recovered
) -> Log:
    if end < options.log_start_offset:
        # The process died while it deleted all segments: continue at the log start, where the deletion would have ended.
        for segment in segments:
            recovered.doomed += retire(segment)
        segments, end = [], options.log_start_offset
    start = max(options.log_start_offset, segments[0].base_offset if segments else 0)
    log = Log(
        directory,
        options.topic_id,
        options.config,
        segments=segments,
        log_start_offset=start,
        jitter=options.jitter,
    )
    log.log_end_offset = end
    wrong = load_epochs(log)
    if wrong is not None:
        recovered.rebuilt.append(wrong)
    if not segments:
        log.create(options.now_ms)
    log.flushed_up_to(end if options.clean else min(options.recovery_point, end))
    # Keep an epoch that begins at the log end and has no records yet.
    log.epochs.truncate_from_end(end + 1)
    log.epochs.truncate_from_start(start)
    return log


# -- producers --------------------------------------------------------------------------------------------------


def _load_producers(
    log: Log, options: OpenOptions, checked: dict[int, _Checked], snapshots: set[int]
) -> None:
    """Load the newest usable snapshot, then replay the batches after it, without the checks for new batches.

    The replay begins no later than the first checked batch, because it indexes the aborted transactions of checked segments
    again. It begins no later than the high watermark either: a transaction whose marker is above the high watermark limits
    the last stable offset, and a snapshot taken after the marker does not say where it began. (Kafka forgets such
    transactions: ``ProducerStateManager.truncateAndReload``.)
    """
    if checked:
        _forget_aborted(log, checked)
    replay_from = min((known.replay_from for known in checked.values()), default=log.log_end_offset)
    if options.high_watermark is not None:
        replay_from = min(replay_from, options.high_watermark)
    offset = _restore_snapshot(log, options, replay_from, snapshots)
    if offset == log.log_end_offset:
        return
    for segment in log.segments[log.segment_index(offset) :]:
        if segment.base_offset > offset:
            log.take_snapshot(segment.base_offset)
        known = checked.get(segment.base_offset)
        if known is None or known.whole is None or offset > segment.base_offset:
            _replay(segment, offset, log)
        else:
            _take_over(known.whole, log)
    if log.producers.entries or log.size > REPLAY_BYTES:
        log.take_snapshot()  # a small log without producers is read faster than a snapshot is written
    if checked:
        # Keep the last five batches of each producer that were read: a client with five requests in flight may repeat any
        # of them. Kafka continues with the snapshot that it has just written, which has only the last one.
        log.producers.expire(options.now_ms, options.producer_id_expiration_ms)


def _forget_aborted(log: Log, checked: dict[int, _Checked]) -> None:
    for segment in log.segments:
        known = checked.get(segment.base_offset)
        if known is not None and segment.has_aborted:
            if known.replay_from == segment.base_offset:
                segment.transaction_index.clear()
            else:
                segment.transaction_index.truncate(known.replay_from)


def _restore_snapshot(log: Log, options: OpenOptions, offset_max: int, snapshots: set[int]) -> int:
    """Load the newest valid snapshot up to an offset; returns its offset, or the log start offset if there is none."""
    log.restore_producers(ProducerStateManager(), 0)
    restored = None
    for offset in sorted(snapshots, reverse=True):
        path = f"{log.directory}/{file_name(offset, 'snapshot')}"
        if not log.log_start_offset < offset <= min(offset_max, log.log_end_offset):
            remove(path)
        elif restored is None:
            restored = _read_snapshot(path, options)
            if restored is not None:
                log.restore_producers(restored, offset)
    return log.last_snapshot_offset if restored is not None else log.log_start_offset


def _read_snapshot(path: str, options: OpenOptions) -> ProducerStateManager | None:
    """Producer state of a snapshot. Removes an invalid snapshot and returns None."""
    try:
        entries = producer_snapshot.decode(read_file(path) or b"")
    except producer_snapshot.MalformedSnapshot:
        remove(path)
        return None
    return _restored(entries, options)


def _restored(
    entries: list[producer_snapshot.ProducerSnapshotEntry], options: OpenOptions
) -> ProducerStateManager:
    return ProducerStateManager.restore(entries, options.now_ms, options.producer_id_expiration_ms)


def _take_over(check: Check, log: Log) -> None:
    for epoch, first_offset in check.epochs:
        log.epochs.assign(epoch, first_offset)
    for batches in check.last_batches.values():
        for batch in batches:
            log.producers.update(batch, batch.base_offset, batch.max_timestamp)


def _replay(segment: Segment, from_offset: int, log: Log) -> None:
    position = segment.offset_index.position_at_or_before(from_offset)
    indexed: set[int] = set()
    if segment.has_aborted:
        indexed = {entry.last_offset for entry in segment.transaction_index.from_offset(from_offset)}
    for batch in segment.headers(position):
        log.epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        if batch.last_offset < from_offset:
            continue
        aborted = log.producers.replay(batch)
        if aborted is not None and aborted.last_offset not in indexed:
            segment.note_aborted(aborted)
