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
from storage.config import LogConfig
from storage.epochs import LeaderEpochs
from storage.files import StorageError
from storage.log import EPOCH_FILE, RELATIVE_OFFSET_MAX, Log
from storage.producers import Producers
from storage.segment import Segment, file_name


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
    if not directory.is_dir():
        return Recovered(_empty(directory, options, options.log_start_offset))
    try:
        _remove_leftovers(directory)
        segments = _segments(directory, options)
        recovered = Recovered(_empty(directory, options, options.log_start_offset))
        if not options.clean:
            _recover_segments(segments, options, recovered)
        recovered.log = _assemble(directory, segments, options)
        _load_producers(recovered, options)
    except OSError as error:
        raise StorageError(directory, error) from error
    return recovered


def _empty(directory: Path, options: OpenOptions, offset: int) -> Log:
    return Log(directory, options.topic_id, options.config, log_start_offset=offset, jitter=options.jitter)


def _remove_leftovers(directory: Path) -> None:
    """Finish what a deletion or a compaction was doing when the process ended."""
    cleaned = [int(path.name.split(".")[0]) for path in directory.glob("*.cleaned")]
    for path in (*directory.glob("*.deleted"), *directory.glob("*.cleaned"), *directory.glob("*.tmp")):
        path.unlink()
    # A swap whose compaction had not finished elsewhere is not complete; the others take their place.
    for path in sorted(directory.glob("*.swap")):
        if cleaned and int(path.name.split(".")[0]) >= min(cleaned):
            path.unlink()
        else:
            path.rename(path.with_suffix(""))


def _segments(directory: Path, options: OpenOptions) -> list[Segment]:
    """The segments by base offset; index files without a log are removed, missing indexes rebuilt."""
    bases = sorted(int(path.stem) for path in directory.glob("*.log"))
    known = set(bases)
    for suffix in ("index", "timeindex", "txnindex"):
        for path in directory.glob(f"*.{suffix}"):
            if int(path.stem) not in known:
                path.unlink()
    segments = []
    for base in bases:
        jitter_ms = options.jitter(min(options.config.segment_jitter_ms, options.config.segment_ms))
        segment = Segment(directory, base, created_ms=options.now_ms, jitter_ms=jitter_ms)
        if options.clean and not segment.offset_index.path.exists():
            _recover_segment(segment, options)
        segment.load_timestamps()
        segments.append(segment)
    return segments


def _recover_segments(segments: list[Segment], options: OpenOptions, recovered: Recovered) -> None:
    """Check every batch from the recovery point on; at the first bad one the log ends."""
    for index, segment in enumerate(segments):
        next_base = segments[index + 1].base_offset if index + 1 < len(segments) else None
        if next_base is not None and next_base <= options.recovery_point:
            continue
        recovered.scanned_bytes += segment.size
        if recovered.first_scanned is None:
            recovered.first_scanned = segment.base_offset
        cut, reason = _recover_segment(segment, options)
        if cut:
            recovered.cut_bytes += cut
            recovered.reason = reason
            for later in segments[index + 1 :]:
                recovered.cut_bytes += later.size
                later.close()
                for path in later.paths():
                    path.unlink(missing_ok=True)
            del segments[index + 1 :]
            return


def _recover_segment(segment: Segment, options: OpenOptions) -> tuple[int, str | None]:
    """Rebuild a segment's offset and time index from its log; returns the bytes cut and why.

    The transaction index needs the producer state and is rebuilt with it, in ``_load_producers``.
    """
    segment.offset_index.clear()
    segment.time_index.clear()
    segment.max_timestamp_ms, segment.first_timestamp_ms = -1, -1
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
    if valid:
        segment.time_index.maybe_append(segment.max_timestamp_ms, segment.max_timestamp_offset)
    segment.save_indexes()
    return size - valid, reason


def _problem(batch: RecordBatch, base_offset: int, previous: int) -> str | None:
    if not batch.has_valid_crc():
        return f"the CRC of the batch at offset {batch.base_offset} does not match"
    if batch.last_offset <= previous or batch.last_offset - base_offset > RELATIVE_OFFSET_MAX:
        return f"offset {batch.last_offset} cannot follow {previous}"
    return None


def _assemble(directory: Path, segments: list[Segment], options: OpenOptions) -> Log:
    if segments and _end_of(segments[-1]) < options.log_start_offset:
        # Everything was deleted before the crash: begin again where the deletion ended.
        for segment in segments:
            segment.close()
            for path in segment.paths():
                path.unlink(missing_ok=True)
        segments = []
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
    if not segments:
        log.create(options.now_ms)
    log.refresh_end()
    log.flushed_up_to(
        log.log_end_offset if options.clean else min(options.recovery_point, log.log_end_offset)
    )
    log.epochs.truncate_from_end(log.log_end_offset + 1)
    log.epochs.truncate_from_start(start)
    return log


def _end_of(segment: Segment) -> int:
    last = segment.base_offset
    for batch in segment.batches(segment.offset_index.position_at_or_before(2**62)):
        last = batch.last_offset + 1
    return last


def _load_producers(recovered: Recovered, options: OpenOptions) -> None:
    """The newest usable snapshot, then the batches after it; without the rules for new batches (origin replication)."""
    log = recovered.log
    offset, producers = _newest_snapshot(log, options, recovered.first_scanned)
    log.producers = producers
    replayed = False
    for segment in log.segments[log.segment_index(offset) :] if offset < log.log_end_offset else []:
        if recovered.first_scanned is not None and segment.base_offset >= recovered.first_scanned:
            segment.transaction_index.clear()
        _replay(segment, offset, log, producers)
        replayed = True
    if replayed or not options.clean:
        log.take_snapshot()


def _newest_snapshot(log: Log, options: OpenOptions, first_scanned: int | None) -> tuple[int, Producers]:
    """(offset, state) of the newest snapshot that can be read and covers no more than the log has."""
    for path in sorted(log.directory.glob("*.snapshot"), reverse=True):
        offset = int(path.stem)
        if offset > log.log_end_offset or offset <= log.log_start_offset:
            path.unlink()
            continue
        # The aborted transactions of checked segments are indexed anew, for which their batches are read again.
        if first_scanned is not None and offset > first_scanned:
            path.unlink()
            continue
        try:
            entries = producer_snapshot.decode(path.read_bytes())
        except ValueError:
            path.unlink()
            continue
        log.snapshot_taken_at(offset)
        return offset, Producers.restore(entries, options.now_ms, options.producer_id_expiration_ms)
    return log.log_start_offset, Producers()


def _replay(segment: Segment, from_offset: int, log: Log, producers: Producers) -> None:
    position = segment.offset_index.position_at_or_before(from_offset)
    indexed = {entry.last_offset for entry in segment.transaction_index.entries()}
    for batch in segment.batches(position):
        log.epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        if batch.last_offset < from_offset or batch.producer_id < 0:
            continue
        if not batch.is_control:
            producers.update(batch, batch.base_offset, batch.max_timestamp)
            continue
        marker = parse_end_txn_marker(batch)
        if marker is None:
            continue
        aborted = producers.complete(
            batch.producer_id, batch.producer_epoch, marker, batch.base_offset, batch.max_timestamp
        )
        if aborted is not None and aborted.last_offset not in indexed:
            segment.transaction_index.append(aborted)


def snapshot_path(directory: Path, offset: int) -> Path:
    """Where the snapshot of the producers up to ``offset`` lies."""
    return directory / file_name(offset, "snapshot")
