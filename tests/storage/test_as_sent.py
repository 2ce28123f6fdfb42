"""The fast paths of an append decide like the full checks (ADR 23): `passes_as_sent`, `continues`, and `Room`, which reports
space in a segment only for batches for which `_must_roll` does not roll."""

from __future__ import annotations

import struct
import uuid

from google_crc32c import value as crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.batch import RecordBatch, build_batch
from storage.config import LogConfig
from storage.log import Log
from storage.producers import AppendOrigin, ProducerStateManager, VerificationGuard
from storage.room import Room
from storage.topic_configs import NEVER
from storage.validation import BatchLimits, Checked, Valid, check, passes_as_sent, stamp
from tests.storage.logs import NOW_MS

# (format, position) of each field in a batch's header, and values that a fast path accepts and that it does not.
FIELDS = {
    "base_offset": (">q", 0, (0, 1, -1)),
    "attributes": (">h", 21, (0, 1, 4, 5, 7, 0x08, 0x10, 0x18, 0x20, 0x40)),
    "last_offset_delta": (">i", 23, (0, 1, 2, -1, 2**31 - 1)),
    "max_timestamp": (">q", 35, (-1, NOW_MS, NOW_MS + 3_600_000, NOW_MS + 3_600_001, 2**63 - 1)),
    "producer_id": (">q", 43, (-1, 0, 7)),
    "base_sequence": (">i", 53, (-1, 0, 2**31 - 1)),
    "record_count": (">i", 57, (0, 1, 2, 3, -1, 2**31 - 1)),
}

changes = st.dictionaries(st.sampled_from(sorted(FIELDS)), st.integers(0, 9), max_size=3)
settings = st.fixed_dictionaries(
    {},
    optional={
        "cleanup_policy": st.sampled_from([("delete",), ("compact",), ("compact", "delete")]),
        "compression_type": st.sampled_from(["producer", "gzip", "uncompressed"]),
        "max_message_bytes": st.sampled_from([75, 1000]),
        "segment_bytes": st.sampled_from([75, 1000]),
        "message_timestamp_type": st.sampled_from(["CreateTime", "LogAppendTime"]),
        "message_timestamp_before_max_ms": st.sampled_from([NEVER, 1000]),
        "message_timestamp_after_max_ms": st.sampled_from([0, 3_600_000, NEVER]),
    },
)
limits = st.sampled_from([BatchLimits(), BatchLimits(records_max=1), BatchLimits(reads_all=True)])


def changed(fields: dict[str, int], records: int, *, torn: bool) -> RecordBatch:
    raw = bytearray(build_batch([(NOW_MS, b"k", b"v")] * records))
    for name, choice in fields.items():
        layout, at, values = FIELDS[name]
        struct.pack_into(layout, raw, at, values[choice % len(values)])
    struct.pack_into(">I", raw, 17, crc32c(bytes(raw[21:])) ^ torn)
    return RecordBatch.parse(bytes(raw))


@given(changes, st.integers(1, 3), st.booleans(), settings, limits)
@example({}, 2, False, {}, BatchLimits())
def test_what_passes_as_sent_is_checked_and_stored_as_it_is(fields, records, torn, chosen, limits):
    batch, config = changed(fields, records, torn=torn), LogConfig(**chosen)
    if not passes_as_sent(batch, config, NOW_MS, limits):
        assert fields or torn or chosen or limits != BatchLimits()
        return
    checked = check(batch, config, NOW_MS, NOW_MS, limits)
    assert checked == Checked(batch, None)
    assert stamp(checked, config, NOW_MS) == Valid(batch, -1)


steps = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.integers(0, 1),
        st.sampled_from([0, 1, 2, 3, 4, 5, 2**31 - 1]),
        st.integers(1, 2),
        st.booleans(),
        st.booleans(),
    ),
    max_size=25,
)


@given(steps)
@example([(0, 0, 0, 1, False, False), (0, 0, 1, 1, False, False)])
def test_a_batch_that_continues_is_neither_a_duplicate_nor_refused(steps):
    producers, offset, continued = ProducerStateManager(), 0, 0
    for producer_id, epoch, sequence, records, transactional, verifies in steps:
        raw = build_batch(
            [(NOW_MS, None, b"v")] * records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        batch = RecordBatch.parse(raw)
        guard: VerificationGuard | None = None
        continues = producers.continues(batch)
        duplicate = producers.duplicate_of(batch)
        refused = producers.check(batch, AppendOrigin.CLIENT, guard, verification_enabled=True)
        if continues:
            continued += 1
            assert duplicate is None
            assert refused is None
        if verifies and transactional:
            guard = producers.start_verification(
                producer_id, epoch, sequence, supports_epoch_bump=False, now_ms=NOW_MS
            )
            refused = producers.check(batch, AppendOrigin.CLIENT, guard, verification_enabled=True)
        if refused is None and duplicate is None:
            producers.update(batch, offset, NOW_MS)
            offset += records
    if steps == [(0, 0, 0, 1, False, False), (0, 0, 1, 1, False, False)]:
        assert continued == 1


appends = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from([-1, 0, 1, 999, 1000, 1001, 5000])), min_size=1, max_size=12
)
rolls = st.fixed_dictionaries(
    {},
    optional={
        "segment_bytes": st.sampled_from([150, 300]),
        "segment_ms": st.sampled_from([1000, NEVER]),
        "max_compaction_lag_ms": st.sampled_from([999, NEVER]),
        "cleanup_policy": st.sampled_from([("delete",), ("compact",)]),
        "segment_index_bytes": st.sampled_from([12, 24]),
        "index_interval_bytes": st.sampled_from([0, 4096]),
    },
)


@given(appends, rolls)
@example([(1, 0), (1, 0), (1, 0)], {"segment_bytes": 150})
@example([(1, 0), (1, 1001)], {"segment_ms": 1000})
@example([(1, 0), (1, 1000)], {"max_compaction_lag_ms": 999, "cleanup_policy": ("compact",)})
def test_what_has_room_in_the_segment_does_not_make_it_roll(tmp_path_factory, batches, chosen):
    log = Log(tmp_path_factory.mktemp("room") / "t-0", uuid.UUID(int=1), LogConfig(**chosen))
    rolled = False
    for records, after_ms in batches:
        timestamp_ms = NOW_MS + after_ms if after_ms >= 0 else -1
        batch = RecordBatch.parse(build_batch([(timestamp_ms, None, b"v")] * records))
        last_offset = log.log_end_offset + batch.last_offset_delta
        for segment in log.segments[-1:]:
            room = Room.of(segment, log.config, 0)
            has_room = (
                room.config is not None
                and segment.size + batch.size <= room.bytes
                and batch.max_timestamp <= room.timestamp_ms
                and last_offset <= room.last_offset
            )
            must_roll = log._must_roll(segment, batch, last_offset, NOW_MS)
            assert not (has_room and must_roll)
            rolled = rolled or must_roll
        log.append_data(batch, 0, NOW_MS, batch.max_timestamp)
    log.close(clean=False)
    assert rolled or chosen != {"segment_bytes": 150} or len(batches) < 3
