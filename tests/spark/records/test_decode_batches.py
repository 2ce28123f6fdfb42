"""Batch headers, codecs and record fields one by one. tests/spark/segments tests the tables that are made of them."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from odradek.spark.records import decode, heads
from odradek.spark.records.codecs import NAMES, PlainBuffer, Undecodable
from odradek.spark.records.heads import Bytes
from protocol import batch as judge
from protocol.compression import compress


def buffer(data: bytes) -> Bytes:
    return np.frombuffer(bytearray(data), np.uint8)


def body(data: bytes, records: int) -> tuple[Bytes, decode.Fields, list[int]]:
    plain = buffer(data)
    numbers = [np.array([number], np.int64) for number in (0, len(data), records, records - 1)]
    fields, flaws = decode.find_fields(plain, *numbers)
    return plain, fields, flaws.tolist()


def test_crcs_of_batches_of_all_sizes():
    """The CRCs of small batches, from our code, and of large batches, from the library, are right."""
    rng = random.Random(1)
    sizes = [*range(40), 940, 950, 960, 970, 5000]
    batches = [
        judge.build_batch([(1, None, rng.randbytes(size))], base_offset=number)
        for number, size in enumerate(sizes)
    ]
    data = buffer(b"".join(batches))
    found = heads.scan(data, 0, len(data), True)
    assert heads.sound(data, found.heads).all()
    assert {bool(head["size"] > heads._COMPILED_CRC_BYTES_MAX) for head in found.heads} == {True, False}
    for head in found.heads:
        data[head["position"] + head["size"] - 2] ^= 0x10
    assert not heads.sound(data, found.heads).any()


def test_a_scan_stops_at_a_truncated_batch_and_returns_its_size():
    one = judge.build_batch([(1, b"k", b"v" * 100)])
    data = buffer(one + one[:70])
    found = heads.scan(data, 0, len(data), False)
    assert (len(found.heads), found.stop, found.reason, found.size) == (1, len(one), heads.CUT, len(one))
    found = heads.scan(data, 0, len(one) + 5, False)
    assert (len(found.heads), found.stop, found.reason) == (1, len(one), heads.SHORT)
    assert heads.scan(data, 0, len(one), True).reason == heads.DONE


def test_header_keys_that_are_not_utf_8_are_replaced():
    one = judge.RecordBatch.parse(
        judge.build_batch([(1, None, None, [("é", b"x"), ("\udcff", None)]), (2, b"", b"", [])])
    )
    plain, fields, flaws = body(one.plain_body(), 2)
    assert flaws == [0]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    found = decode.headers(plain, fields, kind)
    found.validate(full=True)
    assert found.to_pylist() == [[{"key": "é", "value": b"x"}, {"key": "\ufffd", "value": None}], []]
    values = decode.binary(plain, fields.value_start, fields.value_size)
    values.validate(full=True)
    assert values.to_pylist() == [None, b""]


RECORD = bytes([16, 0, 0, 0, 2, 65, 2, 66, 0])  # length 8, attributes, deltas, "A", "B", no headers


@pytest.mark.parametrize(
    ("data", "flaw"),
    [
        (RECORD, decode.SOUND),
        (RECORD[:-1], decode.PAST_END),
        (bytes([18]) + RECORD[1:] + b"\0", decode.OTHER_END),
        (b"\xff" * 5 + RECORD, decode.LONG_NUMBER),
        (bytes([16, 0]) + b"\x80" * 10 + RECORD, decode.LONG_FIELD),
        (bytes([36, 0]) + b"\x80" * 10 + RECORD, decode.LONG_NUMBER),
        (bytes([16, 0, 0, 0, 20, 65, 2, 66, 0]), decode.LONG_FIELD),
        (bytes([16, 0, 0, 0, 2, 65, 2, 66, 1]), decode.MANY_HEADERS),
        (bytes([16, 0, 0, 0, 2, 65, 2, 66, 20]), decode.MANY_HEADERS),
        (bytes([20, 0, 0, 0, 2, 65, 2, 66, 2, 1, 1]), decode.NO_HEADER_KEY),
        (bytes([16, 0, 0, 2, 2, 65, 2, 66, 0]), decode.NO_RISE),
        (bytes([16, 0, 0, 1, 2, 65, 2, 66, 0]), decode.NO_RISE),
        (RECORD + b"\0", decode.MORE),
        (b"\0" * 6, decode.NO_ROOM),
        (b"", decode.NO_ROOM),
    ],
)
def test_malformed_records_are_detected(data: bytes, flaw: int):
    _, fields, flaws = body(data, 1)
    assert flaws == [flaw], decode.FLAWS[flaws[0]]
    assert len(fields.batch) == (flaw == decode.SOUND)


def test_bodies_of_all_codecs_lie_side_by_side():
    rng = random.Random(2)
    plain = PlainBuffer(64 << 20)
    for _ in range(2):
        plain.clear()
        expected = []
        for number in range(60):
            text = bytes([number]) * rng.choice([1, 1000, 200_000]) + rng.randbytes(100)
            start, end = plain.add(number % 5, buffer(compress(number % 5, text)))
            expected.append((start, end, text))
        assert [plain.data[start:end].tobytes() for start, end, _ in expected] == [
            each[2] for each in expected
        ]
        assert plain.used == sum(len(each[2]) for each in expected)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_body_that_fails_leaves_the_others_as_they_were(codec: int):
    plain = PlainBuffer(1 << 20)
    first = plain.add(codec, buffer(compress(codec, b"first" * 100)))
    good = compress(codec, b"cut" * 30_000)
    for bad in (good[:-5], good[: len(good) // 2], b"\0" * 20, compress(codec, bytes(2 << 20))):
        with pytest.raises(Undecodable, match=NAMES[codec]):
            plain.add(codec, buffer(bad))
    last = plain.add(codec, buffer(compress(codec, b"last")))
    assert first == (0, 500)
    assert last == (500, 504)
    assert plain.data[:504].tobytes() == b"first" * 100 + b"last"
