"""The headers of a partition's batches that a viewer of the web page has not received yet."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from broker.replicas.partition import Partition
from lab.views.forms import BatchesPiece, BatchView
from lab.views.ports import BATCHES_MAX, HELD_BATCHES_MAX, BatchPosition
from protocol.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, CorruptBatch, RecordBatch, parse_end_txn_marker
from storage.log import Log
from storage.segment import Segment

WINDOW_BYTES: Final = 16 * 1024
"""Number of bytes per read, enough for two hundred markers or the header of a large batch."""
TAIL_OFFSETS: Final = (BATCHES_MAX, 16 * BATCHES_MAX, 256 * BATCHES_MAX)
"""Distances from the log's end, in offsets, from which the first read may begin. If the read finds less than
``TAIL_BATCHES_MIN`` batches, the next distance is tried."""
TAIL_BATCHES_MIN: Final = 50


def newer(partition: Partition, position: BatchPosition) -> BatchesPiece | None:
    """Return the batches since ``position``, and advance ``position``; None if nothing changed.

    Raises ``StorageError`` if a read fails.
    """
    log = partition.log
    start, end = log.log_start_offset, log.log_end_offset
    marks = (start, partition.last_stable_offset, partition.high_watermark, partition.leader_epoch)
    if position.next_offset == end and marks == _marks_of(position):
        return None
    # Another leader may have truncated the shown batches and written the same offsets again.
    restarted = not start <= position.next_offset <= end or position.leader_epoch != partition.leader_epoch
    found = _tail(log) if restarted else list(islice(headers(log, position.next_offset), BATCHES_MAX + 1))
    if len(found) > BATCHES_MAX:
        restarted, found = True, _tail(log)
    position.next_offset = found[-1].last_offset + 1 if found else end
    position.log_start, position.last_stable, position.high_watermark, position.leader_epoch = marks
    return BatchesPiece(
        topic=partition.topic,
        partition=partition.index,
        restarted=restarted,
        batches=found,
        held=_held(log, position, found),
        log_start=start,
        last_stable=position.last_stable,
        high_watermark=position.high_watermark,
        log_end=end,
    )


def batch_view(batch: RecordBatch) -> BatchView:
    """The JSON form of a batch. The batch must be complete if it is a marker; otherwise its header is enough."""
    return BatchView(
        batch.base_offset,
        batch.last_offset,
        batch.record_count,
        batch.size,
        _kind(batch),
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.max_timestamp,
        batch.partition_leader_epoch,
    )


def headers(log: Log, offset: int) -> Iterator[BatchView]:
    """Views of the batches beginning with the one that contains ``offset``. Reads no records."""
    place = log.locate(max(offset, log.log_start_offset))
    if place is None:
        return
    position = place.position
    segments = log.segments
    for segment in segments[segments.index(place.segment) :]:
        yield from _headers_of(segment, position)
        position = 0


def _headers_of(segment: Segment, position: int) -> Iterator[BatchView]:
    while position < segment.size:
        window = segment.log.read(position, WINDOW_BYTES)
        at = 0
        while at + HEADER_BYTES <= len(window):
            size = LOG_OVERHEAD_BYTES + int.from_bytes(window[at + 8 : at + LOG_OVERHEAD_BYTES], "big")
            is_whole = at + size <= len(window)
            if not is_whole and at > 0:
                break  # read it whole, because it may be a marker
            yield batch_view(
                RecordBatch.parse(window, at) if is_whole else RecordBatch.parse_header(window[:HEADER_BYTES])
            )
            at += size
        if at == 0:
            return  # a batch that is being written
        position += at


def _tail(log: Log) -> list[BatchView]:
    found: list[BatchView] = []
    for back in TAIL_OFFSETS:
        offset = max(log.log_start_offset, log.log_end_offset - back)
        found = list(headers(log, offset))
        if len(found) >= TAIL_BATCHES_MIN or offset == log.log_start_offset:
            break
    return found[-BATCHES_MAX:]


def _held(log: Log, position: BatchPosition, found: list[BatchView]) -> list[BatchView]:
    """The first batches after the last stable offset, which readers wait for.

    Empty if the last stable offset is the high watermark, or if ``found`` begins at or below the last stable offset.
    """
    last_stable = position.last_stable
    if last_stable >= position.high_watermark or (found and found[0].base_offset <= last_stable):
        return []
    return list(islice(headers(log, last_stable), HELD_BATCHES_MAX))


def _marks_of(position: BatchPosition) -> tuple[int, int, int, int]:
    return (position.log_start, position.last_stable, position.high_watermark, position.leader_epoch)


def _kind(batch: RecordBatch) -> str:
    if not batch.is_control:
        return "transactional" if batch.is_transactional else "data"
    try:
        marker = parse_end_txn_marker(batch)
    except CorruptBatch:
        marker = None
    if marker is None:
        return "control"
    return "commit" if marker.committed else "abort"
