"""May a client's batch be appended, and as which bytes? Pure; Kafka's counterpart is ``LogValidator``.

Records are decoded only where the topic's settings ask something of each record; header and CRC are always checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from protocol import compression as codecs
from protocol.batch import (
    CorruptBatch,
    Reason,
    RecordBatch,
    recompress,
    with_log_append_time,
    with_max_timestamp,
)
from protocol.errors import ErrorCode
from storage.config import NEVER, LogConfig

LOG_APPEND_TIME = "LogAppendTime"
CODEC_IDS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


class Valid(NamedTuple):
    """The batch to append: the client's own, or one rewritten as the topic's settings demand."""

    batch: RecordBatch
    log_append_time_ms: int
    """-1 on a CreateTime topic."""


class Invalid(NamedTuple):
    """Why not. ``tells_log_start``: whether Kafka's answer carries the real log start offset with this error."""

    error: ErrorCode
    message: str
    tells_log_start: bool = True
    record_errors: Sequence[tuple[int, str | None]] = ()


def validate(
    batch: RecordBatch, config: LogConfig, now_ms: int, clients_now_ms: int | None = None
) -> Valid | Invalid:
    """The checks of an append by a client, in Kafka's order (size, CRC, counts, records, timestamps, result).

    ``clients_now_ms`` is what a client may think that it is, where the broker's ``now_ms`` is ahead.
    """
    clients_now_ms = now_ms if clients_now_ms is None else clients_now_ms
    problem = _check_header(batch, config)
    if problem is not None:
        return problem
    log_append_time = config.message_timestamp_type == LOG_APPEND_TIME
    try:
        problem = _check_records(batch, config, clients_now_ms, now_ms, log_append_time=log_append_time)
        if problem is not None:
            return problem
        batch = _rewrite(batch, config, now_ms, log_append_time=log_append_time)
    except CorruptBatch as error:
        # Kafka foresees a wrong count only; what else can be wrong inside surprises it.
        foreseen = error.reason is Reason.COUNT
        return Invalid(ErrorCode.invalid_record if foreseen else ErrorCode.unknown_server_error, str(error))
    if batch.size > config.max_message_bytes:
        return Invalid(ErrorCode.message_too_large, _too_large(batch, config), tells_log_start=False)
    if batch.size > config.segment_bytes:
        return Invalid(
            ErrorCode.record_list_too_large,
            f"{batch.size} bytes do not fit into a segment of {config.segment_bytes}",
            tells_log_start=False,
        )
    return Valid(batch, now_ms if log_append_time else -1)


def _too_large(batch: RecordBatch, config: LogConfig) -> str:
    return f"a batch of {batch.size} bytes is larger than max.message.bytes {config.max_message_bytes}"


def _check_header(batch: RecordBatch, config: LogConfig) -> Invalid | None:
    if batch.base_offset != 0:
        return Invalid(ErrorCode.invalid_record, f"base offset {batch.base_offset} is not 0")
    if batch.size > config.max_message_bytes:
        return Invalid(ErrorCode.message_too_large, _too_large(batch, config), tells_log_start=False)
    if not batch.has_valid_crc():
        return Invalid(ErrorCode.corrupt_message, "the CRC does not match", tells_log_start=False)
    if batch.compression > codecs.ZSTD:
        return Invalid(ErrorCode.unknown_server_error, f"nobody has defined codec {batch.compression}")
    count = batch.last_offset_delta + 1
    if count <= 0 or batch.record_count <= 0 or count != batch.record_count:
        return Invalid(
            ErrorCode.invalid_record, f"{batch.record_count} records cannot span {count} offsets of one batch"
        )
    if batch.is_control:
        return Invalid(ErrorCode.invalid_record, "clients may not write control batches")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        return Invalid(ErrorCode.invalid_record, f"producer {batch.producer_id} sent no sequence")
    return None


def _check_records(
    batch: RecordBatch, config: LogConfig, from_ms: int, to_ms: int, *, log_append_time: bool
) -> Invalid | None:
    """Null keys on a compacted topic, and timestamps that may not be; all offenders of a batch are named."""
    compacted = "compact" in config.cleanup_policy
    earliest_ms, latest_ms = _timestamp_bounds(config, from_ms, to_ms)
    bounded = not log_append_time and (earliest_ms is not None or batch.max_timestamp > latest_ms)
    stamped = log_append_time and batch.is_log_append_time
    if not compacted and not bounded and not stamped:
        return None
    errors: list[tuple[int, str | None]] = []
    worst = ErrorCode.invalid_record
    for index, record in enumerate(batch.records()):
        if compacted and record.key is None:
            errors.append((index, "Compacted topic cannot accept message without key"))
        elif stamped:
            errors.append((index, "Producer should not set timestamp type to LogAppendTime."))
            worst = ErrorCode.invalid_timestamp
        elif bounded and record.timestamp != -1:
            too_old = earliest_ms is not None and record.timestamp < earliest_ms
            if too_old or record.timestamp > latest_ms:
                errors.append((index, f"Timestamp {record.timestamp} is out of range"))
                worst = ErrorCode.invalid_timestamp
    if not errors:
        return None
    return Invalid(worst, "One or more records have been rejected", record_errors=errors)


def _timestamp_bounds(config: LogConfig, from_ms: int, to_ms: int) -> tuple[int | None, int]:
    before = config.message_timestamp_before_max_ms
    return (None if before == NEVER else from_ms - before), to_ms + config.message_timestamp_after_max_ms


def _rewrite(batch: RecordBatch, config: LogConfig, now_ms: int, *, log_append_time: bool) -> RecordBatch:
    """The bytes that the topic wants; the client's own where it already sent these."""
    wanted = CODEC_IDS.get(config.compression_type)
    if wanted is not None and wanted != batch.compression:
        batch = RecordBatch.parse(recompress(batch, wanted, _level(config)))
    if log_append_time:
        return RecordBatch.parse(with_log_append_time(batch, now_ms))
    if batch.is_log_append_time:
        largest = max(record.timestamp for record in _create_time(batch).records())
        return RecordBatch.parse(with_max_timestamp(batch, largest))
    return batch


def _create_time(batch: RecordBatch) -> RecordBatch:
    """The batch without its LogAppendTime flag, so that its records show their own timestamps."""
    return RecordBatch.parse(with_max_timestamp(batch, batch.max_timestamp))


def _level(config: LogConfig) -> int | None:
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    level = levels.get(config.compression_type)
    return None if level == -1 and config.compression_type == "gzip" else level
