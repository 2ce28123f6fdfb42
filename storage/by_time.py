"""Searches a batch for the first record at or after a timestamp, in steps, because it may contain a million records."""

from __future__ import annotations

from protocol import compression as codecs
from protocol.batch import CorruptBatch, Reason, RecordBatch
from protocol.record_walk import first_since
from storage.steps import Steps, give_back, limits_sizes, plain_records
from storage.topic_configs import RECORD_BYTES_MAX

_EVERY_DELTA = -(1 << 64)


def first_in_batch(
    batch: RecordBatch, timestamp_ms: int, from_offset: int, record_bytes_max: int
) -> Steps[tuple[int, int] | None]:
    """Find the first record at or above ``from_offset`` with a timestamp at or after ``timestamp_ms``.

    Returns (offset, timestamp in milliseconds), None if no record matches. Raises ``CorruptBatch`` if the records cannot be
    read, or if a compressed batch has a record above ``record_bytes_max`` before or at the one that is found.
    """
    stamped_ms = batch.max_timestamp if batch.is_log_append_time else None
    since = _EVERY_DELTA if stamped_ms is not None else timestamp_ms - batch.base_timestamp
    try:
        body = yield from plain_records(batch, codecs.DECOMPRESSED_BYTES_MAX)
    except codecs.CompressionError as error:
        raise CorruptBatch(Reason.COMPRESSION, str(error)) from None
    try:
        found = yield from first_since(
            body,
            batch.record_count,
            since,
            from_offset - batch.base_offset,
            bytes_max=record_bytes_max if limits_sizes(batch, record_bytes_max) else RECORD_BYTES_MAX,
        )
    except CorruptBatch:
        yield from give_back(body)
        raise
    yield from give_back(body)
    if found is None:
        return None
    offset_delta, timestamp_delta = found
    time_ms = batch.base_timestamp + timestamp_delta if stamped_ms is None else stamped_ms
    return batch.base_offset + offset_delta, time_ms
