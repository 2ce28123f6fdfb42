"""Decides whether a client's batch may be appended, and which bytes are appended. Kafka's counterpart: ``LogValidator``.

Pure. Header and CRC are always checked. Records are read only if the topic's or the broker's settings require it. Reading
may take long (a kilobyte can contain a million records), so it is done in steps, and the caller decides what happens between
two of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from protocol import compression as codecs
from protocol.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    CorruptBatch,
    Reason,
    RecordBatch,
    with_body,
    with_log_append_time,
    with_max_timestamp,
)
from protocol.batch import LOG_APPEND_TIME as LOG_APPEND_TIME_BIT
from protocol.errors import ErrorCode
from protocol.named_tuple import NamedTuple
from protocol.record_walk import RECORD_BYTES_MIN, Buffer, Walked, check_count, renumbered, walk
from storage.config import NEVER, LogConfig
from storage.steps import Steps, check_sizes, give_back, limits_sizes, plain_records, run

LOG_APPEND_TIME = "LogAppendTime"
CODEC_IDS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

RECORD_ERRORS_MAX: Final = 1000
"""Maximum number of invalid records named in one response. Kafka names all of them."""
COMPRESSED_AT_ONCE_BYTES: Final = 32 * 1024
"""Size in bytes above which the records of a batch are compressed in a thread."""
NO_TIMESTAMP: Final = -1
_ALL_TIMES: Final = 1 << 64

Bounds = tuple[int | None, int]
"""The earliest (None: unlimited) and the latest valid timestamp of a record, in milliseconds."""


class BatchLimits(NamedTuple):
    """The broker's bounds for a client's batch, and whether the records of every batch are read (``reads_all``)."""

    records_max: int = 1_000_000
    decompressed_bytes_max: int = codecs.DECOMPRESSED_BYTES_MAX
    reads_all: bool = False


LIMITS: Final = BatchLimits()


class Checked(NamedTuple):
    """A batch that may be appended, before its timestamps are set."""

    batch: RecordBatch
    max_timestamp: int | None
    """Largest timestamp of the records; None if they were not read."""


class Valid(NamedTuple):
    """The batch to append: the client's own, or one rewritten for the topic's settings."""

    batch: RecordBatch
    log_append_time_ms: int
    """Time of the append; -1 on a CreateTime topic."""


class Invalid(NamedTuple):
    """The error for an invalid batch.

    ``tells_log_start``: whether the Produce response with this error has the real log start offset, as in Kafka.
    """

    error: ErrorCode
    message: str
    tells_log_start: bool = True
    record_errors: Sequence[tuple[int, str | None]] = ()


def validate(
    batch: RecordBatch,
    config: LogConfig,
    now_ms: int,
    clients_now_ms: int | None = None,
    limits: BatchLimits = LIMITS,
) -> Valid | Invalid:
    """Run all checks of a client's batch, without a pause and in Kafka's order: size, CRC, counts, records,
    timestamps, size of the result.

    ``clients_now_ms`` is the time by the clients' clocks, to check timestamps. If it is None, ``now_ms`` is used.
    """
    return stamp(run_check(check(batch, config, now_ms, clients_now_ms, limits)), config, now_ms)


def passes_as_sent(batch: RecordBatch, config: LogConfig, now_ms: int, limits: BatchLimits = LIMITS) -> bool:
    """Whether the batch clearly passes `check` and `stamp` without a change. If False, call both.

    This tests the common case in one expression, without any call except for the CRC.
    """
    codec, count = batch.attributes & CODEC_MASK, batch.record_count
    return (
        config.stores_as_sent
        and batch.base_offset == 0
        and batch.size <= config.max_message_bytes
        and batch.size <= config.segment_bytes
        and codec <= codecs.ZSTD
        and not batch.attributes & (CONTROL | LOG_APPEND_TIME_BIT)
        and 0 < count == batch.last_offset_delta + 1
        and (codec != codecs.NONE or count * RECORD_BYTES_MIN <= batch.size - HEADER_BYTES)
        and (batch.producer_id < 0 or batch.base_sequence >= 0)
        and batch.max_timestamp <= now_ms + config.message_timestamp_after_max_ms
        and count <= limits.records_max
        and not limits.reads_all
        and batch.has_valid_crc()
    )


def run_check(checked: Checked | Invalid | Steps[Checked | Invalid]) -> Checked | Invalid:
    """Run all steps of a check one after the other."""
    return checked if isinstance(checked, Checked | Invalid) else run(checked)


def check(
    batch: RecordBatch,
    config: LogConfig,
    now_ms: int,
    clients_now_ms: int | None = None,
    limits: BatchLimits = LIMITS,
    partition: str = "",
) -> Checked | Invalid | Steps[Checked | Invalid]:
    """Check the header, and return the result or, if the records must be read, the steps that do so. `stamp` comes next.

    `passes_as_sent` is the fast path for both (ADR 23). ``partition`` is the partition's name, for error messages.
    """
    clients_now_ms = now_ms if clients_now_ms is None else clients_now_ms
    problem = _check_header(batch, config, limits)
    if problem is not None:
        return problem
    wanted = CODEC_IDS.get(config.compression_type, batch.compression)
    bounds = _timestamp_bounds(config, clients_now_ms, now_ms)
    if limits.reads_all or wanted != batch.compression or _asks_of_records(batch, config, bounds):
        return _read(batch, config, wanted, _Offences(batch, config, bounds, partition), limits)
    return Checked(batch, None)


def _read(
    batch: RecordBatch, config: LogConfig, wanted: int, offences: _Offences, limits: BatchLimits
) -> Steps[Checked | Invalid]:
    try:
        body = yield from plain_records(batch, limits.decompressed_bytes_max)
    except codecs.DecompressedTooLarge as error:
        return Invalid(ErrorCode.message_too_large, str(error), tells_log_start=False)
    except codecs.CompressionError as error:
        return Invalid(ErrorCode.unknown_server_error, str(error))
    found: Checked | Invalid
    try:
        yield from check_sizes(batch, body, config.max_decompressed_message_bytes)
        found = yield from _check_records(batch, config, wanted, offences, body)
    except CorruptBatch as error:
        found = Invalid(_error_of(error.reason, batch), str(error))
    except codecs.CompressionError as error:
        found = Invalid(ErrorCode.unknown_server_error, str(error))
    yield from give_back(body)
    return found


def stamp(checked: Checked | Invalid, config: LogConfig, now_ms: int) -> Valid | Invalid:
    """Set the timestamps in the batch header for an append at ``now_ms``, and check the batch's size, after `check`.

    `passes_as_sent` is the fast path that replaces both `check` and `stamp` (ADR 23).
    """
    if isinstance(checked, Invalid):
        return checked
    batch = checked.batch
    log_append_time = config.message_timestamp_type == LOG_APPEND_TIME
    if log_append_time:
        batch = RecordBatch.parse(with_log_append_time(batch, now_ms))
    else:
        latest = batch.max_timestamp if checked.max_timestamp is None else checked.max_timestamp
        if batch.is_log_append_time or latest != batch.max_timestamp:
            batch = RecordBatch.parse(with_max_timestamp(batch, latest))
    if batch.size > config.max_message_bytes:
        return _too_large(batch.size, config)
    if batch.size > config.segment_bytes:
        return Invalid(
            ErrorCode.record_list_too_large,
            f"{batch.size} bytes do not fit into a segment of {config.segment_bytes}",
            tells_log_start=False,
        )
    return Valid(batch, now_ms if log_append_time else -1)


def _too_large(size: int, config: LogConfig) -> Invalid:
    return Invalid(
        ErrorCode.message_too_large,
        f"a batch of {size} bytes is larger than max.message.bytes {config.max_message_bytes}",
        tells_log_start=False,
    )


def _error_of(reason: Reason, batch: RecordBatch) -> ErrorCode:
    """The error for invalid records: INVALID_RECORD if Kafka handles the problem (``DefaultRecord.readFrom``), else
    UNKNOWN_SERVER_ERROR. Kafka does not handle an invalid length in an uncompressed batch, nor the errors of its
    decompressors.
    """
    foreseen = (
        batch.compression != codecs.NONE if reason is Reason.LENGTH else reason is not Reason.COMPRESSION
    )
    return ErrorCode.invalid_record if foreseen else ErrorCode.unknown_server_error


def _check_header(batch: RecordBatch, config: LogConfig, limits: BatchLimits) -> Invalid | None:
    if batch.base_offset != 0:
        return Invalid(ErrorCode.invalid_record, f"base offset {batch.base_offset} is not 0")
    if batch.size > config.max_message_bytes:
        return _too_large(batch.size, config)
    if not batch.has_valid_crc():
        return Invalid(ErrorCode.corrupt_message, "the CRC does not match", tells_log_start=False)
    if batch.compression > codecs.ZSTD:
        return Invalid(ErrorCode.unknown_server_error, f"there is no codec {batch.compression}")
    count = batch.last_offset_delta + 1
    if count <= 0 or batch.record_count <= 0 or count != batch.record_count:
        return Invalid(
            ErrorCode.invalid_record, f"{batch.record_count} records cannot span {count} offsets of one batch"
        )
    if batch.is_control:
        return Invalid(ErrorCode.invalid_record, "clients may not write control batches")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        return Invalid(ErrorCode.invalid_record, f"producer {batch.producer_id} sent no sequence")
    return _check_claims(batch, limits)


def _check_claims(batch: RecordBatch, limits: BatchLimits) -> Invalid | None:
    """Check the record count against the configured maximum and, in an uncompressed batch, against the size of the body."""
    if batch.record_count > limits.records_max:
        # Producers split a batch at this error and send the parts.
        return Invalid(
            ErrorCode.message_too_large,
            f"a batch of {batch.record_count} records is larger than odradek.batch.records.max {limits.records_max}",
            tells_log_start=False,
        )
    if batch.compression == codecs.NONE:
        try:
            check_count(batch.record_count, len(batch.body))
        except CorruptBatch as error:
            return Invalid(ErrorCode.invalid_record, str(error))
    return None


def _timestamp_bounds(config: LogConfig, from_ms: int, to_ms: int) -> Bounds:
    before = config.message_timestamp_before_max_ms
    return (None if before == NEVER else from_ms - before), to_ms + config.message_timestamp_after_max_ms


def _asks_of_records(batch: RecordBatch, config: LogConfig, bounds: Bounds) -> bool:
    """Whether the records must be read, to find null keys (on a compacted topic), records that are too large, or
    timestamps out of bounds.
    """
    if config.compact or limits_sizes(batch, config.max_decompressed_message_bytes):
        return True
    if config.log_append_time:
        return batch.is_log_append_time
    earliest_ms, latest_ms = bounds
    return earliest_ms is not None or batch.max_timestamp > latest_ms


def _check_records(
    batch: RecordBatch, config: LogConfig, wanted: int, offences: _Offences, body: Buffer
) -> Steps[Checked | Invalid]:
    walked: Walked = yield from walk(
        body,
        batch.record_count,
        earliest_delta=offences.earliest_delta,
        latest_delta=offences.latest_delta,
        wants_keys=config.compact,
        suspect=offences.suspect,
    )
    if offences.errors:
        return Invalid(offences.worst, offences.message, record_errors=offences.errors)
    latest = (
        batch.max_timestamp if batch.is_log_append_time else batch.base_timestamp + walked.max_timestamp_delta
    )
    latest = max(latest, NO_TIMESTAMP)
    if wanted == batch.compression:
        if not walked.offsets_in_a_row and wanted != codecs.NONE:
            # Kafka tries to rebuild such a batch, but it has skipped the keys and values of a batch whose codec does not
            # change (`PartialDefaultRecord`), and fails. Uncompressed batches are not rebuilt.
            return Invalid(ErrorCode.unknown_server_error, "the offsets inside are not 0, 1, 2, ...")
        return Checked(batch, latest)
    if not walked.offsets_in_a_row:
        body = yield from renumbered(body, batch.record_count)
    return (yield from _recompress(batch, config, wanted, body, latest))


def _recompress(
    batch: RecordBatch, config: LogConfig, wanted: int, body: Buffer, latest: int
) -> Steps[Checked | Invalid]:
    size = batch.size - len(batch.body) + len(body)
    if wanted == codecs.NONE and size > config.max_message_bytes:
        return _too_large(size, config)
    compress = partial(codecs.compress, wanted, body, _level(config))
    packed = (yield compress) if len(body) > COMPRESSED_AT_ONCE_BYTES else compress()
    size += len(packed) - len(body)
    if size > config.max_message_bytes:
        return _too_large(size, config)
    return Checked(RecordBatch.parse(with_body(batch, wanted, packed)), latest)


class _Offences:
    """The records for which a batch is rejected. The response lists the first of them."""

    def __init__(self, batch: RecordBatch, config: LogConfig, bounds: Bounds, partition: str) -> None:
        self.errors: list[tuple[int, str | None]] = []
        self._count = 0
        self._partition = partition
        earliest_ms, latest_ms = bounds
        now_ms = latest_ms - config.message_timestamp_after_max_ms
        self._within = (now_ms - NEVER if earliest_ms is None else earliest_ms), latest_ms
        self.worst = ErrorCode.invalid_record
        self.earliest_delta, self.latest_delta = -_ALL_TIMES, _ALL_TIMES
        self._compact = config.compact
        self._stamped = config.log_append_time and batch.is_log_append_time
        self._base_ms = batch.base_timestamp
        self._fixed_ms = batch.max_timestamp if batch.is_log_append_time else None
        if self._stamped:
            self._suspect_all()
        elif not config.log_append_time:
            earliest_ms = -_ALL_TIMES if earliest_ms is None else earliest_ms
            if self._fixed_ms is None:
                self.earliest_delta, self.latest_delta = (
                    earliest_ms - self._base_ms,
                    latest_ms - self._base_ms,
                )
            elif not earliest_ms <= self._fixed_ms <= latest_ms:
                self._suspect_all()

    def _suspect_all(self) -> None:
        self.earliest_delta, self.latest_delta = 1, 0

    def suspect(self, index: int, timestamp_delta: int, has_key: bool) -> None:
        if self._compact and not has_key:
            message = (
                f"Compacted topic cannot accept message without key in topic partition {self._partition}"
            )
            self._add(index, message, ErrorCode.invalid_record)
        elif self._stamped:
            message = "Producer should not set timestamp type to LogAppendTime."
            self._add(index, message, ErrorCode.invalid_timestamp)
        else:
            timestamp = self._base_ms + timestamp_delta if self._fixed_ms is None else self._fixed_ms
            if timestamp != NO_TIMESTAMP:
                message = (
                    f"Timestamp {timestamp} of message with offset {index} is out of range. "
                    "The timestamp should be within [{}, {}]".format(*self._within)
                )
                self._add(index, message, ErrorCode.invalid_timestamp)

    @property
    def message(self) -> str:
        """Message for all records together, as in ``LogValidator.processRecordErrors``."""
        if self.worst is ErrorCode.invalid_timestamp:
            return "One or more records have been rejected due to invalid timestamp"
        first = ", ".join(
            f"RecordError(batchIndex={index}, message='{message}')" for index, message in self.errors[:3]
        )
        return (
            f"One or more records have been rejected due to {self._count} record errors in total, "
            f"and only showing the first three errors at most: [{first}]"
        )

    def _add(self, index: int, message: str, error: ErrorCode) -> None:
        if error is ErrorCode.invalid_timestamp:
            self.worst = error
        self._count += 1
        if len(self.errors) < RECORD_ERRORS_MAX:
            self.errors.append((index, message))


def _level(config: LogConfig) -> int | None:
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    level = levels.get(config.compression_type)
    return None if level == -1 and config.compression_type == "gzip" else level
