"""`walk` returns what decoding all records would return about them, and yields after each slice."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.record import CorruptBatch, Reason, decode_records, encode_record
from protocol.record_walk import (
    RECORD_BYTES_MIN,
    Walked,
    check_count,
    check_sizes,
    first_since,
    renumbered,
    walk,
)

EVER = 1 << 64
headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=200)), max_size=3)
records = st.lists(
    st.tuples(
        st.integers(-(2**40), 2**40),
        st.none() | st.binary(max_size=300),
        st.none() | st.binary(max_size=300),
        headers,
    ),
    max_size=12,
)


def drive(steps):
    """Run the generator ``steps`` to its end. Returns its return value, and how often it yielded."""
    stops = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, stops
        stops += 1


def walked(body, count, *, earliest=-EVER, latest=EVER, wants_keys=False, slice_records=500):
    suspects = []
    steps = walk(
        body,
        count,
        earliest_delta=earliest,
        latest_delta=latest,
        wants_keys=wants_keys,
        suspect=lambda *suspect: suspects.append(suspect),
        slice_records=slice_records,
    )
    return *drive(steps), suspects


def body_of(contents, deltas=None):
    return b"".join(
        encode_record(index if deltas is None else deltas[index], *content)
        for index, content in enumerate(contents)
    )


@given(records, st.sampled_from((bytes, memoryview)))
def test_sound_records(contents, kind):
    found, _, suspects = walked(kind(body_of(contents)), len(contents), earliest=0, wants_keys=True)
    assert found.offsets_in_a_row
    assert found.max_timestamp_delta == max((content[0] for content in contents), default=-EVER)
    assert suspects == [
        (index, time, key is not None)
        for index, (time, key, *_) in enumerate(contents)
        if key is None or time < 0
    ]


@settings(max_examples=300)
@given(records.filter(bool), st.data())
def test_changed_records_are_refused_or_walked_as_they_are_read(contents, data):
    body = bytearray(body_of(contents))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    read = found = None
    with suppress(CorruptBatch):
        read = list(decode_records(bytes(body), len(contents)))
    with suppress(CorruptBatch):
        found = walked(bytes(body), len(contents))[0]
    assert (read is None) == (found is None)
    if read is not None and found is not None:
        assert found.max_timestamp_delta == max(record.timestamp for record in read)
        assert found.offsets_in_a_row == ([record.offset for record in read] == list(range(len(read))))


@pytest.mark.parametrize(
    ("count", "plain_bytes", "sound"),
    [(1, RECORD_BYTES_MIN, True), (2, 13, False), (2_000_000, 1_500, False)],
)
def test_no_more_records_than_have_room(count, plain_bytes, sound):
    if sound:
        check_count(count, plain_bytes)
    else:
        with pytest.raises(CorruptBatch) as refused:
            check_count(count, plain_bytes)
        assert refused.value.reason is Reason.COUNT


@pytest.mark.parametrize(
    ("count", "body", "reason"),
    [
        (1, b"\xff" * 20, Reason.LENGTH),
        (2, encode_record(0, 0, b"k" * 20, b"v"), Reason.COUNT),
        (1, encode_record(0, 0, b"k", b"v") * 2, Reason.COUNT),
        (1, encode_record(0, 0, b"k", b"v")[:-1], Reason.RECORDS),
        (1, b"\x01" + bytes(8), Reason.RECORDS),
        (1, b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", Reason.RECORDS),
    ],
)
def test_what_is_wrong(count, body, reason):
    with pytest.raises(CorruptBatch) as refused:
        walked(body, count)
    assert refused.value.reason is reason


@given(records, st.integers(-(2**41), 2**41), st.integers(-1, 12))
def test_the_first_record_since_a_time_and_an_offset(contents, since, offset):
    body = b"".join(encode_record(delta, *record) for delta, record in enumerate(contents))
    expected = [
        (delta, record[0]) for delta, record in enumerate(contents) if record[0] >= since and delta >= offset
    ]
    found, _ = drive(first_since(body, len(contents), since, offset))
    assert found == (expected[0] if expected else None)


@pytest.mark.parametrize("body", [b"", b"\x0c", b"\x00\x00\x00", b"\x0c\0" + b"\xff" * 11, b"\x81" * 6])
def test_records_that_cannot_be_searched(body):
    with pytest.raises(CorruptBatch):
        drive(first_since(body, 1, 1, 0))


def test_it_stops_after_each_slice_of_records_and_of_headers():
    assert walked(body_of([(0, b"k", b"v")] * 1000), 1000, slice_records=100)[1] == 10
    many = [("", None)] * 10_000
    assert walked(body_of([(0, b"k", b"v", many)]), 1, slice_records=100)[1] == 100


@given(records, st.randoms(use_true_random=False))
def test_offsets_are_given_anew(contents, rng):
    deltas = [rng.randrange(-5, 2**20) for _ in contents]
    body = body_of(contents, deltas)
    found, _ = drive(renumbered(body, len(contents)))
    assert bytes(found) == body_of(contents)


def test_what_was_found():
    found, stops, suspects = walked(body_of([(5, None, None), (7, None, None)], [0, 0]), 2)
    assert (found, stops, suspects) == (Walked(7, False), 0, [])


def test_the_sizes_of_records_are_checked_in_slices():
    body = b"".join(encode_record(delta, 0, b"k", bytes(delta)) for delta in range(6))
    largest = max(len(encode_record(5, 0, b"k", bytes(5))) - 1, 1)
    assert drive(check_sizes(body, 6, largest, slice_records=2)) == (None, 3)
    with pytest.raises(CorruptBatch) as refused:
        drive(check_sizes(body, 6, largest - 1))
    assert refused.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize("body", [b"\x01", b"", b"\x80", b"\xff\xff\xff\xff\xff\x01"])
def test_lengths_that_are_no_lengths(body):
    with pytest.raises(CorruptBatch) as refused:
        drive(check_sizes(body, 1, 100))
    assert refused.value.reason is Reason.RECORDS
