"""Which batches a client may append, and the bytes that are appended (Kafka's ``LogValidator``)."""

from __future__ import annotations

import struct

import pytest
from google_crc32c import value as crc32c

from protocol import compression
from protocol.batch import RecordBatch, build_batch
from protocol.errors import ErrorCode
from protocol.record import encode_record
from storage.config import LogConfig
from storage.steps import DECOMPRESSED_AT_ONCE_BYTES
from storage.topic_configs import NEVER
from storage.validation import (
    RECORD_ERRORS_MAX,
    BatchLimits,
    Invalid,
    Valid,
    check,
    run_check,
    validate,
)
from tests.storage.logs import NOW_MS, data

HOUR_MS = 3_600_000


def with_header(layout: str, at: int, value: int, batch: RecordBatch | None = None) -> RecordBatch:
    """A batch with one field of its header changed, and a valid CRC."""
    raw = bytearray((batch or data(3)).data)
    struct.pack_into(layout, raw, at, value)
    struct.pack_into(">I", raw, 17, crc32c(bytes(raw[21:])))
    return RecordBatch.parse(bytes(raw))


def flipped() -> RecordBatch:
    raw = bytearray(data().data)
    raw[-1] ^= 1
    return RecordBatch.parse(bytes(raw))


@pytest.mark.parametrize(
    ("batch", "settings", "error", "tells_log_start"),
    [
        pytest.param(with_header(">q", 0, 5), {}, ErrorCode.invalid_record, True, id="base offset"),
        pytest.param(data(), {"max_message_bytes": 75}, ErrorCode.message_too_large, False, id="too large"),
        pytest.param(flipped(), {}, ErrorCode.corrupt_message, False, id="CRC"),
        pytest.param(with_header(">i", 23, -1), {}, ErrorCode.invalid_record, True, id="no offsets"),
        pytest.param(with_header(">i", 57, 0), {}, ErrorCode.invalid_record, True, id="no records"),
        pytest.param(with_header(">i", 57, 2), {}, ErrorCode.invalid_record, True, id="count and offsets"),
        pytest.param(with_header(">h", 21, 0x20), {}, ErrorCode.invalid_record, True, id="control"),
        pytest.param(with_header(">q", 43, 7), {}, ErrorCode.invalid_record, True, id="no sequence"),
        pytest.param(
            with_header(">h", 21, 0x08),
            {"message_timestamp_type": "LogAppendTime"},
            ErrorCode.invalid_timestamp,
            True,
            id="LogAppendTime from a client",
        ),
        pytest.param(
            data(value=bytes(300)),
            {"segment_bytes": 200},
            ErrorCode.record_list_too_large,
            False,
            id="segment",
        ),
    ],
)
def test_a_batch_is_refused(
    batch: RecordBatch, settings: dict[str, object], error: ErrorCode, tells_log_start: bool
):
    found = validate(batch, LogConfig(**settings), NOW_MS)  # type: ignore[arg-type]
    assert isinstance(found, Invalid)
    assert (found.error, found.tells_log_start) == (error, tells_log_start)


def test_checks_come_in_kafka_s_order():
    """The checks come in the order base offset, size, CRC, and a failed check hides the later checks."""
    raw = bytearray(flipped().data)
    small = LogConfig(max_message_bytes=10)
    struct.pack_into(">q", raw, 0, 1)
    found = validate(RecordBatch.parse(bytes(raw)), small, NOW_MS)
    assert isinstance(found, Invalid)
    assert found.error is ErrorCode.invalid_record
    found = validate(flipped(), small, NOW_MS)
    assert isinstance(found, Invalid)
    assert found.error is ErrorCode.message_too_large


@pytest.mark.parametrize(
    ("times", "offenders"),
    [
        ([NOW_MS + HOUR_MS], []),
        ([NOW_MS + HOUR_MS + 1], [0]),
        ([NOW_MS, NOW_MS + HOUR_MS + 1, 0, NOW_MS + 2 * HOUR_MS], [1, 3]),
        ([-1], []),
    ],
)
def test_records_of_the_future_are_named(times: list[int], offenders: list[int]):
    batch = RecordBatch.parse(build_batch([(time, b"k", b"v") for time in times]))
    found = validate(batch, LogConfig(), NOW_MS)
    assert [index for index, _ in getattr(found, "record_errors", ())] == offenders
    assert getattr(found, "error", ErrorCode.none) is (
        ErrorCode.invalid_timestamp if offenders else ErrorCode.none
    )


@pytest.mark.parametrize(("age_ms", "valid"), [(1000, True), (1001, False)])
def test_records_of_the_past_are_refused_where_a_topic_says_so(age_ms: int, valid: bool):
    config = LogConfig(message_timestamp_before_max_ms=1000)
    assert isinstance(validate(data(timestamp_ms=NOW_MS - age_ms), config, NOW_MS), Valid) is valid
    assert isinstance(validate(data(timestamp_ms=-1), config, NOW_MS), Valid)


@pytest.mark.parametrize("codec", range(5))
def test_a_compacted_topic_requires_keys(codec: int):
    config = LogConfig(cleanup_policy=("compact",))
    records = [(NOW_MS, b"k", b"v"), (NOW_MS, None, b"v"), (NOW_MS, b"", b"v"), (NOW_MS, None, None)]
    found = validate(RecordBatch.parse(build_batch(records, compression=codec)), config, NOW_MS)
    assert isinstance(found, Invalid)
    assert found.error is ErrorCode.invalid_record
    assert [index for index, _ in found.record_errors] == [1, 3]


def test_errors_have_kafka_s_messages():
    """Errors have the messages of Kafka's ``LogValidator``: one for each rejected record, and one for the whole batch,
    because clients show either."""
    batch = RecordBatch.parse(build_batch([(NOW_MS, None, b"v")]))
    found = run_check(check(batch, LogConfig(cleanup_policy=("compact",)), NOW_MS, partition="orders-7"))
    assert isinstance(found, Invalid)
    reason = "Compacted topic cannot accept message without key in topic partition orders-7"
    assert found.record_errors == [(0, reason)]
    assert found.message == (
        "One or more records have been rejected due to 1 record errors in total, and only showing the first "
        f"three errors at most: [RecordError(batchIndex=0, message='{reason}')]"
    )
    late_ms, latest_ms = NOW_MS + 2 * HOUR_MS, NOW_MS + HOUR_MS
    late = validate(RecordBatch.parse(build_batch([(late_ms, b"k", b"v")])), LogConfig(), NOW_MS)
    assert isinstance(late, Invalid)
    assert late.message == "One or more records have been rejected due to invalid timestamp"
    within = f"[{NOW_MS - NEVER}, {latest_ms}]"
    assert late.record_errors == [
        (
            0,
            f"Timestamp {late_ms} of message with offset 0 is out of range. "
            f"The timestamp should be within {within}",
        )
    ]


def test_one_wrong_timestamp_decides_the_code():
    config = LogConfig(cleanup_policy=("compact",))
    records = [(NOW_MS, None, b"v"), (NOW_MS + 2 * HOUR_MS, b"k", b"v")]
    found = validate(RecordBatch.parse(build_batch(records)), config, NOW_MS)
    assert isinstance(found, Invalid)
    assert found.error is ErrorCode.invalid_timestamp
    assert [index for index, _ in found.record_errors] == [0, 1]


def test_every_record_of_a_batch_that_says_log_append_time_is_named():
    config = LogConfig(message_timestamp_type="LogAppendTime", cleanup_policy=("compact",))
    batch = RecordBatch.parse(build_batch([(0, b"k", b"v"), (0, None, b"v")], log_append_time_ms=NOW_MS))
    found = validate(batch, config, NOW_MS)
    assert isinstance(found, Invalid)
    assert found.error is ErrorCode.invalid_timestamp
    assert [(index, "key" in (message or "")) for index, message in found.record_errors] == [
        (0, False),
        (1, True),
    ]


def test_a_batch_that_fits_is_not_touched():
    batch = data(3, compression=3)
    found = validate(batch, LogConfig(), NOW_MS)
    assert found == Valid(batch, -1)
    assert found.batch is batch


@pytest.mark.parametrize(
    ("name", "codec"), [("uncompressed", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)]
)
@pytest.mark.parametrize("sent", range(5))
def test_a_topic_s_codec_is_applied(name: str, codec: int, sent: int):
    batch = data(3, compression=sent, producer=(7, 0, 3), transactional=True)
    found = validate(batch, LogConfig(compression_type=name), NOW_MS)
    assert isinstance(found, Valid)
    assert found.batch.compression == codec
    assert found.batch.has_valid_crc()
    assert list(found.batch.records()) == list(batch.records())
    assert (found.batch.producer_id, found.batch.base_sequence, found.batch.is_transactional) == (7, 3, True)
    assert (found.batch is batch) == (codec == sent)


def test_log_append_time_is_the_broker_s():
    found = validate(data(2, timestamp_ms=5), LogConfig(message_timestamp_type="LogAppendTime"), NOW_MS)
    assert isinstance(found, Valid)
    assert found.log_append_time_ms == NOW_MS
    assert [record.timestamp for record in found.batch.records()] == [NOW_MS, NOW_MS]
    assert found.batch.is_log_append_time
    assert found.batch.has_valid_crc()


def test_on_a_create_time_topic_the_flag_is_cleared():
    found = validate(with_header(">h", 21, 0x08, data(2, timestamp_ms=5)), LogConfig(), NOW_MS)
    assert isinstance(found, Valid)
    assert found.log_append_time_ms == -1
    assert not found.batch.is_log_append_time
    assert [record.timestamp for record in found.batch.records()] == [5, 5]
    assert found.batch.max_timestamp == 5


def test_records_that_do_not_decompress_are_refused():
    batch = with_header(">h", 21, compression.GZIP)
    found = validate(batch, LogConfig(cleanup_policy=("compact",)), NOW_MS)
    assert isinstance(found, Invalid)


# Claims of a batch's header


def made_of(body: bytes, count: int, codec: int = 0) -> RecordBatch:
    """A batch with the bytes ``body`` in place of its records, valid or not."""
    template = bytearray(build_batch([(NOW_MS, b"k", b"v")])[:61])
    struct.pack_into(">h", template, 21, codec)
    struct.pack_into(">i", template, 23, count - 1)
    struct.pack_into(">i", template, 57, count)
    raw = template + compression.compress(codec, body)
    struct.pack_into(">i", raw, 8, len(raw) - 12)
    struct.pack_into(">I", raw, 17, crc32c(bytes(raw[21:])))
    return RecordBatch.parse(bytes(raw))


def with_deltas(deltas: list[int], codec: int) -> RecordBatch:
    return made_of(b"".join(encode_record(delta, 0, b"k", b"v") for delta in deltas), len(deltas), codec)


COMPACTED = LogConfig(cleanup_policy=("compact",))


@pytest.mark.parametrize("config", [LogConfig(), COMPACTED], ids=["records not read", "read"])
def test_more_records_than_have_room_are_refused_by_the_header_alone(config: LogConfig):
    found = check(made_of(bytes(1_500), 2_000), config, NOW_MS)
    assert isinstance(found, Invalid)
    assert found.error is ErrorCode.invalid_record


@pytest.mark.parametrize("config", [LogConfig(), COMPACTED], ids=["records not read", "read"])
def test_records_of_a_batch_have_a_bound(config: LogConfig):
    batch = made_of(b"\x0c\0\0\0\0\1\0" * 101, 101, compression.ZSTD)
    found = check(batch, config, NOW_MS, limits=BatchLimits(records_max=100))
    assert isinstance(found, Invalid)
    assert found.error is ErrorCode.message_too_large


@pytest.mark.parametrize("codec", range(1, 5))
@pytest.mark.parametrize("limit", [10_000, 1_000_000])
def test_decompressed_bytes_have_a_bound(codec: int, limit: int):
    """A batch that decompresses to more than ``decompressed_bytes_max`` gets MESSAGE_TOO_LARGE, which makes producers split
    it. The limits are below and above the bytes that one slice decompresses."""
    body = encode_record(0, 0, b"k", bytes(limit))
    found = validate(
        made_of(body, 1, codec), COMPACTED, NOW_MS, limits=BatchLimits(decompressed_bytes_max=limit)
    )
    assert isinstance(found, Invalid)
    assert found.error is ErrorCode.message_too_large
    assert isinstance(
        validate(
            made_of(body, 1, codec), COMPACTED, NOW_MS, limits=BatchLimits(decompressed_bytes_max=len(body))
        ),
        Valid,
    )


RECORD_BYTES = 6  # attributes, two deltas, lengths of key and value, number of headers


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("sizes", [[100], [99, 101], [101, 7]])
def test_records_of_compressed_batches_have_a_bound(codec: int, sizes: list[int]):
    """``max.decompressed.message.bytes`` bounds a record without its length field, compressed or not as a whole, but only
    in compressed batches, as in Apache Kafka 4.4.0."""
    body = b"".join(
        encode_record(offset, 0, b"", bytes(size - RECORD_BYTES - (size > 64 + RECORD_BYTES)))
        for offset, size in enumerate(sizes)
    )
    found = validate(made_of(body, len(sizes), codec), LogConfig(max_decompressed_message_bytes=100), NOW_MS)
    if codec == compression.NONE or max(sizes) <= 100:
        assert isinstance(found, Valid)
    else:
        assert isinstance(found, Invalid)
        assert (found.error, found.record_errors) == (ErrorCode.invalid_record, ())


@pytest.mark.parametrize("codec", range(5))
def test_a_negative_record_length_is_invalid(codec: int):
    body = b"\x01" + encode_record(0, 0, b"k", b"v")[1:]
    for config in (COMPACTED, LogConfig(max_decompressed_message_bytes=100, cleanup_policy=("compact",))):
        found = validate(made_of(body, 1, codec), config, NOW_MS)
        assert isinstance(found, Invalid)
        assert found.error is ErrorCode.invalid_record


def test_large_bytes_are_decompressed_and_compressed_in_a_thread():
    body = encode_record(0, 0, b"k", bytes(DECOMPRESSED_AT_ONCE_BYTES))
    steps = check(made_of(body, 1, compression.ZSTD), LogConfig(compression_type="lz4"), NOW_MS)
    assert not isinstance(steps, tuple)
    decompress = next(steps)
    assert decompress is not None
    compress = steps.send(decompress())
    assert compress is not None
    give_back = steps.send(compress())
    assert give_back is not None, "returning 100 MB to the system would block the event loop for 25 ms"
    with pytest.raises(StopIteration) as end:
        steps.send(give_back())
    assert end.value.value.batch.plain_body() == body


def test_the_records_named_in_an_answer_have_a_bound():
    body = b"".join(encode_record(i, 0, None, b"v") for i in range(RECORD_ERRORS_MAX + 5))
    found = validate(made_of(body, RECORD_ERRORS_MAX + 5), COMPACTED, NOW_MS)
    assert isinstance(found, Invalid)
    assert len(found.record_errors) == RECORD_ERRORS_MAX


# Offsets inside a batch (`LogValidator.validateMessagesAndAssignOffsetsCompressed`)


def test_uncompressed_deltas_are_the_producer_s_affair():
    found = validate(with_deltas([0, 0, 5], 0), COMPACTED, NOW_MS)
    assert isinstance(found, Valid)
    assert [record.offset for record in found.batch.records()] == [0, 0, 5]


@pytest.mark.parametrize("codec", range(1, 5))
def test_compressed_deltas_are_0_1_2(codec: int):
    """A compressed batch with other offset deltas than 0, 1, 2 and so on gets UNKNOWN_SERVER_ERROR: Kafka would rebuild the
    batch, and fails because it has not read its records."""
    found = validate(with_deltas([0, 0, 0], codec), COMPACTED, NOW_MS)
    assert isinstance(found, Invalid)
    assert found.error is ErrorCode.unknown_server_error
    assert isinstance(validate(with_deltas([0, 1, 2], codec), COMPACTED, NOW_MS), Valid)


@pytest.mark.parametrize("codec", range(5))
def test_another_codec_reassigns_offsets(codec: int):
    name = "gzip" if codec != compression.GZIP else "zstd"
    found = validate(with_deltas([0, 0, 7], codec), LogConfig(compression_type=name), NOW_MS)
    assert isinstance(found, Valid)
    assert found.batch.has_valid_crc()
    assert [record.offset for record in found.batch.records()] == [0, 1, 2]
    assert [record.key for record in found.batch.records()] == [b"k"] * 3


@pytest.mark.parametrize("claimed", [NOW_MS - 7, NOW_MS + 7, -1])
def test_the_maximum_is_that_of_the_records_where_they_are_read(claimed: int):
    batch = with_header(">q", 35, claimed, data(2, timestamp_ms=NOW_MS))
    found = validate(batch, COMPACTED, NOW_MS)
    assert isinstance(found, Valid)
    assert found.batch.max_timestamp == NOW_MS
    assert found.batch.has_valid_crc()


@pytest.mark.parametrize("codec", range(5))
def test_every_record_is_read_where_the_broker_says_so(codec: int):
    config, limits = LogConfig(), BatchLimits(reads_all=True)
    bad = made_of(encode_record(0, 0, b"k", b"v" * 20), 2, codec)
    assert isinstance(validate(bad, config, NOW_MS), Valid)
    found = validate(bad, config, NOW_MS, limits=limits)
    assert isinstance(found, Invalid)
    assert found.error is ErrorCode.invalid_record
    assert isinstance(validate(data(2, compression=codec), config, NOW_MS, limits=limits), Valid)
