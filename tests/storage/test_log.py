"""`Log`: positions of batches, when segments roll (`LogSegment.shouldRoll`), what fetches return (`LocalLog.read`)."""

from __future__ import annotations

import struct
import uuid
from pathlib import Path
from typing import Any

import pytest

from protocol.batch import RecordBatch, build_batch
from protocol.records.producer_snapshot import decode
from storage.config import LogConfig
from storage.files import StorageError
from storage.log import Log
from storage.recovery import truncate
from tests.storage.conftest import MakeLog
from tests.storage.logs import (
    NOW_MS,
    TOPIC_ID,
    append,
    assert_indexes_match_the_log,
    contents,
    data,
    end,
    options,
    reopen,
)
from tests.support.batches import stored, whole_batches

SIZE = data().size


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def read_offsets(log: Log, offset: int, end_offset: int, max_bytes: int = 1 << 20) -> list[tuple[int, int]]:
    """(base offset, last offset) of the complete batches that a read returns."""
    span = log.read(offset, end_offset, max_bytes, whole_first_batch=True)
    if span is None:
        return []
    return [(batch.base_offset, batch.last_offset) for batch in whole_batches(span.bytes())]


# -- creating a partition ---------------------------------------------------------------------------------------


def test_nothing_is_on_the_disk_before_the_first_append(make_log: MakeLog, directory: Path):
    log = make_log()
    log.assign_epoch(4)
    assert not log.exists
    assert not directory.exists()
    append(log, leader_epoch=4)
    assert sorted(path.name for path in directory.iterdir()) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert (directory / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n4 0\n"


def test_an_empty_partition_has_its_leader_s_epoch(make_log: MakeLog, directory: Path):
    log = make_log()
    log.assign_epoch(0)
    log.create(NOW_MS)
    assert (directory / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 0\n"
    log.assign_epoch(2)
    assert log.epochs.entries() == [(2, 0)]


def test_a_clean_stop_of_an_empty_log_leaves_no_snapshot(make_log: MakeLog, directory: Path):
    log = make_log()
    log.create(NOW_MS)
    log.close(clean=True)
    assert contents(directory, "snapshot") == {}
    assert reopen(log).log.log_end_offset == 0
    assert reopen(log, clean=False).log.log_end_offset == 0
    assert contents(directory, "snapshot") == {}


# -- appending --------------------------------------------------------------------------------------------------


def test_the_file_holds_the_batches_with_offset_and_epoch_set_and_nothing_else(
    make_log: MakeLog, directory: Path
):
    log = make_log()
    made = [data(1), data(3, compression=4), data(2, producer=(5, 0, 0))]
    for epoch, batch in zip((0, 0, 7), made, strict=True):
        log.append_data(batch, epoch, NOW_MS, NOW_MS)
    expected, offset = b"", 0
    for epoch, batch in zip((0, 0, 7), made, strict=True):
        raw = bytearray(batch.data)
        struct.pack_into(">q", raw, 0, offset)
        struct.pack_into(">i", raw, 12, epoch)
        expected += raw
        offset += batch.last_offset_delta + 1
    assert contents(directory, "log") == {0: expected}
    assert log.log_end_offset == 6
    assert log.epochs.entries() == [(0, 0), (7, 4)]
    log.close(clean=True)
    assert (directory / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n7 4\n"


def test_a_batch_inside_a_larger_buffer_is_appended_alone(make_log: MakeLog):
    log = make_log()
    raw = bytes(data().data)
    log.append_data(RecordBatch.parse(b"before" + raw + b"behind", 6), 0, NOW_MS, NOW_MS)
    assert [batch.has_valid_crc() for batch in log.batches()] == [True]
    assert log.size == len(raw)


def test_a_marker_takes_78_bytes_and_one_offset(make_log: MakeLog, directory: Path):
    log = make_log()
    append(log, 2, producer=(5, 0, 0), transactional=True)
    assert end(log, 5, committed=True) == 2
    batches = list(stored(contents(directory, "log")[0]))
    assert (batches[-1].size, batches[-1].attributes, batches[-1].base_offset) == (78, 0x30, 2)


# -- rolling ----------------------------------------------------------------------------------------------------


def test_a_segment_never_exceeds_segment_bytes(make_log: MakeLog):
    log = make_log(segment_bytes=3 * SIZE)
    for _ in range(7):
        append(log)
    assert bases(log) == [0, 3, 6]
    assert [segment.size for segment in log.segments] == [3 * SIZE, 3 * SIZE, SIZE]


def test_a_segment_one_byte_too_small_rolls_a_batch_earlier(make_log: MakeLog):
    log = make_log(segment_bytes=3 * SIZE - 1)
    for _ in range(5):
        append(log)
    assert bases(log) == [0, 2, 4]


def test_segments_roll_by_the_records_time_not_by_the_clock_s(make_log: MakeLog):
    log = make_log(segment_ms=1000)
    append(log, timestamp_ms=5000, now_ms=0)
    append(log, timestamp_ms=6000, now_ms=10**9)
    assert bases(log) == [0]
    append(log, timestamp_ms=6001, now_ms=10**9)
    assert bases(log) == [0, 2]
    append(log, timestamp_ms=100, now_ms=10**9)  # timestamps may decrease
    assert bases(log) == [0, 2]


@pytest.mark.parametrize(
    ("policy", "segment_ms", "lag_ms", "rolls_after_ms"),
    [
        (("compact",), 1000, 700, 700),
        (("compact", "delete"), 1000, 700, 700),
        (("compact",), 700, 1000, 700),
        (("delete",), 1000, 700, 1000),
        ((), 1000, 700, 1000),
    ],
)
def test_compacted_logs_roll_in_time_for_max_compaction_lag_ms(
    make_log: MakeLog, policy, segment_ms, lag_ms, rolls_after_ms
):
    log = make_log(cleanup_policy=policy, segment_ms=segment_ms, max_compaction_lag_ms=lag_ms)
    append(log, timestamp_ms=5000)
    append(log, timestamp_ms=5000 + rolls_after_ms)
    assert bases(log) == [0]
    append(log, timestamp_ms=5001 + rolls_after_ms)
    assert bases(log) == [0, 2]


def test_a_segment_whose_first_batch_has_no_timestamp_rolls_by_the_clock(make_log: MakeLog):
    log = make_log(segment_ms=1000)
    append(log, timestamp_ms=-1, now_ms=50)
    append(log, timestamp_ms=10**6, now_ms=1050)  # only the first batch's timestamp of a segment counts
    append(log, timestamp_ms=10**7, now_ms=1050)
    assert bases(log) == [0]
    append(log, timestamp_ms=-1, now_ms=1051)
    assert bases(log) == [0, 3]


def test_the_first_batch_decides_after_a_restart_too(make_log: MakeLog):
    log = make_log(segment_ms=1000)
    append(log, timestamp_ms=5000)
    append(log, timestamp_ms=5500)
    log.close(clean=True)
    log = reopen(log).log
    append(log, timestamp_ms=6000)
    assert bases(log) == [0]
    append(log, timestamp_ms=6001)
    assert bases(log) == [0, 3]


def test_jitter_brings_the_roll_forward(directory: Path):
    bounds = []

    def jitter(bound_ms: int) -> int:
        bounds.append(bound_ms)
        return 300

    config = LogConfig(segment_ms=1000, segment_jitter_ms=5000)
    log = Log(directory, TOPIC_ID, config, jitter=jitter)
    append(log, timestamp_ms=0)
    append(log, timestamp_ms=700)
    assert bases(log) == [0]
    append(log, timestamp_ms=701)
    assert bases(log) == [0, 2]
    assert bounds == [1000, 1000]  # the jitter is below min(segment.jitter.ms, segment.ms)


def test_a_full_offset_index_rolls(make_log: MakeLog):
    # Room for three entries in the offset index, for one and the final one in the time index.
    log = make_log(index_interval_bytes=0, segment_index_bytes=24)
    for _ in range(6):
        append(log, timestamp_ms=-1)
    assert bases(log) == [0, 4]


def test_a_full_time_index_rolls_and_keeps_room_for_its_final_entry(make_log: MakeLog, directory: Path):
    # Room for four entries in the offset index, for two and the final one in the time index.
    log = make_log(index_interval_bytes=0, segment_index_bytes=36)
    for number in range(6):
        append(log, timestamp_ms=NOW_MS + number)
    assert bases(log) == [0, 3]
    log.close(clean=True)
    assert len((directory / f"{0:020d}.timeindex").read_bytes()) == 24


def test_an_offset_too_far_from_the_base_rolls(make_log: MakeLog):
    log = make_log()
    append(log)
    log.log_end_offset = 2**31 - 1
    append(log)
    assert bases(log) == [0]
    append(log)
    assert bases(log) == [0, 2**31]
    log.close(clean=True)
    assert reopen(log).log.log_end_offset == 2**31 + 1


def test_an_idle_log_does_not_roll(make_log: MakeLog):
    log = make_log(segment_ms=1)
    log.create(0)
    append(log, timestamp_ms=10**9, now_ms=10**9)
    assert bases(log) == [0]


def test_a_roll_writes_a_snapshot_at_the_new_base_and_tells(make_log: MakeLog, directory: Path):
    log = make_log(segment_bytes=2 * SIZE)
    sealed: list[Any] = []
    log.on_roll = sealed.append
    for sequence in range(3):
        append(log, producer=(9, 0, sequence), timestamp_ms=NOW_MS + sequence)
    assert [segment.base_offset for segment in sealed] == [0]
    snapshots = contents(directory, "snapshot")
    assert list(snapshots) == [2]
    (entry,) = decode(snapshots[2])
    assert (entry.producer_id, entry.last_sequence, entry.last_offset, entry.timestamp) == (
        9,
        1,
        1,
        NOW_MS + 1,
    )


def test_a_roll_without_producers_writes_a_snapshot_without_entries(make_log: MakeLog, directory: Path):
    log = make_log()
    append(log)
    log.roll(NOW_MS)
    assert decode(contents(directory, "snapshot")[1]) == []
    assert len(contents(directory, "snapshot")[1]) == 10


# -- reading ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batches", [5, 600])  # the newest 256 are found in memory, the others with the index
@pytest.mark.parametrize("interval", [0, 200, 10**6])
def test_a_span_begins_with_the_batch_that_holds_the_offset(make_log: MakeLog, batches: int, interval: int):
    log = make_log(index_interval_bytes=interval)
    for _ in range(batches):
        append(log, 3)
    for offset in {0, 1, 2, 3, 7, 3 * batches // 2, 3 * batches - 4, 3 * batches - 1}:
        found = read_offsets(log, offset, log.log_end_offset)
        assert found[0] == (offset // 3 * 3, offset // 3 * 3 + 2)
        assert found[-1][1] == log.log_end_offset - 1


def test_a_span_is_cut_by_bytes_not_by_batches(make_log: MakeLog):
    log = make_log()
    for _ in range(4):
        append(log)
    span = log.read(1, 4, SIZE + 17, whole_first_batch=False)
    assert span is not None
    assert (span.position, span.length) == (SIZE, SIZE + 17)
    assert len(span.bytes()) == SIZE + 17


def test_the_first_batch_is_whole_or_nothing(make_log: MakeLog):
    log = make_log()
    append(log, value=bytes(5000))
    append(log)
    whole = log.read(0, 2, 10, whole_first_batch=True)
    assert whole is not None
    assert whole.length == log.size - SIZE
    assert log.read(0, 2, 10, whole_first_batch=False) is None


def test_a_span_never_leaves_its_segment(make_log: MakeLog):
    log = make_log(segment_bytes=2 * SIZE)
    for _ in range(6):
        append(log)
    assert read_offsets(log, 0, 6) == [(0, 0), (1, 1)]
    assert read_offsets(log, 3, 6) == [(3, 3)]
    assert read_offsets(log, 4, 6) == [(4, 4), (5, 5)]


def test_nothing_at_or_beyond_the_bound_is_read(make_log: MakeLog):
    log = make_log(segment_bytes=10 * SIZE)
    for _ in range(3):
        append(log, 2)
    assert read_offsets(log, 0, 4) == [(0, 1), (2, 3)]
    assert read_offsets(log, 0, 3) == [(0, 1)]  # a batch that contains the end offset is not read
    assert read_offsets(log, 1, 2) == [(0, 1)]
    assert read_offsets(log, 2, 2) == []
    assert read_offsets(log, 6, 6) == []


def test_the_bound_holds_across_segments(make_log: MakeLog):
    log = make_log(segment_bytes=2 * SIZE)
    for _ in range(7):
        append(log)
    for bound in range(8):
        got, at = [], 0
        while found := read_offsets(log, at, bound):
            got += found
            at = found[-1][1] + 1
        assert got == [(offset, offset) for offset in range(bound)]
        assert log.bytes_between(0, bound) == bound * SIZE


def test_an_offset_that_was_compacted_away_is_found_in_the_next_batch(make_log: MakeLog):
    log = make_log(segment_bytes=2 * SIZE)
    append(log)
    log.log_end_offset = 10
    append(log)  # fills the segment, with the offsets 0 and 10
    log.log_end_offset = 20
    append(log)
    log.close(clean=True)
    for again in (log, reopen(log).log):
        assert read_offsets(again, 1, 21) == [(10, 10)]
        assert read_offsets(again, 11, 21) == [(20, 20)]
        assert again.bytes_between(11, 15) == 0
        assert again.bytes_between(5, 12) == SIZE


@pytest.mark.parametrize(
    ("offset", "last_offset", "found"),
    [
        (0, 0, [(0, 1)]),
        (0, 1, [(0, 1)]),
        (1, 2, [(0, 1), (2, 3)]),
        (0, 5, [(0, 1), (2, 3), (4, 5)]),
        (4, 4, [(4, 5)]),
        (4, 2, []),
        (2, 100, [(2, 3), (4, 5)]),
    ],
)
def test_a_read_ends_with_the_batch_of_a_last_offset(make_log: MakeLog, offset, last_offset, found):
    log = make_log()
    for _ in range(3):
        append(log, 2)
    span = log.read(offset, 6, 1 << 20, whole_first_batch=True, last_offset=last_offset)
    data = b"" if span is None else span.bytes()
    assert [(batch.base_offset, batch.last_offset) for batch in whole_batches(data)] == found


def test_bytes_that_are_no_batch_are_an_error_that_names_the_file(make_log: MakeLog, directory: Path):
    log = make_log(index_interval_bytes=10**6)
    for number in range(4):
        append(log, timestamp_ms=NOW_MS + number)
    log.close(clean=True)
    path = directory / f"{0:020d}.log"
    for garbage in (-12, -100, 0, 48, 2**31 - 1):
        raw = bytearray(path.read_bytes())
        struct.pack_into(">i", raw, SIZE + 8, garbage)
        damaged = reopen(log).log
        path.write_bytes(raw)
        with pytest.raises(StorageError, match=r"000000\.log"):
            damaged.read(2, 4, 100, whole_first_batch=True)
        with pytest.raises(StorageError, match=r"000000\.log"):
            list(damaged.batches(0))
        with pytest.raises(StorageError, match=r"000000\.log"):
            damaged.find_timestamp(NOW_MS + 3)
        struct.pack_into(">i", raw, SIZE + 8, SIZE - 12)
        path.write_bytes(raw)


# -- aborted transactions ---------------------------------------------------------------------------------------


def aborted_for(log: Log, offset: int, end_offset: int, max_bytes: int = 1 << 20) -> list[tuple[int, int]]:
    span = log.read(offset, end_offset, max_bytes, whole_first_batch=True)
    assert span is not None
    return [(found.producer_id, found.first_offset) for found in log.aborted_transactions(offset, span)]


def test_aborted_transactions_come_in_marker_order(make_log: MakeLog):
    log = make_log()
    append(log, producer=(33, 0, 0), transactional=True)
    append(log, producer=(34, 0, 0), transactional=True)
    append(log)
    end(log, 34, committed=False)
    end(log, 33, committed=False)
    assert aborted_for(log, 0, 5) == [(34, 1), (33, 0)]
    assert aborted_for(log, 4, 5) == [(33, 0)]  # it began before the offset and ended after it


def test_the_search_goes_on_in_later_segments_until_nothing_earlier_can_follow(make_log: MakeLog):
    log = make_log()
    append(log, producer=(1, 0, 0), transactional=True)
    append(log, producer=(2, 0, 0), transactional=True)
    log.roll(NOW_MS)
    end(log, 2, committed=False)
    log.roll(NOW_MS)
    append(log)
    log.roll(NOW_MS)
    end(log, 1, committed=False)
    append(log, producer=(3, 0, 0), transactional=True)
    end(log, 3, committed=False)
    assert aborted_for(log, 0, log.log_end_offset) == [(2, 1), (1, 0)]
    assert aborted_for(log, 3, log.log_end_offset) == [(1, 0)]
    assert aborted_for(log, 4, log.log_end_offset) == [(1, 0), (3, 5)]


def test_more_aborted_transactions_than_needed_may_come_but_never_fewer(make_log: MakeLog):
    """A read returns all aborted transactions in its bytes, and with a sparse index also later ones: up to the first index
    entry behind the bytes, or the end of the segment."""
    log = make_log(index_interval_bytes=0)
    for sequence in range(3):
        append(log, producer=(sequence, 0, 0), transactional=True)
        end(log, sequence, committed=False)
    assert aborted_for(log, 0, 6, max_bytes=1) == [(0, 0)]
    assert aborted_for(log, 2, 6, max_bytes=1) == [(1, 2)]
    sparse = Log(log.directory.with_name("sparse-0"), uuid.uuid4(), LogConfig(index_interval_bytes=10**6))
    for sequence in range(3):
        append(sparse, producer=(sequence, 0, 0), transactional=True)
        end(sparse, sequence, committed=False)
    assert aborted_for(sparse, 0, 6, max_bytes=1) == [(0, 0), (1, 2), (2, 4)]


# -- timestamps -------------------------------------------------------------------------------------------------


def at(log: Log, timestamp_ms: int) -> tuple[int, int] | None:
    found = log.find_timestamp(timestamp_ms)
    return None if found is None else (found.offset, found.timestamp_ms)


@pytest.mark.parametrize("interval", [0, 150, 10**6])
def test_the_first_record_that_is_not_older_is_found(make_log: MakeLog, interval: int):
    log = make_log(index_interval_bytes=interval, segment_bytes=4 * SIZE)
    times = [10, 30, 20, 30, 5, 70, 60, 80, 80, 1]
    for time in times:
        append(log, timestamp_ms=time)
    for target in range(90):
        expected = next(((offset, time) for offset, time in enumerate(times) if time >= target), None)
        assert at(log, target) == expected


def test_the_record_is_found_inside_a_compressed_batch(make_log: MakeLog):
    log = make_log()
    made = build_batch([(time, None, b"v") for time in (10, 40, 20, 50)], compression=3)
    append(log, leader_epoch=3)
    log.append_data(RecordBatch.parse(made), 6, NOW_MS, 50)
    log = reopen(log, clean=False).log
    assert log.find_timestamp(45) == (0, NOW_MS, 3)
    log.advance_log_start(1)
    assert log.find_timestamp(45) == (4, 50, 6)
    assert log.find_timestamp(11) == (2, 40, 6)


def test_records_below_the_log_start_are_not_found(make_log: MakeLog):
    log = make_log()
    for time in (50, 10, 20, 50):
        append(log, timestamp_ms=time)
    log.advance_log_start(1)
    assert at(log, 15) == (2, 20)
    assert at(log, 30) == (3, 50)


def test_the_largest_timestamp_is_found_and_markers_count(make_log: MakeLog):
    log = make_log(segment_bytes=2 * SIZE)
    assert log.find_max_timestamp() is None
    for time in (10, 70, 20, 70):
        append(log, timestamp_ms=time)
    found = log.find_max_timestamp()
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (1, 70)
    end(log, 5, committed=True, now_ms=71)
    found = log.find_max_timestamp()
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (4, 71)


@pytest.mark.parametrize("segment_bytes", [2 * SIZE, 100 * SIZE])
def test_the_largest_timestamp_may_stand_below_the_log_start(make_log: MakeLog, segment_bytes: int):
    """The record with the largest timestamp may be below the log start. DeleteRecords leaves it in its segment, and
    ListOffsets with the timestamp -3 returns it, as in Kafka."""
    log = make_log(segment_bytes=segment_bytes)
    for time in (10, 70, 20, 30):
        append(log, timestamp_ms=time)
    log.advance_log_start(3)
    found = log.find_max_timestamp()
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (1, 70)


# -- the log start ----------------------------------------------------------------------------------------------


def test_the_log_start_need_not_be_a_batch_border(make_log: MakeLog):
    log = make_log()
    append(log, 5)
    append(log, 5, leader_epoch=1)
    log.advance_log_start(7)
    assert read_offsets(log, 7, 10) == [(5, 9)]
    assert log.epochs.entries() == [(1, 7)]


# -- truncation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "batches_left"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (7, 3), (8, 4), (11, 5), (12, 6)]
)
def test_truncation_cuts_whole_batches(make_log: MakeLog, offset: int, batches_left: int):
    log = make_log(segment_bytes=2 * data(2).size, index_interval_bytes=0)
    for number in range(6):
        append(log, 2, timestamp_ms=NOW_MS + number)
    log.truncate_to(offset)
    assert log.log_end_offset == offset
    assert bases(log) == [base for base in (0, 4, 8) if base <= offset]
    assert [batch.base_offset for batch in log.batches(0)] == [2 * number for number in range(batches_left)]
    assert list(contents(log.directory, "log")) == bases(log)
    found = log.find_max_timestamp()
    assert (found.timestamp_ms if found else None) == (NOW_MS + batches_left - 1 if batches_left else None)


def test_after_truncation_the_log_goes_on_and_reads_right(make_log: MakeLog):
    log = make_log(segment_bytes=3 * SIZE, index_interval_bytes=0)
    for _ in range(8):
        append(log)
    log.truncate_to(4)
    assert append(log, 2, value=b"longer than before") == 4
    assert read_offsets(log, 3, 6) == [(3, 3), (4, 5)]
    assert read_offsets(log, 5, 6) == [(4, 5)]
    log.close(clean=True)
    assert read_offsets(reopen(log).log, 4, 6) == [(4, 5)]
    again = reopen(log, clean=False).log
    assert again.log_end_offset == 6
    assert_indexes_match_the_log(again)


def test_truncation_below_the_first_segment_begins_a_new_one_there(make_log: MakeLog, directory: Path):
    log = Log(directory, TOPIC_ID, LogConfig(segment_bytes=2 * SIZE), log_start_offset=100)
    for _ in range(5):
        append(log)
    log.truncate_to(50)
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([50], 50, 50)
    assert append(log) == 50
    assert [batch.base_offset for batch in log.batches()] == [50]
    assert list(contents(directory, "log")) == [50]


def test_truncation_lowers_epochs_and_the_flushed_offset_and_saves_them(make_log: MakeLog, directory: Path):
    log = make_log()
    for epoch in (0, 2, 5):
        append(log, 2, leader_epoch=epoch)
    log.flushed_up_to(6)
    log.truncate_to(3)
    assert log.flushed_offset == 3
    assert log.epochs.entries() == [(0, 0), (2, 2)]
    assert (directory / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n2 2\n"


def test_truncation_above_the_end_changes_nothing(make_log: MakeLog):
    log = make_log()
    append(log)
    log.truncate_to(5)
    assert log.log_end_offset == 1
    assert append(log) == 1


def test_truncation_takes_the_producers_back(make_log: MakeLog, directory: Path):
    log = make_log(segment_bytes=3 * data(producer=(1, 0, 0)).size)
    for sequence in range(8):
        append(log, producer=(1, 0, sequence))
    log.close(clean=True)
    log = reopen(log).log
    assert sorted(contents(directory, "snapshot")) == [3, 6, 8]
    truncate(log, 5, options(config=log.config))
    assert log.producers.entries[1].last_sequence == 4
    assert sorted(contents(directory, "snapshot")) == [3, 5]
    append(log, producer=(2, 0, 0))
    log.close(clean=True)
    assert sorted(entry.producer_id for entry in decode(contents(directory, "snapshot")[6])) == [1, 2]


def test_truncation_opens_a_transaction_again_whose_marker_went(make_log: MakeLog):
    log = make_log()
    append(log, producer=(1, 0, 0), transactional=True)
    end(log, 1, committed=False)
    truncate(log, 1, options(config=log.config))
    assert list(log.producers.open_transactions()) == [(0, 1)]
    assert log.active.transaction_index.entries() == []


# -- closing ----------------------------------------------------------------------------------------------------


def test_a_clean_stop_writes_one_snapshot_at_the_end(make_log: MakeLog, directory: Path):
    log = make_log()
    append(log, 3, producer=(4, 1, 10), transactional=True)
    end(log, 4, committed=True, epoch=1, coordinator_epoch=6)
    append(log, 2, producer=(4, 1, 13), timestamp_ms=NOW_MS + 9, transactional=True)
    log.close(clean=True)
    (content,) = contents(directory, "snapshot").values()
    # version, CRC, then one entry: id, epoch, last sequence, last offset, delta, timestamp, coordinator epoch, txn start
    assert struct.unpack_from(">h", content) == (1,)
    assert struct.unpack_from(">i", content, 6) == (1,)
    assert struct.unpack_from(">qhiqiqiq", content, 10) == (4, 1, 14, 5, 1, NOW_MS + 9, 6, 4)
    assert list(contents(directory, "snapshot")) == [6]
    assert len(content) == 10 + 46


def test_a_producer_with_markers_only_has_minus_one(make_log: MakeLog, directory: Path):
    log = make_log()
    end(log, 4, committed=True, epoch=1, coordinator_epoch=6)
    log.close(clean=True)
    (entry,) = decode(contents(directory, "snapshot")[1])
    assert entry == (4, 1, -1, -1, 0, NOW_MS, 6, -1)


def test_each_clean_stop_seals_the_indexes(make_log: MakeLog, directory: Path):
    log = make_log(index_interval_bytes=10**6)
    for number in range(3):
        append(log, timestamp_ms=NOW_MS + number)
        log.close(clean=True)
        log = reopen(log).log
    expected = b"".join(struct.pack(">qi", NOW_MS + number, number) for number in range(3))
    assert (directory / f"{0:020d}.timeindex").read_bytes() == expected
