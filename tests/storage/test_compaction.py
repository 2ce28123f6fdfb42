"""Single decisions of compaction. `test_compaction_kafka.py` compares whole logs with the results of Kafka's cleaner."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.batch import RecordBatch, build_batch
from storage.compaction.grouping import GROUP_SEGMENTS_MAX, Sized, Source, groups
from storage.compaction.offset_map import ENTRY_BYTES, OffsetMap, capacity
from storage.compaction.rewriting import Pass
from storage.config import LogConfig
from storage.files import StorageError
from storage.log import Log
from tests.storage.compacting import compact, order_for, part_of
from tests.storage.logs import NOW_MS, TOPIC_ID, contents, end, reopen


def keyed(log: Log, *pairs: tuple[str, str | None], **batch: Any) -> int:
    """Append one batch of (key, value) records and return its base offset."""
    records = [(NOW_MS, key.encode(), None if value is None else value.encode()) for key, value in pairs]
    producer_id, epoch, sequence = batch.pop("producer", (-1, -1, -1))
    made = RecordBatch.parse(
        build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **batch)
    )
    return log.append_data(made, 0, NOW_MS, made.max_timestamp)


def shown(log: Log) -> dict[int, tuple[bytes | None, bytes | None]]:
    return {
        record.offset: (record.key, record.value)
        for batch in log.batches()
        if not batch.is_control
        for record in batch.records()
    }


@pytest.fixture
def log(directory: Path) -> Log:
    return Log(
        directory,
        TOPIC_ID,
        LogConfig(
            cleanup_policy=("compact",),
            segment_bytes=2000,
            delete_retention_ms=1000,
            index_interval_bytes=100,
        ),
    )


def test_of_each_key_the_last_record_stays(log: Log):
    keyed(log, ("a", "1"), ("b", "1"), ("a", "2"))
    keyed(log, ("c", "1"))
    log.roll(NOW_MS)
    keyed(log, ("b", "2"))
    log.roll(NOW_MS)
    keyed(log, ("a", "3"))
    assert compact(log) == 5
    # The active segment is not compacted, and its records do not count as later ones.
    assert shown(log) == {2: (b"a", b"2"), 3: (b"c", b"1"), 4: (b"b", b"2"), 5: (b"a", b"3")}
    assert (log.log_start_offset, log.log_end_offset) == (0, 6)
    assert len(log.segments) == 2


def test_what_stays_whole_is_not_touched(log: Log):
    keyed(log, ("a", "1"), ("b", "1"), compression=1)
    keyed(log, ("c", "1"))
    log.roll(NOW_MS)
    before = log.segments[0].path("log").read_bytes()
    os.utime(log.segments[0].path("log"), (1_600_000_000, 1_600_000_000))
    compact(log)
    after = log.segments[0].path("log")
    assert after.read_bytes() == before
    assert after.stat().st_mtime == 1_600_000_000


def test_a_tombstone_stays_until_its_horizon(log: Log):
    keyed(log, ("a", "1"), ("a", None), ("b", "1"))
    log.roll(NOW_MS)
    assert compact(log) == 3
    assert shown(log) == {1: (b"a", None), 2: (b"b", b"1")}
    (left,) = log.batches()
    assert left.delete_horizon_ms == NOW_MS + 1000
    assert [record.timestamp for record in left.records()] == [NOW_MS, NOW_MS]
    compact(log, now_ms=NOW_MS + 999)
    assert list(shown(log)) == [1, 2]
    compact(log, now_ms=NOW_MS + 1000)
    assert list(shown(log)) == [2]


@pytest.mark.parametrize(("follows", "left"), [(False, [1]), (True, [])])
def test_the_batch_that_ends_at_the_high_watermark_stays_as_a_header(
    log: Log, follows: bool, left: list[int]
):
    """As in Kafka 4.4. Kafka 4.3 kept the last batch of the compacted part, whatever follows it."""
    keyed(log, ("a", "1"))
    keyed(log, ("a", None))
    log.roll(NOW_MS)
    if follows:
        keyed(log, ("b", "1"))
    for passed_ms in (0, 1001):
        compact(log, now_ms=NOW_MS + passed_ms)
    assert [batch.base_offset for batch in log.batches() if batch.base_offset < 2] == left


def test_a_tombstone_that_shall_stay_for_ever_has_no_horizon(log: Log):
    log.config = LogConfig(cleanup_policy=("compact",), delete_retention_ms=2**63 - 1)
    keyed(log, ("a", "1"), ("a", None))
    log.roll(NOW_MS)
    for _ in range(2):
        compact(log)
        (left,) = log.batches()
        assert not left.has_delete_horizon
        assert list(shown(log)) == [1]


def test_an_open_transaction_and_what_follows_it_are_left_alone(log: Log):
    keyed(log, ("a", "1"))
    log.roll(NOW_MS)
    keyed(log, ("a", "2"), producer=(7, 0, 0), transactional=True)
    log.roll(NOW_MS)
    keyed(log, ("a", "3"))
    log.roll(NOW_MS)
    assert part_of(log).upper_bound == 1
    assert part_of(log).ask_again_ms == NOW_MS
    compact(log)
    assert list(shown(log)) == [0, 1, 2]
    end(log, 7, committed=True)
    log.roll(NOW_MS)
    compact(log)
    assert list(shown(log)) == [2]


def test_the_markers_of_a_transaction_go_after_its_data(log: Log):
    for committed in (True, False):
        keyed(log, ("a", "x"), producer=(7 + committed, 0, 0), transactional=True)
        end(log, 7 + committed, committed=committed)
    keyed(log, ("a", "last"))
    # Later batches of both producers keep them in the producer state.
    keyed(log, ("z", "1"), producer=(7, 0, 1))
    keyed(log, ("z", "2"), producer=(8, 0, 1))
    log.roll(NOW_MS)
    markers = []
    for now_ms in (0, 1, 500, 1000, 1001):
        compact(log, now_ms=NOW_MS + now_ms)
        markers.append([(b.base_offset, b.delete_horizon_ms) for b in log.batches() if b.is_control])
    horizon_ms = NOW_MS + 1001
    # The first pass finds data of the transactions below the markers, the second pass none.
    assert markers == [[(1, None), (3, None)], *[[(1, horizon_ms), (3, horizon_ms)]] * 3, []]
    assert contents(log.directory, "txnindex") == {}


def test_the_transaction_index_tells_of_data_that_was_there_during_the_pass(log: Log):
    keyed(log, ("a", "x"), producer=(7, 0, 0), transactional=True)
    log.roll(NOW_MS)
    end(log, 7, committed=False)
    # Without it the producer's last batch would be kept, empty, and with it the index entry.
    keyed(log, ("b", "x"), producer=(7, 0, 1))
    log.roll(NOW_MS)
    compact(log)
    assert [tuple(entry) for entry in log.segments[0].transaction_index.entries()] == [(7, 0, 1, 2)]
    assert reopen(log, clean=True).log.segments[0].has_aborted
    compact(log)
    assert not log.segments[0].path("txnindex").exists()


def test_a_batch_with_a_wrong_crc_ends_the_pass_and_changes_nothing(log: Log):
    keyed(log, ("a", "1"), ("a", "2"))
    keyed(log, ("b", "1"))
    log.roll(NOW_MS)
    path = log.segments[0].path("log")
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"00000000000000000000\.log: the CRC of the batch at offset 0"):
        compact(log)
    assert path.read_bytes() == content
    assert list(log.directory.glob("*.cleaned")) == []


@pytest.mark.parametrize(
    "damage", [lambda content: content[:-1], lambda content: content[:100]], ids=["end", "middle"]
)
def test_a_file_that_ends_too_early_ends_the_pass(log: Log, damage: Callable[[bytes], bytes]):
    keyed(log, ("a", "1" * 100))
    keyed(log, ("b", "1"))
    log.roll(NOW_MS)
    part = part_of(log)
    path = log.segments[0].path("log")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StorageError, match="no whole batch"):
        Pass(order_for(log, part)).prepare()


def test_a_pass_that_is_given_up_leaves_nothing(log: Log):
    class GivenUp(Exception):
        pass

    def tick(_: int) -> None:
        if list(log.directory.glob("*.cleaned")):
            raise GivenUp

    keyed(log, ("a", "1"), ("a", "2"))
    log.roll(NOW_MS)
    names = {path.name for path in log.directory.iterdir()}
    work = Pass(order_for(log, part_of(log)), tick)
    work.prepare()
    with pytest.raises(GivenUp):
        work.rewrite(work.groups[0])
    assert {path.name for path in log.directory.iterdir()} == names


def test_segments_that_retention_has_taken_are_not_replaced(log: Log):
    for _ in range(3):
        keyed(log, ("a", "1"))
        log.roll(NOW_MS)
    work = Pass(order_for(log, part_of(log)))
    work.prepare()
    (group,) = work.groups
    sources = log.segments[:3]
    cleaned = work.rewrite(group)
    cleaned.offer()
    log.drop_oldest(1, NOW_MS)
    assert log.replace(sources, cleaned.segment(NOW_MS)) is None
    cleaned.discard()
    assert list(log.directory.glob("*.swap")) == []
    assert list(log.directory.glob("*.cleaned")) == []
    assert shown(log) == {1: (b"a", b"1"), 2: (b"a", b"1")}
    assert shown(reopen(log).log) == shown(log)


def test_a_large_batch_is_read_whole(log: Log):
    log.config = LogConfig(cleanup_policy=("compact",), segment_bytes=10_000_000)
    keyed(log, ("a", "1" * 3_000_000), ("a", "2" * 1_000_000))
    keyed(log, ("b", "1"))
    log.roll(NOW_MS)
    compact(log)
    assert shown(log) == {1: (b"a", b"2" * 1_000_000), 2: (b"b", b"1")}


def test_keys_of_any_length_are_told_apart():
    offsets = OffsetMap(1000)
    keys = [b"", *(bytes([number]) * length for number in (0, 1) for length in (1, 31, 32, 33, 34, 1000))]
    for number, key in enumerate(keys):
        offsets.put(key, number)
    assert [offsets.get(key) for key in keys] == list(range(len(keys)))
    assert (offsets.get(b"other"), len(offsets), offsets.latest_offset) == (-1, len(keys), len(keys) - 1)


@pytest.mark.parametrize(("length", "count"), [(32, 44_000), (1000, 50_000)])
def test_a_key_costs_no_more_memory_than_is_said(length: int, count: int):
    tracemalloc.start()
    try:
        offsets = OffsetMap(capacity(ENTRY_BYTES * count, 1.0))
        for number in range(count):
            offsets.put(number.to_bytes(length, "big"), 2**40 + number)
        assert offsets.is_full
        assert tracemalloc.get_traced_memory()[1] < ENTRY_BYTES * count
    finally:
        tracemalloc.stop()
    offsets.clear(lambda: None)
    assert len(offsets) == 0


def test_groups_are_bounded_in_number_too():
    count = 2 * GROUP_SEGMENTS_MAX + 1
    tiny = [Sized(Source(number, 10), 8, 12) for number in range(count)]
    assert [len(group) for group in groups(tiny, 10**6, 10**6, count)] == [
        GROUP_SEGMENTS_MAX,
        GROUP_SEGMENTS_MAX,
        1,
    ]


def test_offsets_of_a_group_fit_its_index():
    far = [Sized(Source(base, 10), 0, 0) for base in (0, 2**31 - 1, 2**31, 2**31 + 5)]
    assert [[source.base_offset for source in group] for group in groups(far, 1000, 1000, 2**31 + 9)] == [
        [0, 2**31 - 1],
        [2**31, 2**31 + 5],
    ]
    # An empty segment does not need to fit.
    far[2] = Sized(Source(2**31, 0), 0, 0)
    assert [len(group) for group in groups(far, 1000, 1000, 2**31 + 9)] == [3, 1]
