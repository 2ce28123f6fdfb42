"""Damage becomes rows with an error: the reader neither crashes nor hangs, and loses or changes no intact batch."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import cramjam
import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as spark

from odradek.spark.records import heads
from odradek.spark.segments import options, planning, reading
from odradek.spark.segments.finding import partitions, segments
from protocol import batch as judge
from protocol.compression import compress
from tests.support.segment_tables import plain, read, segment

TOPIC = "orders-0"


def batch(base_offset: int, records: int = 3, compression: int = 0, **more: Any) -> bytes:
    rows = [(1000 + base_offset + i, b"k%d" % i, b"value %d" % (base_offset + i)) for i in range(records)]
    return judge.build_batch(rows, base_offset=base_offset, compression=compression, **more)


def log_of(*batches: bytes) -> bytes:
    return b"".join(batches)


GOOD = (batch(0), batch(3, compression=3, producer_id=7, producer_epoch=1, base_sequence=0), batch(6))


def seen(directory: Path, **options: Any) -> tuple[list[int], list[tuple[int, str]]]:
    """(offsets of the records, (position, error) of each damage), which must be the same in the table of batches."""
    rows = plain(read(directory, **options))
    errors = [(row["position"], row["error"]) for row in rows if row["error"]]
    assert all(
        set(name for name, value in row.items() if value is not None) <= PLACE for row in rows if row["error"]
    )
    return [row["offset"] for row in rows if not row["error"]], errors


PLACE = {"log_dir", "topic", "partition", "file", "position", "error"}


def batch_errors(directory: Path, **options: Any) -> list[tuple[int, str]]:
    rows = plain(read(directory, table="batches", **options))
    return [(row["position"], row["error"]) for row in rows if row["error"]]


def flipped(data: bytes, position: int, bit: int = 0) -> bytes:
    return data[:position] + bytes([data[position] ^ (1 << bit)]) + data[position + 1 :]


@pytest.mark.parametrize("cut", [1, 10, 16, 17, 30, 61, len(GOOD[2]) - 1])
def test_a_torn_tail_is_one_row(tmp_path: Path, cut: int):
    segment(tmp_path / TOPIC, log_of(*GOOD[:2], GOOD[2][:cut]))
    offsets, [(position, error)] = seen(tmp_path / TOPIC)
    assert offsets == [0, 1, 2, 3, 4, 5]
    assert position == len(GOOD[0] + GOOD[1])
    assert error.startswith("torn tail: ")
    assert f"{cut}" in error
    assert batch_errors(tmp_path / TOPIC) == [(position, error)]


def test_after_a_batch_with_a_wrong_crc_the_next_is_read(tmp_path: Path):
    segment(tmp_path / TOPIC, log_of(GOOD[0], flipped(GOOD[1], 80), GOOD[2]))
    offsets, errors = seen(tmp_path / TOPIC)
    assert offsets == [0, 1, 2, 6, 7, 8]
    said = "the CRC of the batch does not match its bytes (it says: offsets 3 to 5, producer 7 epoch 1, "
    assert [(position, error[: len(said)]) for position, error in errors] == [(len(GOOD[0]), said)]
    assert batch_errors(tmp_path / TOPIC) == errors


def test_crcs_are_not_checked_when_the_option_is_off(tmp_path: Path):
    crc_at = 17
    segment(tmp_path / TOPIC, log_of(GOOD[0], flipped(GOOD[1], crc_at), GOOD[2]))
    assert seen(tmp_path / TOPIC, check_crcs="false") == (list(range(9)), [])


@pytest.mark.parametrize("length", [-1, 0, 5, 2**31 - 13])
def test_an_impossible_length_ends_the_reading_with_an_error_row(tmp_path: Path, length: int):
    broken = GOOD[1][:8] + length.to_bytes(4, "big", signed=True) + GOOD[1][12:]
    segment(tmp_path / TOPIC, log_of(GOOD[0], broken, GOOD[2]))
    offsets, [(position, error)] = seen(tmp_path / TOPIC)
    assert offsets == [0, 1, 2]
    assert position == len(GOOD[0])
    assert f"{len(broken + GOOD[2])}" in error
    assert "are not read" in error


def test_zeros_after_the_last_batch_have_their_own_error(tmp_path: Path):
    segment(tmp_path / TOPIC, log_of(*GOOD, bytes(5000)))
    offsets, [(position, error)] = seen(tmp_path / TOPIC)
    assert (offsets, position) == (list(range(9)), len(log_of(*GOOD)))
    assert error == "5000 zero bytes follow the last batch: preallocated, or never written"


def test_a_batch_of_an_unknown_format_is_passed_over(tmp_path: Path):
    segment(tmp_path / TOPIC, log_of(GOOD[0], GOOD[1][:16] + b"\5" + GOOD[1][17:], GOOD[2]))
    offsets, [(_, error)] = seen(tmp_path / TOPIC)
    assert offsets == [0, 1, 2, 6, 7, 8]
    assert error.startswith("record format 5 is unknown; a batch of ")


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_one_row_that_says_so(tmp_path: Path, magic: int):
    old = bytes(8) + (22).to_bytes(4, "big") + bytes(4) + bytes([magic]) + bytes(17)
    segment(tmp_path / TOPIC, log_of(old, old, GOOD[2]))
    offsets, [(position, error)] = seen(tmp_path / TOPIC)
    assert (offsets, position) == ([6, 7, 8], 0)
    assert error == (
        f"2 messages of format {magic}, from before Kafka 0.11, are not read (the first has offset 0; 68 bytes)"
    )


def test_a_wrong_base_offset_is_found_by_its_neighbours(tmp_path: Path):
    """A wrong base offset, which the CRC does not cover, is detected by the offsets of its neighbours."""
    low = GOOD[1][:8].replace(b"\3", b"\1") + GOOD[1][8:]
    segment(tmp_path / "low-0", log_of(GOOD[0], low, GOOD[2]))
    high = (1 << 20).to_bytes(8, "big") + GOOD[1][8:]
    segment(tmp_path / "high-0", log_of(GOOD[0], high, GOOD[2]))
    far = (1 << 40).to_bytes(8, "big") + GOOD[2][8:]
    segment(tmp_path / "far-0", log_of(*GOOD[:2], far))
    assert seen(tmp_path / "far-0")[0] == [0, 1, 2, 3, 4, 5]
    for name in ("low-0", "high-0"):
        offsets, [(position, error)] = seen(tmp_path / name)
        assert offsets == [0, 1, 2, 6, 7, 8], name
        assert position == len(GOOD[0])
        assert error.startswith("the offsets of the batch do not increase (it says: offsets ")


def test_offsets_that_belong_to_the_next_segment_are_damage(tmp_path: Path):
    segment(tmp_path / TOPIC, log_of(GOOD[0], GOOD[2]))
    segment(tmp_path / TOPIC, GOOD[1], base_offset=3)
    offsets, [(_, error)] = seen(tmp_path / TOPIC)
    assert offsets == [0, 1, 2, 3, 4, 5]
    assert error == "the batch has the offsets 6 to 8, which belong to the segment that begins at 3"


def sealed(one: bytes) -> bytes:
    """The batch with a CRC that matches its changed bytes."""
    return one[:17] + google_crc32c.value(one[21:]).to_bytes(4, "big") + one[21:]


@pytest.mark.parametrize(
    ("count", "error"),
    [
        (2, "bytes follow the last record that the header counts"),
        (4, "there are fewer records than the header says"),
        (2**31 - 1, "the header counts more records than the batch can contain"),
        (-1, "the header counts more records than the batch can contain"),
    ],
)
def test_a_wrong_number_of_records_is_a_row(tmp_path: Path, count: int, error: str):
    broken = sealed(GOOD[0][:57] + count.to_bytes(4, "big", signed=True) + GOOD[0][61:])
    segment(tmp_path / TOPIC, log_of(broken, *GOOD[1:]))
    assert seen(tmp_path / TOPIC) == (
        [3, 4, 5, 6, 7, 8],
        [(0, f"the records of the batch are malformed: {error}")],
    )
    assert batch_errors(tmp_path / TOPIC) == []


@pytest.mark.parametrize("codec", [1, 2, 3, 4, 5, 7])
def test_a_batch_that_cannot_be_decompressed_is_a_row(tmp_path: Path, codec: int):
    body = b"\x82SNAPPY\0" + bytes(5) if codec == 2 else b"no codec wrote this"
    broken = batch(3)[:61] + body
    broken = broken[:8] + (len(broken) - 12).to_bytes(4, "big") + broken[12:]
    broken = sealed(broken[:21] + codec.to_bytes(2, "big") + broken[23:])
    segment(tmp_path / TOPIC, log_of(GOOD[0], broken, GOOD[2]))
    offsets, [(position, error)] = seen(tmp_path / TOPIC)
    assert (offsets, position) == ([0, 1, 2, 6, 7, 8], len(GOOD[0]))
    assert error.startswith("the batch cannot be decompressed: ")


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_is_a_row_and_takes_no_memory(tmp_path: Path, codec: int):
    zeros = bytes(8 << 20)
    body = compress(codec, zeros)
    one = batch(3)[:61] + body
    one = one[:8] + (len(one) - 12).to_bytes(4, "big") + one[12:]
    bomb = sealed(one[:21] + codec.to_bytes(2, "big") + one[23:])
    segment(tmp_path / TOPIC, log_of(GOOD[0], bomb, GOOD[2]))
    offsets, [(_, error)] = seen(tmp_path / TOPIC, plain_bytes_max=str(1 << 20))
    assert offsets == [0, 1, 2, 6, 7, 8]
    assert error.endswith("the batch has more than 1048576 decompressed bytes")


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_may_be_much_larger_than_its_bytes(tmp_path: Path, codec: int):
    value = bytes(5 << 20)
    large = judge.build_batch([(1, None, value)], base_offset=3, compression=codec)
    segment(tmp_path / TOPIC, log_of(GOOD[0], large, GOOD[2]))
    rows = plain(read(tmp_path / TOPIC))
    assert [row["offset"] for row in rows] == [0, 1, 2, 3, 6, 7, 8]
    assert rows[3]["value"] == value


def test_raw_snappy_is_read_as_xerial_is(tmp_path: Path):
    plain_body = batch(3)[61:]
    raw = batch(3)[:61] + bytes(cramjam.snappy.compress_raw(plain_body))
    raw = raw[:8] + (len(raw) - 12).to_bytes(4, "big") + raw[12:]
    raw = sealed(raw[:21] + (2).to_bytes(2, "big") + raw[23:])
    segment(tmp_path / TOPIC, log_of(GOOD[0], raw))
    assert seen(tmp_path / TOPIC) == (list(range(6)), [])


def test_a_batch_beyond_the_bound_is_not_brought_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reading, "CHUNK_BYTES", 4096)
    large = judge.build_batch([(1, None, os.urandom(100_000))], base_offset=3)
    segment(tmp_path / TOPIC, log_of(GOOD[0], large, GOOD[2]))
    offsets, [(position, error)] = seen(tmp_path / TOPIC, batch_bytes_max="50000")
    assert (offsets, position) == ([0, 1, 2], len(GOOD[0]))
    assert error.startswith(f"a batch of {len(large)} bytes is more than batch.bytes.max allows; ")


def test_a_filter_on_a_column_that_is_null_for_damage_excludes_it(tmp_path: Path):
    segment(tmp_path / TOPIC, log_of(GOOD[0], flipped(GOOD[1], 80), GOOD[2]))
    place = [spark.EqualTo(("topic",), "orders"), spark.IsNotNull(("partition",))]
    assert len([row for row in plain(read(tmp_path / TOPIC, place)) if row["error"]]) == 1
    for column in ("offset", "timestamp", "control"):
        assert [
            row for row in plain(read(tmp_path / TOPIC, [spark.IsNotNull((column,))])) if row["error"]
        ] == []


# ---- fuzz


def whole_batches(original: bytes, damaged: bytes) -> dict[int, tuple[int, int]]:
    """Positions of the batches that the damage did not touch, with their base offsets and sizes."""
    return {
        one.start: (one.base_offset, one.size)
        for one in judge.batches(original)
        if damaged[one.start : one.start + one.size] == original[one.start : one.start + one.size]
    }


SIZE = re.compile(r"(\d+)(?: bytes|, which are not read)")
MANY = log_of(
    *(batch(3 * i, compression=i % 5, producer_id=i, producer_epoch=0, base_sequence=0) for i in range(12))
)


def test_bytes_skipped_because_of_a_wrong_length_are_reported(tmp_path: Path):
    """Bytes that are skipped because of a wrong length are reported.

    The length leads into the middle of a batch, to bytes that resemble a message of an old format.
    """
    damaged = bytearray(MANY)
    damaged[236] ^= 1
    segment(tmp_path / TOPIC, bytes(damaged))
    read_ones, errors = seen(tmp_path / TOPIC)
    assert read_ones == list(range(6))
    told = sum(int(bytes_) for _, error in errors for bytes_ in SIZE.findall(error))
    assert told >= len(MANY) - 226


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_flipped_and_cut_bytes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    damaged = bytearray(MANY)
    flips = data.draw(st.integers(0, 3))
    for _ in range(flips):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    del damaged[data.draw(st.integers(0, len(damaged)) | st.just(len(damaged))) :]
    directory = tmp_path_factory.mktemp("fuzz") / TOPIC
    segment(directory, bytes(damaged))
    rows = plain(read(directory, table="batches"))
    read_ones = {row["position"]: row for row in rows if row["error"] is None}
    errors = [row for row in rows if row["error"]]
    intact = whole_batches(MANY, bytes(damaged))
    # Every record that is read is original, except for the leader epoch, which no CRC protects, and the base offset, which
    # only an intact batch behind it can prove wrong.
    known = {one.start: one for one in judge.batches(MANY)}
    for position, row in read_ones.items():
        assert row["producer_id"] == known[position].producer_id
        if flips <= 1 and position < max(read_ones):
            assert row["base_offset"] == known[position].base_offset
    assert errors or len(read_ones) == len(known) or len(damaged) in known
    # Every intact batch is read, unless an error reports that its bytes were skipped: a length may be wrong too.
    passed_over = [
        range(row["position"], row["position"] + int(bytes_))
        for row in errors
        for bytes_ in SIZE.findall(row["error"])
    ]
    assert [at for at in intact if at not in read_ones and not any(at in one for one in passed_over)] == []
    records = plain(read(directory))
    expected = [
        (read_ones[one.start]["base_offset"] + i, record.value)
        for one in judge.batches(MANY)
        if one.start in read_ones
        for i, record in enumerate(one.records())
    ]
    assert [(row["offset"], row["value"]) for row in records if row["error"] is None] == expected


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_are_read_without_a_crash(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, check: bool
):
    directory = tmp_path_factory.mktemp("any") / TOPIC
    segment(directory, GOOD[0] + data)
    for table in ("records", "batches"):
        rows = plain(read(directory, table=table, check_crcs=str(check)))
        assert data == b"" or any(row["error"] for row in rows)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_body_behind_a_right_crc_is_read_without_a_crash(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
):
    one = bytearray(judge.build_batch([(5, b"k", b"v", [("h", b"x"), ("i", None)])] * 3, base_offset=3))
    for _ in range(data.draw(st.integers(1, 4))):
        one[data.draw(st.integers(61, len(one) - 1))] = data.draw(st.integers(0, 255))
    broken = sealed(bytes(one))
    directory = tmp_path_factory.mktemp("body") / TOPIC
    segment(directory, log_of(GOOD[0], broken, GOOD[2]))
    rows = plain(read(directory))
    assert [row["offset"] for row in rows if not row["error"] and row["batch_offset"] != 3] == [
        0,
        1,
        2,
        6,
        7,
        8,
    ]
    try:
        judged = [
            (r.offset, r.key, r.value, len(r.headers)) for r in judge.RecordBatch.parse(broken).records()
        ]
    except judge.CorruptBatch:
        assert [row["error"] for row in rows if row["error"]] != []
        return
    found = [
        (row["offset"], row["key"], row["value"], len(row["headers"]))
        for row in rows
        if row["batch_offset"] == 3
    ]
    rising = [one[0] for one in judged] == sorted({one[0] for one in judged} & {3, 4, 5})
    assert found == (judged if rising else [])


# ---- chunks and splits


def test_a_small_chunk_reads_what_a_large_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    segment(tmp_path / TOPIC, MANY)
    whole = plain(read(tmp_path / TOPIC))
    for size in (61, 100, 333, 1000):
        monkeypatch.setattr(reading, "CHUNK_BYTES", size)
        assert plain(read(tmp_path / TOPIC)) == whole


def test_every_piece_is_read_once_however_large_segments_are_cut(tmp_path: Path):
    log = segment(tmp_path / TOPIC, MANY)
    [one] = segments(*partitions([str(tmp_path / TOPIC)]))
    asked = options.read({"path": str(log.parent)})
    for wanted in (100, 250, 700, 5000):
        cut = list(planning.pieces(one, wanted))
        assert (len(cut) > 1) == (len(MANY) >= 2 * wanted)
        assert [piece.end for piece in cut[:-1]] == [piece.start for piece in cut[1:]]
        bases = [
            head["base_offset"]
            for piece in cut
            for _, chunk in reading.chunks(piece, asked)
            for head in chunk.sound
        ]
        assert bases == [3 * i for i in range(12)]


def test_headers_say_what_the_broker_s_reader_says():
    import numpy as np

    found = heads.scan(np.frombuffer(bytearray(MANY), np.uint8), 0, len(MANY), True)
    assert [head["crc"] for head in found.heads] == [one.crc for one in judge.batches(MANY)]
