"""Opening a partition's directory: after a clean stop as it stands, after a crash by reading what was not yet flushed.

The order is Kafka's (``LogLoader``): leftovers of deletions and compactions first, then segments, then the producers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from protocol.batch import CorruptBatch, RecordBatch, parse_end_txn_marker
from protocol.records import producer_snapshot
from storage.checkpoints import read_partition_metadata, write_partition_metadata
from storage.config import LogConfig
from storage.epochs import LeaderEpochs
from storage.files import AppendFile, StorageError
from storage.log import EPOCH_FILE, RELATIVE_OFFSET_MAX, Log
from storage.producers import Producers
from storage.segment import SEGMENT_SUFFIXES, Segment, file_name


@dataclass(slots=True)
class Recovered:
    """A log that is ready, and what it took."""

    log: Log
    cut_bytes: int = 0
    """Bytes removed from the end: torn or corrupt batches, whole segments behind them."""
    scanned_bytes: int = 0
    first_scanned: int | None = None
    """Base offset of the first segment that was checked batch by batch."""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """What opening a log depends on besides its files."""

    topic_id: uuid.UUID
    config: LogConfig
    now_ms: int
    clean: bool
    recovery_point: int = 0
    log_start_offset: int = 0
    producer_id_expiration_ms: int = 86_400_000
    jitter: Callable[[int], int] = lambda bound_ms: 0


def open_log(directory: Path, options: OpenOptions) -> Recovered:
    """The log in ``directory``; an empty one, not yet on the disk, where there is no directory."""
    recovered = Recovered(_empty(directory, options))
    if not directory.is_dir():
        return recovered
    try:
        _remove_leftovers(directory)
        segments = _segments(directory, options)
        checked = _check_segments(segments, options, recovered)
        end_offset = _load_end(segments, options, recovered, checked)
        recovered.log = _assemble(directory, segments, end_offset, options)
        _load_producers(recovered.log, options, checked)
        if read_partition_metadata(directory) is None:
            write_partition_metadata(directory, options.topic_id)
    except (OSError, CorruptBatch) as error:
        raise StorageError(directory, str(error)) from error
    return recovered


def truncate(log: Log, offset: int, options: OpenOptions) -> None:
    """Cut every batch that holds ``offset`` or more; producers stand afterwards where they stood then."""
    log.truncate_to(offset)
    if log.exists:
        _load_producers(log, options, set())
    else:
        log.restore_producers(Producers(), 0)


def _empty(directory: Path, options: OpenOptions) -> Log:
    start = options.log_start_offset
    return Log(directory, options.topic_id, options.config, log_start_offset=start, jitter=options.jitter)


# -- files ------------------------------------------------------------------------------------------------------


def _files(directory: Path, suffix: str) -> dict[int, list[Path]]:
    """The files whose names are an offset and end like this, by offset; others are nobody's business here."""
    found: dict[int, list[Path]] = {}
    for path in sorted(directory.iterdir()):
        offset, dot, rest = path.name.partition(".")
        if dot and offset.isascii() and offset.isdecimal() and f".{rest}".endswith(suffix):
            found.setdefault(int(offset), []).append(path)
    return found


def _remove_leftovers(directory: Path) -> None:
    """Finish what a deletion or a compaction was doing when the process ended."""
    cleaned = _files(directory, ".cleaned")
    for path in (*directory.glob("*.deleted"), *directory.glob("*.cleaned"), *directory.glob("*.tmp")):
        path.unlink()
    swaps = _files(directory, ".swap")
    # A swap from where on another file was still being cleaned belongs to a compaction that had not finished.
    for base in [base for base in swaps if cleaned and base >= min(cleaned)]:
        for path in swaps.pop(base):
            path.unlink()
    if swaps:
        _swap_in(directory, swaps)


def _swap_in(directory: Path, swaps: dict[int, list[Path]]) -> None:
    """Compacted segments take the place of those whose offsets they cover."""
    end = max(_end_of_swap(directory, base) for base in swaps)
    for suffix in SEGMENT_SUFFIXES:
        for base, paths in _files(directory, f".{suffix}").items():
            if min(swaps) <= base < end:
                for path in paths:
                    path.unlink()
    for paths in swaps.values():
        for path in paths:
            path.rename(path.with_suffix(""))


def _end_of_swap(directory: Path, base: int) -> int:
    segment = Segment(directory, base, created_ms=0)
    segment.log = AppendFile(directory / file_name(base, "log.swap"))
    end = base
    if segment.size:
        for batch in segment.batches():
            end = batch.last_offset + 1
    segment.close()
    return end


def _segments(directory: Path, options: OpenOptions) -> list[Segment]:
    """The segments by base offset; index files without a log are removed."""
    bases = _files(directory, ".log")
    for suffix in SEGMENT_SUFFIXES[1:]:
        for base, paths in _files(directory, f".{suffix}").items():
            if base not in bases:
                for path in paths:
                    path.unlink()
    segments = []
    for base in sorted(bases):
        jitter_ms = options.jitter(min(options.config.segment_jitter_ms, options.config.segment_ms))
        segments.append(Segment(directory, base, created_ms=options.now_ms, jitter_ms=jitter_ms))
    return segments


# -- segments ---------------------------------------------------------------------------------------------------


def _check_segments(segments: list[Segment], options: OpenOptions, recovered: Recovered) -> set[int]:
    """Check every batch that may not have reached the disk; at the first bad one the log ends.

    Returns the base offsets of what was checked: after a crash from the recovery point on, else what lacks an index.
    """
    checked = set()
    for index, segment in enumerate(segments):
        next_base = segments[index + 1].base_offset if index + 1 < len(segments) else None
        flushed = options.clean or (next_base is not None and next_base <= options.recovery_point)
        if flushed and _has_indexes(segment):
            segment.load_timestamps()
            continue
        checked.add(segment.base_offset)
        if _check_segment(segment, options, recovered) or _lacks_its_end(
            segment, next_base, options, recovered
        ):
            _remove_from(segments, index + 1, recovered)
            break
    return checked


def _has_indexes(segment: Segment) -> bool:
    return (
        segment.offset_index.path.exists()
        and segment.time_index.path.exists()
        and segment.transaction_index.is_sane(segment.base_offset)
    )


def _check_segment(segment: Segment, options: OpenOptions, recovered: Recovered) -> bool:
    """Check one segment and note what it took; whether something was cut."""
    recovered.scanned_bytes += segment.size
    if recovered.first_scanned is None:
        recovered.first_scanned = segment.base_offset
    cut, reason = _recover_segment(segment, options)
    recovered.cut_bytes += cut
    recovered.reason = reason or recovered.reason
    return cut > 0


def _lacks_its_end(
    segment: Segment, next_base: int | None, options: OpenOptions, recovered: Recovered
) -> bool:
    """Whether a power cut took whole batches from the end of a segment, but not the segment after it.

    Compaction leaves such gaps as well, and so may a folder that came without its checkpoints: there they are kept.
    """
    if (
        next_base is None
        or options.clean
        or options.recovery_point <= 0
        or "compact" in options.config.cleanup_policy
    ):
        return False
    end_offset = segment.load_end()
    if end_offset >= next_base:
        return False
    recovered.reason = f"offsets {end_offset} to {next_base - 1} are not there"
    return True


def _remove_from(segments: list[Segment], index: int, recovered: Recovered) -> None:
    for later in segments[index:]:
        recovered.cut_bytes += later.size
        later.delete()
    del segments[index:]


def _recover_segment(segment: Segment, options: OpenOptions) -> tuple[int, str | None]:
    """Rebuild a segment's offset and time index from its log; returns the bytes cut and why.

    The transaction index needs the producer state and is rebuilt with it, in ``_load_producers``.
    """
    segment.offset_index.clear()
    segment.time_index.clear()
    segment.forget_batches()
    segment.max_timestamp_ms, segment.max_timestamp_offset = -1, segment.base_offset
    size = segment.size
    valid, reason = 0, None
    previous = segment.base_offset - 1
    try:
        for batch in segment.batches():
            reason = _problem(batch, segment.base_offset, previous)
            if reason is not None:
                break
            segment.note_batch(
                valid, batch.size, batch.last_offset, batch.max_timestamp, options.config.index_interval_bytes
            )
            previous = batch.last_offset
            valid += batch.size
    except CorruptBatch as error:
        reason = str(error)
    if valid < size:
        segment.log.truncate(valid)
    segment.forget_batches()
    segment.seal()
    return size - valid, reason


def _problem(batch: RecordBatch, base_offset: int, previous: int) -> str | None:
    if not batch.has_valid_crc():
        return f"the CRC of the batch at offset {batch.base_offset} does not match"
    if batch.base_offset <= previous or batch.last_offset < batch.base_offset:
        return f"offsets {batch.base_offset} to {batch.last_offset} cannot follow {previous}"
    if batch.last_offset - base_offset > RELATIVE_OFFSET_MAX:
        return f"offset {batch.last_offset} is too far from the segment's base {base_offset}"
    return None


def _load_end(segments: list[Segment], options: OpenOptions, recovered: Recovered, checked: set[int]) -> int:
    """Where the log ends. A last segment that does not end with a whole batch is checked after all.

    A clean stop leaves none such; a partition folder copied from a running broker may be one.
    """
    if not segments:
        return options.log_start_offset
    last = segments[-1]
    try:
        return last.load_end()
    except CorruptBatch:
        _check_segment(last, options, recovered)
        checked.add(last.base_offset)
        return last.load_end()


def _assemble(directory: Path, segments: list[Segment], end: int, options: OpenOptions) -> Log:
    if end < options.log_start_offset:
        # Everything was deleted before the crash: begin again where the deletion ended.
        for segment in segments:
            segment.delete()
        segments, end = [], options.log_start_offset
    start = max(options.log_start_offset, segments[0].base_offset if segments else 0)
    log = Log(
        directory,
        options.topic_id,
        options.config,
        segments=segments,
        log_start_offset=start,
        epochs=LeaderEpochs.load(directory / EPOCH_FILE),
        jitter=options.jitter,
    )
    log.log_end_offset = end
    if not segments:
        log.create(options.now_ms)
    log.flushed_up_to(end if options.clean else min(options.recovery_point, end))
    # An epoch that began at the end, with no record yet, stays.
    log.epochs.truncate_from_end(end + 1)
    log.epochs.truncate_from_start(start)
    return log


# -- producers --------------------------------------------------------------------------------------------------


def _load_producers(log: Log, options: OpenOptions, checked: set[int]) -> None:
    """The newest usable snapshot, then the batches after it; without the rules for new batches (origin replication).

    Checked segments get their aborted transactions indexed anew, for which the replay begins no later than the first.
    """
    for segment in log.segments:
        if segment.base_offset in checked:
            segment.transaction_index.clear()
    offset = _restore_snapshot(log, options, min(checked, default=log.log_end_offset))
    if offset == log.log_end_offset:
        return
    first = log.segment_index(offset)
    for segment in log.segments[first:]:
        if segment.base_offset > offset:
            log.take_snapshot(segment.base_offset)
        _replay(segment, offset, log)
    log.take_snapshot()
    if checked:
        # Kafka goes on from the snapshot that it has just taken: the last batch of each producer, not the last five.
        log.restore_producers(_restored(log.producers.snapshot(), options), log.log_end_offset)


def _restore_snapshot(log: Log, options: OpenOptions, offset_max: int) -> int:
    """Take the state of the newest good snapshot up to an offset; returns its offset, or the log start without any."""
    snapshots = [paths[0] for _, paths in sorted(_files(log.directory, ".snapshot").items())]
    log.restore_producers(Producers(), 0)
    restored = None
    for path in reversed(snapshots):
        offset = int(path.stem)
        if not log.log_start_offset < offset <= min(offset_max, log.log_end_offset):
            path.unlink()
        elif restored is None:
            restored = _read_snapshot(path, options)
            if restored is not None:
                log.restore_producers(restored, offset)
    return log.last_snapshot_offset if restored is not None else log.log_start_offset


def _read_snapshot(path: Path, options: OpenOptions) -> Producers | None:
    """The state in a snapshot; one that cannot be used is removed."""
    try:
        entries = producer_snapshot.decode(path.read_bytes())
    except producer_snapshot.MalformedSnapshot:
        path.unlink()
        return None
    return _restored(entries, options)


def _restored(entries: list[producer_snapshot.ProducerSnapshotEntry], options: OpenOptions) -> Producers:
    return Producers.restore(entries, options.now_ms, options.producer_id_expiration_ms)


def _replay(segment: Segment, from_offset: int, log: Log) -> None:
    position = segment.offset_index.position_at_or_before(from_offset)
    indexed = {entry.last_offset for entry in segment.transaction_index.entries()}
    for batch in segment.batches(position):
        log.epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        if batch.last_offset < from_offset or batch.producer_id < 0:
            continue
        if not batch.is_control:
            log.producers.update(batch, batch.base_offset, batch.max_timestamp)
            continue
        marker = parse_end_txn_marker(batch)
        if marker is None:
            continue
        aborted = log.producers.complete(
            batch.producer_id, batch.producer_epoch, marker, batch.base_offset, batch.max_timestamp
        )
        if aborted is not None and aborted.last_offset not in indexed:
            segment.transaction_index.append(aborted)
