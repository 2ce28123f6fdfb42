"""Batches encoded from Arrow columns, compared with the broker's own decoder and builder."""

import itertools
import subprocess
import sys

import cramjam
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.spark.records.columns import bytes_column, header_column
from odradek.spark.records.compress import CODECS
from odradek.spark.records.encode import Batch, Rows, encode_batches
from protocol.batch import RecordBatch, build_batch

NOW_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
BINARIES = (pa.binary(), pa.large_binary(), pa.binary_view())

maybe_bytes = st.none() | st.binary(max_size=40)
header = st.tuples(st.text(max_size=8), maybe_bytes)
row = st.tuples(
    maybe_bytes,
    maybe_bytes,
    st.none() | st.lists(header, max_size=3),
    st.none() | st.integers(-1, 2**45),
)


def encode(
    rows: Rows, select=None, *, compression="none", batch_size_bytes=16_384, base_sequence=0
) -> list[Batch]:
    return encode_batches(
        rows,
        np.arange(len(rows)) if select is None else np.asarray(select, np.int64),
        producer_id=77,
        epoch=3,
        base_sequence=base_sequence,
        compression=compression,
        batch_size_bytes=batch_size_bytes,
    )


def header_array(rows):
    values = [None if each is None else [{"key": k, "value": v} for k, v in each] for each in rows]
    return pa.array(values, HEADERS)


def decoded(batches: list[Batch]):
    found = []
    for each in batches:
        batch = RecordBatch.parse(bytes(each.data))
        assert len(batch.data) == len(each.data)
        assert batch.has_valid_crc()
        records = list(batch.records())
        assert len(records) == each.records
        assert batch.max_timestamp == max(record.timestamp for record in records)
        found += records
    return found


def plain(rows):
    return [
        (NOW_MS if time_ms is None else time_ms, key, value, tuple(headers or ()))
        for key, value, headers, time_ms in rows
    ]


@given(
    st.lists(row, min_size=1, max_size=30),
    st.sampled_from(BINARIES),
    st.sampled_from(CODECS),
    st.integers(62, 400),
    st.data(),
)
@settings(max_examples=150, deadline=None)
def test_any_rows_of_any_slice_come_out_as_they_went_in(rows, kind, codec, batch_size_bytes, data):
    start = data.draw(st.integers(0, len(rows) - 1))
    stop = data.draw(st.integers(start + 1, len(rows)))
    keys, values, headers, times = zip(*rows, strict=True)
    prepared = Rows.of(
        pa.array(values, kind)[start:stop],
        NOW_MS,
        keys=pa.array(keys, kind)[start:stop],
        headers=header_array(headers)[start:stop],
        timestamps=pa.array(times, pa.int64())[start:stop],
    )
    count = stop - start
    select = data.draw(st.permutations(range(count)))
    batches = encode(prepared, select, compression=codec, batch_size_bytes=batch_size_bytes)
    expected = plain(rows[start:stop])
    found = decoded(batches)
    assert [(r.timestamp, r.key, r.value, r.headers) for r in found] == [expected[index] for index in select]
    assert [record.sequence for record in found] == list(range(count))


@given(st.lists(row, min_size=1, max_size=12))
@settings(max_examples=100, deadline=None)
def test_a_batch_is_byte_for_byte_the_one_that_the_broker_would_build(rows):
    keys, values, headers, times = zip(*rows, strict=True)
    prepared = Rows.of(
        pa.array(values, pa.binary()),
        NOW_MS,
        keys=pa.array(keys, pa.binary()),
        headers=header_array(headers),
        timestamps=pa.array(times, pa.int64()),
    )
    [batch] = encode(prepared, base_sequence=5)
    built = build_batch(plain(rows), producer_id=77, producer_epoch=3, base_sequence=5, transactional=True)
    assert bytes(batch.data) == built


def test_a_batch_is_never_larger_than_asked_for_unless_one_record_is():
    values = [b"x" * size for size in (10, 50, 2_000, 30, 400, 1, 999, 5)] * 20
    batches = encode(Rows.of(pa.array(values), NOW_MS), batch_size_bytes=1_000)
    assert {each.records for each in batches if len(each.data) > 1_000} == {1}
    assert [record.value for record in decoded(batches)] == values
    pairs = itertools.pairwise(batches)
    assert all(len(one.data) + len(other.data) > 1_000 for one, other in pairs), (
        "two that would have fitted into one"
    )


def test_sequences_start_again_at_zero_behind_the_greatest():
    batches = encode(
        Rows.of(pa.array([b"v" * 80] * 6), NOW_MS), base_sequence=2**31 - 3, batch_size_bytes=250
    )
    assert [RecordBatch.parse(bytes(each.data)).base_sequence for each in batches] == [
        2**31 - 3,
        2**31 - 1,
        1,
    ]


@pytest.mark.parametrize("codec", CODECS[1:])
def test_large_batches_are_compressed_and_are_read(codec):
    values = [b"%07d" % number * 40 for number in range(2_000)]
    [batch] = encode(Rows.of(pa.array(values), NOW_MS), compression=codec, batch_size_bytes=1 << 20)
    assert len(batch.data) < 200_000
    assert [record.value for record in decoded([batch])] == values


def test_incompressible_batches_can_be_read():
    noise = bytes(cramjam.zstd.compress(bytes(np.random.default_rng(1).bytes(200_000))))
    for codec in CODECS:
        [batch] = encode(Rows.of(pa.array([noise]), NOW_MS), compression=codec)
        assert [record.value for record in decoded([batch])] == [noise]


def test_every_layout_of_strings_is_taken():
    words = ["", "a", None, "ä" * 20, "zz"]
    expected = [None if word is None else word.encode() for word in words]
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        array = pa.array(words, kind)
        for column in (array, pa.chunked_array([array[:2], array[2:]])):
            found = decoded(encode(Rows.of(column, NOW_MS)))
            assert [record.value for record in found] == expected, kind
    nothing = decoded(encode(Rows.of(pa.nulls(3), NOW_MS)))
    assert [record.value for record in nothing] == [None, None, None]
    fixed = decoded(encode(Rows.of(pa.array([b"ab", None], pa.binary(2)), NOW_MS)))
    assert [record.value for record in fixed] == [b"ab", None]


def test_times_are_taken_in_any_unit():
    values = pa.array([b"a", b"b"])
    for unit, factor in (("s", 1 / 1000), ("ms", 1), ("us", 1_000), ("ns", 1_000_000)):
        times = pa.array([int(NOW_MS * factor), None], pa.timestamp(unit, "UTC"))
        found = decoded(encode(Rows.of(values, 5_000, timestamps=times)))
        assert [record.timestamp for record in found] == [NOW_MS, 5_000], unit


def test_wrong_columns_are_refused_in_words():
    with pytest.raises(TypeError, match="binary or string, not int64"):
        bytes_column(pa.array([1]))
    with pytest.raises(TypeError, match="not int64"):
        header_column(pa.array([1]))
    with pytest.raises(TypeError, match="headers must be"):
        header_column(pa.array([["a"]]))
    with pytest.raises(ValueError, match="no key"):
        header_column(header_array([[("a", b"")], [(None, b"x")]]))
    with pytest.raises(ValueError, match="1 keys for 2 values"):
        Rows.of(pa.array([b"", b""]), NOW_MS, keys=pa.array([b""]))


def test_a_header_without_a_key_outside_of_the_slice_does_not_matter():
    headers = header_array([[(None, b"x")], [("a", b"1")], [(None, b"y")]])[1:2]
    found = decoded(encode(Rows.of(pa.array([b"v"]), NOW_MS, headers=headers)))
    assert [record.headers for record in found] == [(("a", b"1"),)]


def test_no_rows_are_no_batches():
    assert encode(Rows.of(pa.array([], pa.binary()), NOW_MS)) == []


def test_code_is_compiled_even_without_a_writable_cache():
    program = """
import numba.core.caching as caching
caching.CacheImpl._locator_classes = []
from odradek.spark.records.partitioner import murmur2
print(murmur2(b"21"))
"""
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == f"{2**32 - 973932308}\n"
