"""The compiled core and its Python twins return the same batches and records, and raise the same errors."""

import random
import struct
import sys
from dataclasses import fields
from typing import Any

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import compression, schema
from protocol.batch import CorruptBatch, RecordBatch, build_batch, end_txn_marker, patched_header
from protocol.core import TWINS
from protocol.core import compiled as compiled_core
from protocol.record import encode_record
from protocol.record_walk import walk
from protocol.records.transaction_log import TransactionLogKey, TransactionLogValue, TransactionPartitions
from protocol.schema import Key, VersionedRecord, python_writer
from tests.protocol.test_core_messages import STRANGE, check_for_leaks, damaged
from tests.protocol.test_records_damage import ALL_VERSIONS, records_of

pytestmark = pytest.mark.skipif(compiled_core is None, reason="there is no compiled core")
compiled: Any = compiled_core

LONG = bytes(5000)
LONG_AGO, FAR_AHEAD = -(1 << 63), (1 << 63) - 1


def outcome(function, *arguments, **named):
    try:
        result = function(*arguments, **named)
    except CorruptBatch as error:
        return (CorruptBatch, error.reason, str(error))
    except Exception as error:
        return (type(error), str(error))
    return (type(result), result)


def same(name, *arguments, **named):
    """Call a function of both cores, compare the outcomes, and return the outcome."""
    expected = outcome(TWINS[name], *arguments, **named)
    assert outcome(getattr(compiled, name), *arguments, **named) == expected
    return expected


def headers(rng):
    names = ["", "name", "é漢🎈", "\udcff\udc80", "n" * 200]
    return tuple(
        (rng.choice(names), rng.choice([None, b"", b"value", b"v" * 300])) for _ in range(rng.randrange(4))
    )


def records(rng, count):
    base = rng.choice([0, 1_700_000_000_000, -1])
    times = (base, base + 1, base + rng.randrange(1 << 40), base - 70)
    content = (None, b"", b"k", b"k" * 63, b"k" * 64, rng.randbytes(rng.choice((130, 9000))))
    return [
        (
            rng.choice(times),
            rng.choice(content),
            rng.choice(content),
            *([headers(rng)] if rng.random() < 0.4 else []),
        )
        for _ in range(count)
    ]


def test_the_sum_is_the_library_s_with_and_without_the_instruction():
    rng = random.Random("crc")
    data = rng.randbytes(20_000)
    for size in [*range(300), 1023, 1024, 3071, 3072, 3073, 6144, 9999, 20_000]:
        start = rng.randrange(len(data) - size + 1)
        piece, before = data[start : start + size], rng.getrandbits(32)
        expected = google_crc32c.extend(before, piece)
        assert compiled.crc32c(piece, before) == expected
        assert compiled.crc32c(memoryview(piece), before, False) == expected


def test_records_are_written_alike():
    rng = random.Random("records")
    deltas = (0, 1, -1, 63, 64, -65, 1 << 20, LONG_AGO, FAR_AHEAD, 1 << 64, -(1 << 70))
    for _ in range(2000):
        _, key, value, *rest = records(rng, 1)[0]
        same("encode_record", rng.choice(deltas), rng.choice(deltas), key, value, *rest)
    for strange in STRANGE:
        for position in range(5):
            arguments = [0, 0, b"key", b"value", [("name", b"value")]]
            arguments[position] = strange
            same("encode_record", *arguments)
    same("encode_record", 0, 0, key=b"a", value=None)
    assert encode_record(0, 0, b"a", None, iter([("name", b"value")])) == encode_record(
        0, 0, b"a", None, (("name", b"value"),)
    )
    same("encode_record", 0, 0, b"a", None, [("name", b"value", 1)])
    same("encode_record", 0, 0, b"a", None, [(b"name", b"value")])
    same("encode_record", 0)


OF_BATCH = {
    "base_offset": (0, 7, FAR_AHEAD, 1 << 63, None, 1.5),
    "leader_epoch": (0, -1, 1 << 31),
    "producer_id": (-1, 7, 1 << 63),
    "producer_epoch": (-1, 0, 32_767, 32_768, None),
    "base_sequence": (-1, 0, (1 << 31) - 1, 1 << 31),
    "transactional": (True, False, None, "yes"),
    "control": (True, False),
    "compression": (compression.NONE, compression.GZIP, None, 99),
    "compression_level": (None, 1),
    "log_append_time_ms": (None, 0, 1_700_000_000_000, 1 << 63),
    "unknown": (1,),
}


def test_batches_are_built_alike():
    rng = random.Random("batches")
    for _ in range(3000):
        names = rng.sample(sorted(OF_BATCH), rng.randrange(4))
        named = {name: rng.choice(OF_BATCH[name]) for name in names}
        found = records(rng, rng.choice((0, 1, 1, 1, 2, 5)))
        same("build_batch", rng.choice((list, tuple))(found), **named)
    for strange in STRANGE:
        same("build_batch", strange)
        same("build_batch", [strange])
        for position in range(4):
            record = [1, b"key", b"value", ()]
            record[position] = strange
            same("build_batch", [tuple(record)])
    same("build_batch", [(LONG_AGO, None, None), (FAR_AHEAD, None, None)])
    same("build_batch", [(1, b"long", bytes(3_000_000))])
    assert type(build_batch([(1, b"key", b"value")])) is bytes


def test_markers_are_written_alike():
    rng = random.Random("markers")
    for _ in range(2000):
        named = {
            "committed": rng.choice((True, False, 1, None)),
            "coordinator_epoch": rng.choice((0, 3, -1, 1 << 31, None)),
            "timestamp_ms": rng.choice((0, 1_700_000_000_000, 1 << 63, 1.5)),
            "base_offset": rng.choice((0, 99, 1 << 63)),
            "leader_epoch": rng.choice((-1, 5, None)),
        }
        for name in rng.sample(sorted(named), rng.choice((0, 0, 1, 2))):
            del named[name]
        same(
            "end_txn_marker",
            rng.choice((0, 7, FAR_AHEAD, 1 << 63)),
            rng.choice((0, 32_767, -1, 1 << 15)),
            **named,
        )
    same("end_txn_marker", 1, 2, True)
    assert len(end_txn_marker(1, 2, committed=True, coordinator_epoch=0, timestamp_ms=0)) == 78


def slots_of(batch):
    return [getattr(batch, name) for name in RecordBatch.__slots__]


def parsed(function, buffer, start):
    made = outcome(function, RecordBatch, buffer, start)
    return slots_of(made[1]) if made[0] is RecordBatch else made


def test_headers_of_batches_are_parsed_summed_and_patched_alike():
    rng = random.Random("headers")
    for _ in range(3000):
        batch = build_batch(records(rng, rng.randrange(3)), base_offset=rng.randrange(100), producer_id=7)
        start = rng.choice((0, 0, 5))
        data = rng.choice((batch, batch, damaged(rng, batch), batch[: rng.randrange(len(batch))]))
        data = bytes(start) + data + bytes(rng.randrange(3))
        for buffer in (data, bytearray(data), memoryview(data)):
            found = parsed(compiled.parse_batch, buffer, start)
            assert found == parsed(TWINS["parse_batch"], buffer, start)
            if isinstance(found, list):
                view = RecordBatch.parse(buffer, start)
                assert same("has_valid_crc", view)[1] in (True, False)
                same("stored_at", view, rng.choice((0, FAR_AHEAD, 1 << 63)), rng.choice((-1, 9, 1 << 31)))
                same("stored_at", view, base_offset=4, leader_epoch=5)
        same("patched_header", data, rng.choice((0, FAR_AHEAD, 1 << 63)), rng.choice((-1, 9, None)), start)
        same("patched_header", data, 1, leader_epoch=2)


def test_a_class_derived_from_batches_is_parsed_as_itself():
    class Derived(RecordBatch):
        pass

    made = Derived.parse(build_batch([(1, b"key", b"value")]))
    assert type(made) is Derived
    assert slots_of(Derived.parse(made.buffer, start=0)) == slots_of(made)
    assert made.has_valid_crc()
    assert patched_header(made.buffer, 5, 6) == made.stored_at(5, 6)[0][:16]
    only_header = Derived.parse_header(build_batch([(1, b"key", b"value" * 99)])[:61])
    assert same("has_valid_crc", only_header) == (bool, False)
    for wrong in (None, object(), RecordBatch()):
        for name in ("has_valid_crc", "stored_at"):
            with pytest.raises((TypeError, AttributeError)):
                getattr(compiled, name)(wrong, *([1, 2] if name == "stored_at" else []))
    with pytest.raises(TypeError):
        compiled.parse_batch(int, b"")


def walked(function, body, count, **named):
    suspects = []
    stops = []

    def suspect(index, delta, has_key):
        suspects.append((index, delta, has_key))

    def all_of_it():
        result = yield from function(body, count, suspect=suspect, **named)
        return result

    def run():
        steps = all_of_it()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            stops.append(1)

    return outcome(run), suspects, len(stops)


def body_of(rng):
    delta = (0, 1, -1, 5000, -5000, 1 << 62, LONG_AGO, FAR_AHEAD, 1 << 68, -(1 << 69))
    count = rng.choice((0, 1, 2, 3, 40))
    encoded = []
    for index in range(count):
        _, key, value, *rest = records(rng, 1)[0]
        offset = index if rng.random() < 0.9 else rng.randrange(1 << 31)
        encoded.append(encode_record(offset, rng.choice(delta), key, value, *rest))
    return b"".join(encoded), count


def test_records_are_walked_alike():
    rng = random.Random("walk")
    for _ in range(4000):
        body, count = body_of(rng)
        body = rng.choice((body, body, damaged(rng, body), body[: rng.randrange(len(body) + 1)]))
        named = {
            "earliest_delta": rng.choice((-(1 << 66), -10, 0, LONG_AGO)),
            "latest_delta": rng.choice((10, FAR_AHEAD, 1 << 64)),
            "wants_keys": rng.random() < 0.5,
            "slice_records": rng.choice((1, 2, 7, 1000)),
        }
        promised = count + rng.choice((0, 0, 0, 1, -1))
        expected = walked(TWINS["walk"], body, promised, **named)
        assert walked(walk, body, promised, **named) == expected
        assert walked(walk, memoryview(body), promised, **named) == expected


def test_a_walk_can_be_given_up_and_its_buffer_released():
    body = memoryview(b"".join(encode_record(index, 0, b"key", b"value") for index in range(100)))
    named: dict[str, Any] = {"earliest_delta": -1, "latest_delta": 1, "wants_keys": True, "suspect": print}
    steps = walk(body, 100, **named, slice_records=10)
    next(steps)
    body.release()
    with pytest.raises(ValueError, match="released"):
        list(steps)
    with pytest.raises(TypeError):
        type(steps)()


def test_a_suspect_that_raises_ends_the_walk():
    def suspect(*_):
        raise LookupError("stop")

    with pytest.raises(LookupError, match="stop"):
        list(
            walk(
                encode_record(0, 5, None, None),
                1,
                earliest_delta=0,
                latest_delta=1,
                wants_keys=False,
                suspect=suspect,
            )
        )


def written(record, version):
    core = schema._writer(type(record), version)
    assert type(getattr(core, "__self__", None)) is compiled.Program
    prefix = None if version % 2 else version
    expected = outcome(python_writer(type(record), version), record, prefix)
    assert outcome(core, record, prefix) == expected
    return expected


@pytest.mark.parametrize(("cls", "version"), ALL_VERSIONS)
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_records_of_internal_topics_are_written_alike(
    cls: type[VersionedRecord], version: int, data: st.DataObject
) -> None:
    record = data.draw(records_of(cls, version))
    assert written(record, version)[0] is bytes
    for field in fields(type(record)):
        if data.draw(st.booleans()):
            object.__setattr__(record, field.name, data.draw(st.sampled_from(STRANGE)))
    written(record, version)


def test_a_version_that_does_not_exist_is_refused_as_before():
    value = TransactionLogValue(transaction_status=1)
    with pytest.raises(ValueError, match="has no version 99"):
        value.encode(99)
    assert isinstance(TransactionLogKey("a"), Key)


def test_batches_and_records_hold_no_memory_but_their_own():
    value = TransactionLogValue(transaction_partitions=(TransactionPartitions("orders", (0, 1, 2)),))
    sound = build_batch([(1, b"key", b"value", (("name", b"value"),))], producer_id=7)
    body = sound[61:]
    bad = (sound[:40], sound[:16] + b"\1" + sound[17:], bytes(61))

    def once():
        batch = RecordBatch.parse(sound)
        batch.has_valid_crc()
        batch.stored_at(1 << 40, 2)
        patched_header(sound, 5, 6)
        for each in bad:
            outcome(RecordBatch.parse, each)
        build_batch([(1 << 40, b"key", value.encode(1))], producer_id=1 << 50)
        build_batch([(1, b"key", LONG, (("name", LONG),))])
        outcome(build_batch, [(1, None, LONG), (1, None, 7)])
        outcome(build_batch, [(1, None, 7)])
        end_txn_marker(1 << 40, 2, committed=True, coordinator_epoch=3, timestamp_ms=1 << 40)
        TransactionLogKey("txn").encode()
        for each in (body, body[:-2], b"\xff" * 30):
            walked(walk, each, 1, earliest_delta=5, latest_delta=6, wants_keys=True)

    check_for_leaks(once, [RecordBatch, CorruptBatch, value, sound, body, struct, sys])
