"""Record batches: equal to Kafka's bytes, field by field, and every damage is detected."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import compression as codecs
from protocol.batch import (
    CorruptBatch,
    EndTxnMarker,
    Reason,
    Record,
    RecordBatch,
    batches,
    build_batch,
    decode_records,
    end_txn_marker,
    parse_end_txn_marker,
    patched_header,
    retain,
    with_body,
    with_log_append_time,
    with_max_timestamp,
)

DATA = Path(__file__).parent / "data"
BATCHES = json.loads((DATA / "batches.json").read_text())
MARKERS = json.loads((DATA / "markers.json").read_text())

ONE = build_batch([(1_000, b"key", b"value")], base_offset=5, leader_epoch=2)
THREE = build_batch(
    [(1_000, b"a", b"1", (("h", b"x"), ("null", None))), (900, None, b"2"), (2_000, b"c", None)],
    base_offset=10,
    producer_id=7,
    producer_epoch=1,
    base_sequence=2**31 - 2,
    transactional=True,
)


def from_hex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def arguments(case: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of `build_batch` for a case that Kafka encoded."""
    options = {k: v for k, v in case.items() if k not in ("hex", "codec", "records")}
    options["compression"] = codecs.CODEC_NAMES.index(case["codec"])
    records = [
        (time, from_hex(key), from_hex(value), tuple((name, from_hex(v)) for name, v in headers))
        for time, key, value, headers in case["records"]
    ]
    return records, options


# Against Kafka


@pytest.mark.parametrize("case", BATCHES, ids=lambda case: case["codec"])
def test_batches_that_kafka_wrote_are_read(case: dict[str, Any]) -> None:
    batch = RecordBatch.parse(bytes.fromhex(case["hex"]))
    assert batch.has_valid_crc()
    assert batch.compression == codecs.CODEC_NAMES.index(case["codec"])
    expected, options = arguments(case)
    stamp = options["log_append_time_ms"]
    assert list(batch.records()) == [
        Record(
            case["base_offset"] + delta,
            time if stamp is None else stamp,
            key,
            value,
            headers,
            -1 if case["base_sequence"] < 0 else (case["base_sequence"] + delta) % 2**31,
        )
        for delta, (time, key, value, headers) in enumerate(expected)
    ]


@pytest.mark.parametrize("case", BATCHES, ids=lambda case: case["codec"])
def test_batches_have_kafkas_bytes(case: dict[str, Any]) -> None:
    records, options = arguments(case)
    ours, theirs = build_batch(records, **options), bytes.fromhex(case["hex"])
    if case["codec"] == "none":
        assert ours.hex() == theirs.hex()
    else:  # compressed bytes may differ between implementations, the content may not
        assert RecordBatch.parse(ours).plain_body() == RecordBatch.parse(theirs).plain_body()
        assert ours[23:61] == theirs[23:61]


@pytest.mark.parametrize("case", MARKERS)
def test_markers_have_kafkas_bytes(case: dict[str, Any]) -> None:
    marker = end_txn_marker(**{name: value for name, value in case.items() if name != "hex"})
    assert marker.hex() == case["hex"]
    assert len(marker) == 78
    expected = EndTxnMarker(case["committed"], case["coordinator_epoch"])
    assert parse_end_txn_marker(RecordBatch.parse(marker)) == expected


def test_the_record_of_a_marker() -> None:
    marker = end_txn_marker(1, 0, committed=False, coordinator_epoch=3, timestamp_ms=0)
    assert marker[61:].hex() == "20000000080000" + "0000" + "0c0000" + "00000003" + "00"


# Fields


def test_every_field_of_the_header() -> None:
    batch = RecordBatch.parse(b"before" + THREE, 6)
    assert (batch.start, batch.size) == (6, len(THREE))
    assert (batch.base_offset, batch.last_offset_delta, batch.last_offset, batch.next_offset) == (
        10,
        2,
        12,
        13,
    )
    assert (batch.partition_leader_epoch, batch.magic, batch.attributes) == (-1, 2, 0x10)
    assert (batch.base_timestamp, batch.max_timestamp) == (1_000, 2_000)
    assert (batch.producer_id, batch.producer_epoch, batch.record_count) == (7, 1, 3)
    assert (batch.is_transactional, batch.is_control) == (True, False)
    assert (batch.is_log_append_time, batch.has_delete_horizon, batch.compression) == (False, False, 0)
    assert bytes(batch.data) == THREE
    assert "10-12" in repr(batch)


def test_sequences_go_on_at_zero_after_the_largest() -> None:
    batch = RecordBatch.parse(THREE)
    assert batch.base_sequence == 2**31 - 2
    assert batch.last_sequence == 0
    assert [record.sequence for record in batch.records()] == [2**31 - 2, 2**31 - 1, 0]
    assert RecordBatch.parse(ONE).last_sequence == -1


def test_records_have_the_offsets_and_times_of_their_batch() -> None:
    assert [
        (r.offset, r.timestamp, r.key, r.value, r.headers) for r in RecordBatch.parse(THREE).records()
    ] == [
        (10, 1_000, b"a", b"1", (("h", b"x"), ("null", None))),
        (11, 900, None, b"2", ()),
        (12, 2_000, b"c", None, ()),
    ]


def test_a_batch_may_be_empty() -> None:
    batch = RecordBatch.parse(build_batch([]))
    assert (batch.size, batch.record_count, list(batch.records())) == (61, 0, [])


TIMES = st.integers(-1, 2**60)
FIELDS = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
RECORDS = st.lists(st.tuples(TIMES, FIELDS, FIELDS, HEADERS), max_size=8)


@given(RECORDS, st.sampled_from(range(5)), st.booleans(), st.booleans())
def test_what_is_built_is_parsed(records: list[Any], codec: int, transactional: bool, control: bool) -> None:
    built = build_batch(
        records, compression=codec, transactional=transactional, control=control, base_offset=3
    )
    batch = RecordBatch.parse(bytearray(built))
    assert batch.has_valid_crc()
    assert (batch.is_transactional, batch.is_control) == (transactional, control)
    assert [(r.timestamp, r.key, r.value, r.headers) for r in batch.records()] == records
    assert [r.offset for r in batch.records()] == list(range(3, 3 + len(records)))


def test_a_header_name_that_is_not_utf_8_survives() -> None:
    body = bytes.fromhex("14 00 00 00 01 01 02 02 ff 02 61".replace(" ", ""))
    (record,) = decode_records(body, 1)
    assert record.headers == (("\udcff", b"a"),)
    rebuilt = build_batch([(0, None, None, record.headers)])
    assert rebuilt[61:] == body


# Changes


def test_offset_and_epoch_change_without_the_crc() -> None:
    patched = patched_header(ONE, 2**40, 9) + ONE[16:]
    batch = RecordBatch.parse(patched)
    assert (batch.base_offset, batch.partition_leader_epoch, batch.size) == (2**40, 9, len(ONE))
    assert batch.has_valid_crc()
    assert patched_header(b"xx" + ONE, 1, 1, start=2) == patched_header(ONE, 1, 1)


def test_a_stamped_batch_has_one_time() -> None:
    stamped = RecordBatch.parse(with_log_append_time(RecordBatch.parse(b"x" + THREE, 1), 77))
    assert stamped.has_valid_crc()
    assert (stamped.is_log_append_time, stamped.max_timestamp, stamped.base_timestamp) == (True, 77, 1_000)
    assert {record.timestamp for record in stamped.records()} == {77}
    assert stamped.is_transactional


def test_a_wrong_maximum_can_be_mended() -> None:
    stamped = RecordBatch.parse(with_log_append_time(RecordBatch.parse(THREE), 77))
    mended = RecordBatch.parse(with_max_timestamp(stamped, 2_000))
    assert bytes(mended.data) == THREE


def recompress(batch: RecordBatch, codec: int) -> bytes:
    return with_body(batch, codec, codecs.compress(codec, batch.plain_body()))


@pytest.mark.parametrize("codec", range(5), ids=codecs.CODEC_NAMES)
def test_a_batch_changes_its_codec(codec: int) -> None:
    changed = RecordBatch.parse(recompress(RecordBatch.parse(THREE), codec))
    assert changed.compression == codec
    assert changed.has_valid_crc()
    assert list(changed.records()) == list(RecordBatch.parse(THREE).records())
    assert recompress(changed, 0) == THREE


@pytest.mark.parametrize("codec", range(5), ids=codecs.CODEC_NAMES)
def test_compaction_keeps_offsets_and_sequences(codec: int) -> None:
    batch = RecordBatch.parse(recompress(RecordBatch.parse(THREE), codec))
    kept = [record for record in batch.records() if record.offset != 11]
    left = RecordBatch.parse(retain(batch, kept, delete_horizon_ms=5_000))
    assert left.has_valid_crc()
    assert list(left.records()) == kept
    assert (left.base_offset, left.last_offset, left.last_sequence) == (10, 12, 0)
    assert (left.delete_horizon_ms, left.compression, left.record_count) == (5_000, codec, 2)
    assert RecordBatch.parse(retain(left, kept)).delete_horizon_ms == 5_000


def test_times_count_from_the_first_record_that_compaction_leaves() -> None:
    records = [(100, b"a", b"1"), (300, b"b", b"2"), (200, b"c", b"3")]
    batch = RecordBatch.parse(build_batch(records, base_offset=10))
    kept = list(batch.records())[2:]
    left = RecordBatch.parse(retain(batch, kept))
    assert (left.base_timestamp, left.max_timestamp, left.has_delete_horizon) == (200, 200, False)
    assert list(left.records()) == kept


def test_compaction_leaves_the_time_that_the_broker_gave() -> None:
    records = [(100, b"a", b"1"), (300, b"b", b"2")]
    batch = RecordBatch.parse(build_batch(records, log_append_time_ms=500))
    for horizon_ms in (None, 900):
        left = RecordBatch.parse(retain(batch, list(batch.records())[:1], horizon_ms))
        assert (left.base_timestamp, left.max_timestamp) == (horizon_ms or 500, 500)
        assert left.is_log_append_time
        assert [record.timestamp for record in left.records()] == [500]


def test_compaction_may_leave_an_empty_batch() -> None:
    left = RecordBatch.parse(retain(RecordBatch.parse(THREE), []))
    assert (left.size, left.record_count, left.last_offset, left.last_sequence) == (61, 0, 12, 0)
    assert left.has_valid_crc()
    assert list(left.records()) == []


# Markers


def control_batch(key: bytes | None, value: bytes | None) -> RecordBatch:
    return RecordBatch.parse(build_batch([(0, key, value)], control=True))


def test_control_records_that_end_nothing() -> None:
    assert parse_end_txn_marker(control_batch(b"\0\0\0\2", b"anything")) is None
    assert parse_end_txn_marker(RecordBatch.parse(build_batch([], control=True))) is None


def test_a_newer_marker_is_read_like_ours() -> None:
    marker = control_batch(b"\0\1\0\1", b"\0\5\0\0\0\x09more")
    assert parse_end_txn_marker(marker) == EndTxnMarker(True, 9)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\0\0\0\0\0"),
        (b"\0\0\0", b"\0\0\0\0\0\0"),
        (b"\xff\xff\0\1", b"\0\0\0\0\0\0"),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0\0\0"),
        (b"\0\0\0\1", b"\xff\xff\0\0\0\0"),
    ],
)
def test_a_malformed_marker_is_corrupt(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        parse_end_txn_marker(control_batch(key, value))


# Many batches, and damage


def test_batches_in_a_row() -> None:
    found = list(batches(ONE + THREE + ONE))
    assert [batch.start for batch in found] == [0, len(ONE), len(ONE) + len(THREE)]
    assert [batch.record_count for batch in found] == [1, 3, 1]


def test_batches_stop_at_a_cut_one() -> None:
    whole = ONE + THREE
    for length in range(len(whole)):
        expected = 1 if length >= len(ONE) else 0
        assert len(list(batches(whole[:length]))) == expected
        assert len(list(batches(whole, end=length))) == expected
    assert [batch.start for batch in batches(whole, start=len(ONE))] == [len(ONE)]


def damaged(position: int, value: bytes) -> bytes:
    return ONE[:position] + value + ONE[position + len(value) :]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", Reason.SHORT),
        (ONE[:60], Reason.SHORT),
        (ONE[:-1], Reason.SHORT),
        (damaged(16, b"\1"), Reason.MAGIC),
        (damaged(16, b"\1")[:20], Reason.MAGIC),
        (bytes(100), Reason.MAGIC),
        (damaged(8, b"\0\0\0\x30"), Reason.SIZE),
        (damaged(8, b"\xff\xff\xff\xff"), Reason.SIZE),
    ],
)
def test_what_is_wrong_with_a_header(data: bytes, reason: Reason) -> None:
    with pytest.raises(CorruptBatch) as raised:
        RecordBatch.parse(data)
    assert raised.value.reason is reason


def test_batches_do_not_pass_over_damage() -> None:
    with pytest.raises(CorruptBatch):
        list(batches(ONE + bytes(100)))


@given(st.integers(16, len(THREE) - 1), st.integers(1, 255))
def test_a_changed_byte_is_noticed(position: int, change: int) -> None:
    changed = bytearray(THREE)
    changed[position] ^= change
    try:
        batch = RecordBatch.parse(changed)
    except CorruptBatch:
        assert position == 16
    else:
        assert not batch.has_valid_crc()


@pytest.mark.parametrize("codec", range(5), ids=codecs.CODEC_NAMES)
@settings(max_examples=200)
@given(data=st.data())
def test_changed_records_are_corrupt_or_read(codec: int, data: st.DataObject) -> None:
    changed = bytearray(recompress(RecordBatch.parse(THREE), codec))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(17, len(changed) - 1))
        changed[position] = data.draw(st.integers(0, 255))
    with suppress(CorruptBatch):
        list(RecordBatch.parse(changed).records())


@given(st.binary(max_size=100), st.integers(-1, 20))
def test_garbage_is_corrupt_or_records(body: bytes, count: int) -> None:
    with suppress(CorruptBatch):
        assert len(list(decode_records(body, count))) == count


@pytest.mark.parametrize(
    ("body", "count", "message"),
    [
        ("", 1, "fewer records"),
        ("", -1, "-1 records"),
        ("00", 0, "1 bytes follow"),
        ("01", 1, "does not fit"),
        ("14", 1, "does not fit"),
        ("0e 00 00 00 01 01 01 00", 1, "-1 headers"),
        ("0e 00 00 00 01 01 7e 00", 1, "63 headers"),
        ("10 00 00 00 01 01 02 01 00", 1, "no key"),
        ("0c 00 00 00 7e 01 00", 1, "63 bytes"),
        ("0e 00 00 00 01 01 00 00", 1, "does not end after the 7 bytes"),
        ("ff ff ff ff ff ff 01", 1, "longer than 5"),
    ],
)
def test_what_is_wrong_with_records(body: str, count: int, message: str) -> None:
    with pytest.raises(CorruptBatch, match=message):
        list(decode_records(bytes.fromhex(body.replace(" ", "")), count))


def test_a_bomb_is_refused() -> None:
    bomb = RecordBatch.parse(build_batch([(0, None, bytes(10_000_000))], compression=codecs.ZSTD))
    assert bomb.size < 2_000
    with pytest.raises(CorruptBatch, match="more than 1000000 bytes"):
        bomb.plain_body(limit=1_000_000)


@pytest.mark.parametrize("value_bytes", [0, 1, 62, 63, 64, 8191, 8192, 20_000])
@pytest.mark.parametrize("key", [b"", b"k", bytes(62), bytes(63), bytes(64), bytes(200), None])
def test_keys_and_values_are_those_of_the_records(key, value_bytes):
    for records in (
        [(5, key, bytes(value_bytes))],
        [(5, key, None)],
        [(5, key, bytes(value_bytes), (("name", b"header"),))],
        [(5, key, bytes(value_bytes)), (9, b"second", b"")],
    ):
        batch = RecordBatch.parse(b"before" + build_batch(records) + b"after", 6)
        assert list(batch.keys_and_values()) == [(each.key, each.value) for each in batch.records()]


def test_the_only_record_must_fill_its_batch():
    sound = build_batch([(5, b"key", b"value")])
    for position in range(61, len(sound)):
        for bit in range(8):
            damaged = sound[:position] + bytes([sound[position] ^ 1 << bit]) + sound[position + 1 :]
            batch = RecordBatch.parse(damaged)
            try:
                expected = [(each.key, each.value) for each in batch.records()]
            except CorruptBatch:
                continue  # the CRC would have reported it, and no other exception may be raised
            with suppress(CorruptBatch):
                assert len(list(batch.keys_and_values())) == len(expected)
