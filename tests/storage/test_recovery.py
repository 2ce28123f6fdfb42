"""Opening a partition's directory (`LogLoader`) after a clean stop, after a crash, and with files of other programs."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.records.producer_snapshot import decode
from storage import checking
from storage.files import StorageError, remove_all
from storage.log import Log
from storage.recovery import truncate
from tests.storage.conftest import MakeLog
from tests.storage.logs import (
    NOW_MS,
    TOPIC_ID,
    aborted,
    append,
    assert_indexes_match_the_log,
    contents,
    data,
    end,
    options,
    reopen,
)
from tests.support.batches import stored

SIZE = data(producer=(1, 0, 0)).size


def name(offset: int, suffix: str) -> str:
    return f"{offset:020d}.{suffix}"


def offsets(log: Log) -> list[int]:
    return [batch.base_offset for batch in log.batches(0)]


@pytest.fixture
def three_segments(make_log: MakeLog) -> Log:
    """A log with the offsets 0 to 9 of one producer in the segments 0, 4 and 8, and index entries for all batches except the
    first."""
    log = make_log(segment_bytes=4 * SIZE, index_interval_bytes=0)
    for sequence in range(10):
        append(log, producer=(1, 0, sequence), timestamp_ms=NOW_MS + sequence)
    return log


# -- after a clean stop -----------------------------------------------------------------------------------------


def test_after_a_clean_stop_everything_is_as_it_was_and_nothing_is_read(three_segments: Log, directory: Path):
    three_segments.close(clean=True)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    recovered = reopen(three_segments)
    log = recovered.log
    assert (recovered.scanned_bytes, recovered.cut_bytes, recovered.reason) == (0, 0, None)
    assert (log.log_start_offset, log.log_end_offset, log.flushed_offset) == (0, 10, 10)
    assert [segment.base_offset for segment in log.segments] == [0, 4, 8]
    assert [segment.max_timestamp_ms - NOW_MS for segment in log.segments] == [3, 7, 9]
    assert log.producers.snapshot() == three_segments.producers.snapshot()
    log.close(clean=True)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_an_open_transaction_comes_back(make_log: MakeLog):
    log = make_log()
    append(log, producer=(7, 3, 0), transactional=True)
    append(log, producer=(8, 0, 0), transactional=True)
    end(log, 8, committed=True)
    log.close(clean=True)
    producers = reopen(log).log.producers
    assert producers.first_unstable_offset(3) == 0
    assert list(producers.open_transactions()) == [(0, 7)]
    assert producers.has_open_transaction(7, 3)


def test_after_a_clean_stop_only_the_last_batch_of_a_producer_is_remembered(make_log: MakeLog):
    """After a clean stop the producer state has only the last batch of each producer: the producer snapshot contains no
    more, like Kafka's."""
    log = make_log()
    for sequence in range(3):
        append(log, producer=(1, 0, sequence))
    log.close(clean=True)
    producers = reopen(log).log.producers
    assert producers.duplicate_of(data(producer=(1, 0, 2))) is not None
    assert producers.duplicate_of(data(producer=(1, 0, 1))) is None


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("window_bytes", [2 * SIZE, 1 << 20])
@pytest.mark.parametrize("segment_bytes", [3 * SIZE, 100 * SIZE])
@pytest.mark.parametrize("recovery_point", [0, 4])
def test_after_a_kill_the_last_five_batches_of_a_producer_are_remembered(
    make_log: MakeLog,
    monkeypatch: pytest.MonkeyPatch,
    transactional: bool,
    window_bytes: int,
    segment_bytes: int,
    recovery_point: int,
):
    """After a kill the producer state has the last five batches of each producer. A client has up to five requests in
    flight: each of them that it sends again is a duplicate, and none is out of order."""
    monkeypatch.setattr(checking, "REPLAY_BYTES", window_bytes)
    log = make_log(segment_bytes=segment_bytes)
    for sequence in range(8):
        append(log, producer=(1, 0, sequence), transactional=transactional)
        append(log, producer=(2, 0, sequence), transactional=transactional)
    append(log, producer=(2, 1, 0), transactional=transactional)
    log.close(clean=False)
    producers = reopen(log, clean=False, recovery_point=recovery_point).log.producers
    found = [producers.duplicate_of(data(producer=(1, 0, sequence))) for sequence in range(8)]
    assert [known.first_offset if known else None for known in found] == [None] * 3 + [6, 8, 10, 12, 14]
    assert [batch.first_sequence for batch in producers.entries[2].batches] == [0], (
        "batches of earlier epochs are dropped"
    )


@pytest.mark.parametrize("recovery_point", [0, 2])
def test_after_a_kill_a_marker_above_the_high_watermark_still_holds_the_lso(
    make_log: MakeLog, recovery_point: int
):
    """After a kill, a marker above the high watermark still limits the last stable offset, as the log does not show
    what is committed (``UnifiedLog.loadProducersFromRecords``)."""
    log = make_log()
    append(log, producer=(1, 0, 0), transactional=True)
    end(log, 1, committed=True)
    append(log, producer=(2, 0, 0), transactional=True)
    end(log, 2, committed=True)
    log.close(clean=False)
    producers = reopen(log, clean=False, recovery_point=recovery_point).log.producers
    assert [producers.first_unstable_offset(high_watermark) for high_watermark in (3, 4)] == [2, None]


def test_after_a_clean_stop_a_marker_above_the_high_watermark_still_holds_the_lso(make_log: MakeLog):
    """After a clean stop, a marker above the high watermark still limits the last stable offset, although the snapshot
    at the log end does not contain the first offsets of ended transactions."""
    log = make_log()
    append(log, producer=(1, 0, 0), transactional=True)
    end(log, 1, committed=False)
    log.take_snapshot()
    append(log, producer=(2, 0, 0), transactional=True)
    end(log, 2, committed=False)
    log.close(clean=True)
    log = reopen(log, high_watermark=3).log
    assert [log.producers.first_unstable_offset(high_watermark) for high_watermark in (3, 4)] == [2, None]
    indexed = log.segments[0].transaction_index.from_offset(0)
    assert [entry.last_offset for entry in indexed] == [1, 3], "each abort is indexed once"
    log.close(clean=True)
    assert reopen(log, high_watermark=4).log.producers.first_unstable_offset(4) is None


def test_a_truncation_keeps_the_markers_above_the_high_watermark(make_log: MakeLog):
    log = make_log()
    append(log, producer=(1, 0, 0), transactional=True)
    end(log, 1, committed=True)
    log.take_snapshot()
    append(log, producer=(2, 0, 0))
    truncate(log, 2, options(high_watermark=1))
    assert [log.producers.first_unstable_offset(high_watermark) for high_watermark in (1, 2)] == [0, None]


def test_idle_producers_are_dropped_but_not_with_an_open_transaction(make_log: MakeLog):
    log = make_log()
    append(log, producer=(1, 0, 0), timestamp_ms=NOW_MS - 2000)
    append(log, producer=(2, 0, 0), timestamp_ms=NOW_MS - 2000, transactional=True)
    append(log, producer=(3, 0, 0), timestamp_ms=NOW_MS - 10)
    log.close(clean=True)
    producers = reopen(log, producer_id_expiration_ms=1000).log.producers
    assert sorted(producers.entries) == [2, 3]


def test_a_folder_that_is_not_there_is_an_empty_log(make_log: MakeLog, directory: Path):
    log = reopen(make_log(), log_start_offset=30).log
    assert (log.log_start_offset, log.log_end_offset, log.exists) == (30, 30, False)
    assert not directory.exists()
    assert append(log) == 30
    assert list(contents(directory, "log")) == [30]


def test_partition_metadata_that_is_missing_or_empty_is_written_again(three_segments: Log, directory: Path):
    path = directory / "partition.metadata"
    expected = path.read_bytes()
    for damage in (path.unlink, lambda: path.write_bytes(b"")):
        damage()
        reopen(three_segments)
        assert path.read_bytes() == expected


# -- after a crash ----------------------------------------------------------------------------------------------


def test_after_a_kill_indexes_and_producers_are_rebuilt(three_segments: Log, directory: Path):
    expected = three_segments.producers.snapshot()
    recovered = reopen(three_segments, clean=False)
    assert recovered.scanned_bytes == 10 * SIZE
    assert recovered.cut_bytes == 0
    assert recovered.log.producers.snapshot() == expected
    assert_indexes_match_the_log(recovered.log)
    assert sorted(contents(directory, "snapshot")) == [4, 8, 10]
    (entry,) = decode(contents(directory, "snapshot")[8])
    assert (entry.last_sequence, entry.last_offset) == (7, 7)


@pytest.mark.parametrize(
    ("recovery_point", "first", "scanned"),
    [(0, 0, 10), (3, 0, 8), (4, 0, 7), (5, 4, 6), (7, 4, 4), (8, 4, 3), (9, 8, 2), (10, 8, 2), (99, 8, 2)],
)
def test_only_batches_from_the_recovery_point_on_are_read(
    three_segments: Log, recovery_point: int, first: int, scanned: int
):
    """Recovery reads from the last index entry below the recovery point. Segments 0 and 4 were synced, the index of segment
    8 was not."""
    recovered = reopen(three_segments, clean=False, recovery_point=recovery_point)
    assert recovered.first_scanned == first
    assert recovered.scanned_bytes == scanned * SIZE
    assert recovered.log.flushed_offset == min(recovery_point, 10)
    assert offsets(recovered.log) == list(range(10))
    assert recovered.log.producers.entries[1].last_sequence == 9
    recovered.log.close(clean=True)
    assert_indexes_match_the_log(recovered.log)


@pytest.mark.parametrize("torn", [1, 11, 60, 61, SIZE - 1])
def test_a_torn_tail_is_cut_at_the_last_whole_batch(three_segments: Log, directory: Path, torn: int):
    path = directory / name(8, "log")
    with path.open("r+b") as file:
        file.truncate(SIZE + torn)
    recovered = reopen(three_segments, clean=False)
    assert recovered.cut_bytes == torn
    assert recovered.reason is not None
    assert offsets(recovered.log) == list(range(9))
    assert path.stat().st_size == SIZE
    assert recovered.log.producers.entries[1].last_sequence == 8
    assert append(recovered.log, producer=(1, 0, 9)) == 9


@pytest.mark.parametrize("zeros", [1, 37, 4096, 3_000_000])
def test_zeros_behind_the_last_batch_are_cut(three_segments: Log, directory: Path, zeros: int):
    with (directory / name(8, "log")).open("ab") as file:
        file.write(bytes(zeros))
    recovered = reopen(three_segments, clean=False)
    assert recovered.cut_bytes == zeros
    assert recovered.log.log_end_offset == 10


@pytest.mark.parametrize("byte", [8, 16, 17, 20, 21, 30, 61, SIZE - 1])
def test_at_a_flipped_byte_the_log_ends_and_later_segments_go(
    three_segments: Log, directory: Path, byte: int
):
    path = directory / name(4, "log")
    raw = bytearray(path.read_bytes())
    raw[2 * SIZE + byte] ^= 0x40
    path.write_bytes(raw)
    recovered = reopen(three_segments, clean=False)
    assert recovered.cut_bytes == 4 * SIZE
    assert offsets(recovered.log) == list(range(6))
    assert list(contents(directory, "log")) == [0, 4]
    assert list(contents(directory, "index")) == [0, 4]
    assert sorted(contents(directory, "snapshot")) == [4, 6]
    assert recovered.log.producers.entries[1].last_sequence == 5
    assert_indexes_match_the_log(recovered.log)
    assert append(recovered.log, producer=(1, 0, 6)) == 6


def test_damage_below_the_recovery_point_is_not_looked_for(three_segments: Log, directory: Path):
    path = directory / name(0, "log")
    raw = bytearray(path.read_bytes())
    raw[SIZE + 70] ^= 1
    path.write_bytes(raw)
    recovered = reopen(three_segments, clean=False, recovery_point=4)
    assert recovered.cut_bytes == 0
    assert recovered.log.log_end_offset == 10


@pytest.mark.parametrize(("field", "value"), [(">q", 3), (">q", 0), (">q", 4 + 2**31)])
def test_offsets_that_do_not_rise_end_the_log(three_segments: Log, directory: Path, field: str, value: int):
    path = directory / name(4, "log")
    raw = bytearray(path.read_bytes())
    struct.pack_into(field, raw, SIZE, value)  # the CRC does not cover the base offset
    path.write_bytes(raw)
    assert offsets(reopen(three_segments, clean=False).log) == [0, 1, 2, 3, 4]


def test_aborted_transactions_are_indexed_again(make_log: MakeLog, directory: Path):
    log = make_log(segment_bytes=4 * 78)
    for number in range(12):
        append(log, producer=(number % 3, 0, number), transactional=True)
        if number % 2:
            end(log, number % 3, committed=number % 4 == 3)
    assert len(log.segments) > 3
    written = contents(directory, "txnindex")
    assert sum(len(aborted(content)) for content in written.values()) == 3
    expected = log.producers.snapshot()
    for path in directory.glob("*.txnindex"):
        path.unlink()
    recovered = reopen(log, clean=False)
    assert contents(directory, "txnindex") == written
    assert recovered.log.producers.snapshot() == expected
    # Again with the index files in place, and with a recovery point in the middle: no entry is duplicated.
    for point in (0, log.segments[2].base_offset):
        reopen(log, clean=False, recovery_point=point)
        assert contents(directory, "txnindex") == written


def test_an_aborted_transaction_whose_marker_was_torn_off_is_open_again(make_log: MakeLog, directory: Path):
    log = make_log()
    append(log, producer=(1, 0, 0), transactional=True)
    end(log, 1, committed=False)
    path = directory / name(0, "log")
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    recovered = reopen(log, clean=False).log
    assert contents(directory, "txnindex") == {}
    assert list(recovered.producers.open_transactions()) == [(0, 1)]


def test_a_segment_cut_to_nothing_forgets_its_aborted_transactions(make_log: MakeLog, directory: Path):
    log = make_log()
    append(log, producer=(1, 0, 0), transactional=True)
    log.roll(NOW_MS)
    end(log, 1, committed=False)
    (directory / name(1, "log")).write_bytes(b"")
    recovered = reopen(log, clean=False, recovery_point=1).log
    assert contents(directory, "txnindex") == {}
    assert list(recovered.producers.open_transactions()) == [(0, 1)]
    assert recovered.log_end_offset == 1


def test_leader_epochs_are_learned_from_the_batches(make_log: MakeLog, directory: Path):
    log = make_log()
    for epoch in (0, 0, 3, 3, 4):
        append(log, leader_epoch=epoch)
    (directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    assert reopen(log, clean=False).log.epochs.entries() == [(0, 0), (3, 2), (4, 4)]


def test_epochs_beyond_the_recovered_end_are_forgotten(make_log: MakeLog, directory: Path):
    log = make_log()
    for epoch in (0, 1, 2):
        append(log, leader_epoch=epoch)
    log.save_epochs()
    with (directory / name(0, "log")).open("r+b") as file:
        file.truncate(data().size + 5)
    assert reopen(log, clean=False).log.epochs.entries() == [(0, 0), (1, 1)]


# -- after a crash, with most of a segment synced ---------------------------------------------------------------


def flush(log: Log) -> int:
    """Sync the log as the broker does in the background. Returns the recovery point that it may write then."""
    log.take_snapshot()
    for segment in log.flush_targets():
        segment.sync()
    log.flushed_up_to(log.log_end_offset)
    return log.recovery_point


@pytest.fixture
def half_flushed(make_log: MakeLog) -> tuple[Log, int]:
    """A log of one segment, with aborted and committed transactions of two producers. The first half of the segment is
    synced."""
    log = make_log(index_interval_bytes=200)
    point = 0
    for number in range(40):
        append(
            log, producer=(number % 2, 0, number), transactional=True, timestamp_ms=NOW_MS + 7 * number % 50
        )
        if number % 5 == 0:
            end(log, number % 2, committed=number % 10 == 0)
        if number == 20:
            point = flush(log)
    assert point == log.flushed_offset - 1
    return log, point


def state_of(log: Log) -> object:
    log.close(clean=True)
    return (
        [(batch.base_offset, batch.crc) for batch in log.batches()],
        sorted(log.producers.snapshot()),
        contents(log.directory, "txnindex"),
        contents(log.directory, "index"),
        contents(log.directory, "timeindex"),
        log.epochs.entries(),
    )


def from_the_beginning(directory: Path, copy: Path, log: Log) -> object:
    """The state of a log that is recovered from copies of the `.log` files alone."""
    shutil.copytree(directory, copy)
    for suffix in ("index", "timeindex", "txnindex", "snapshot"):
        for path in copy.glob(f"*.{suffix}"):
            path.unlink()
    return state_of(reopen(Log(copy, TOPIC_ID, log.config), clean=False).log)


def test_inside_of_a_segment_a_check_begins_at_the_recovery_point(
    half_flushed: tuple[Log, int], directory: Path, tmp_path: Path
):
    log, point = half_flushed
    expected = from_the_beginning(directory, tmp_path / "copy-0", log)
    recovered = reopen(log, clean=False, recovery_point=point)
    last_entry = max(at for offset, at in log.active.offset_index.rows() if offset < point)
    assert recovered.scanned_bytes == log.size - last_entry
    assert recovered.scanned_bytes < 0.6 * log.size
    assert len(aborted(contents(directory, "txnindex")[0])) == 4
    assert state_of(recovered.log) == expected


@pytest.mark.parametrize("cut", range(0, 3000, 97))
def test_whatever_is_lost_behind_the_recovery_point_the_rest_is_as_if_all_had_been_read(
    half_flushed: tuple[Log, int], directory: Path, tmp_path: Path, cut: int
):
    log, point = half_flushed
    place = log.locate(point)
    assert place is not None
    path = directory / name(0, "log")
    content = bytearray(path.read_bytes())
    at = min(place.position + place.size + cut, len(content) - 1)
    if cut % 2:
        content[at] ^= 1
    else:
        del content[at:]
    path.write_bytes(content)
    expected = from_the_beginning(directory, tmp_path / "copy-0", log)
    recovered = reopen(log, clean=False, recovery_point=point)
    assert recovered.first_scanned == 0
    assert recovered.scanned_bytes < len(content)
    assert recovered.log.log_end_offset >= point
    assert state_of(recovered.log) == expected


@pytest.mark.parametrize(
    "tear",
    [
        pytest.param(lambda size: bytes(size), id="zeros"),
        pytest.param(lambda size: b"\xff" * (size - 3), id="garbage"),
        pytest.param(lambda size: bytes(10_485_760 - size), id="preallocated"),
        pytest.param(lambda size: struct.pack(">5i", 0, 0, 0, 0, 77), id="zeros, and something behind them"),
    ],
)
def test_index_entries_that_were_not_flushed_may_be_anything(
    half_flushed: tuple[Log, int], directory: Path, tmp_path: Path, tear: Callable[[int], bytes]
):
    log, point = half_flushed
    for suffix in ("index", "timeindex"):
        path = directory / name(0, suffix)
        kept = path.read_bytes()
        path.write_bytes(kept + tear(len(kept)))
    expected = from_the_beginning(directory, tmp_path / "copy-0", log)
    recovered = reopen(log, clean=False, recovery_point=point)
    assert recovered.scanned_bytes < log.size
    assert state_of(recovered.log) == expected


@pytest.mark.parametrize("position", [1, SIZE, 10**6])
def test_an_index_that_names_no_batch_is_not_believed(
    half_flushed: tuple[Log, int], directory: Path, tmp_path: Path, position: int
):
    log, point = half_flushed
    (directory / name(0, "index")).write_bytes(struct.pack(">ii", 5, position))
    expected = from_the_beginning(directory, tmp_path / "copy-0", log)
    recovered = reopen(log, clean=False, recovery_point=point)
    assert recovered.scanned_bytes == log.size
    assert state_of(recovered.log) == expected


def test_producers_are_learned_from_the_flushed_snapshot_and_headers(
    make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
):
    """Recovery reads the unsynced batches and little more: it rebuilds the producer state from the flushed snapshot and the
    headers of later batches."""
    log = make_log(segment_bytes=1_000_000)
    for sequence in range(30):
        append(log, producer=(1, 0, sequence), value=bytes(100_000))
    point = flush(log)
    for sequence in range(30, 34):
        append(log, producer=(1, 0, sequence), value=bytes(100_000))
    log.close(clean=False)
    read = 0

    def counted(fd: int, length: int, position: int) -> bytes:
        nonlocal read
        data = pread(fd, length, position)
        read += len(data)
        return data

    pread = os.pread
    monkeypatch.setattr(os, "pread", counted)
    recovered = reopen(log, clean=False, recovery_point=point)
    assert recovered.log.producers.entries[1].last_sequence == 33
    assert 4 * 100_000 < recovered.scanned_bytes < 7 * 100_000
    assert read < 2 * recovered.scanned_bytes + 200_000
    read = 0
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    # Reads the headers of the whole log to rebuild the producer state.
    again = reopen(recovered.log, clean=True)
    assert again.log.producers.snapshot() == recovered.log.producers.snapshot()
    assert read < 34 * 20_000


# -- leftovers --------------------------------------------------------------------------------------------------


def test_files_awaiting_removal_are_removed(three_segments: Log, directory: Path):
    three_segments.close(clean=True)
    leftovers = [
        name(2, "log.deleted"),
        name(2, "index.deleted"),
        name(2, "snapshot.deleted"),
        name(0, "log.cleaned"),
        name(0, "timeindex.cleaned"),
        "leader-epoch-checkpoint.tmp",
    ]
    for leftover in leftovers:
        (directory / leftover).write_bytes(b"leftover")
    recovered = reopen(three_segments)
    assert offsets(recovered.log) == list(range(10))
    # Large files may take long to delete, so the caller that opened the log does it.
    assert sorted(recovered.doomed) == [
        directory / name(0, "log.cleaned.deleted"),
        directory / name(2, "log.deleted"),
    ]
    remove_all(recovered.doomed)
    assert not any((directory / leftover).exists() for leftover in leftovers)
    assert list(directory.glob("*.deleted")) == []


def swap(directory: Path, base: int, content: bytes) -> None:
    (directory / name(base, "log.swap")).write_bytes(content)
    (directory / name(base, "index.swap")).write_bytes(b"")
    (directory / name(base, "timeindex.swap")).write_bytes(b"")


def test_a_finished_compaction_takes_the_place_of_the_segments_it_covers(
    three_segments: Log, directory: Path
):
    """A compaction that was killed while it renamed its files is completed: one segment with the batches 1 and 6 replaces
    segments 0 and 4."""
    three_segments.close(clean=True)
    logs = contents(directory, "log")
    swap(directory, 0, logs[0][SIZE : 2 * SIZE] + logs[4][2 * SIZE : 3 * SIZE])
    log = reopen(three_segments).log
    assert offsets(log) == [1, 6, 8, 9]
    assert sorted(contents(directory, "log")) == sorted(contents(directory, "index")) == [0, 8]
    assert list(directory.glob("*.swap")) == []
    assert log.log_end_offset == 10


def test_a_swap_of_a_compaction_that_did_not_finish_is_removed(three_segments: Log, directory: Path):
    three_segments.close(clean=True)
    swap(directory, 4, contents(directory, "log")[4][:SIZE])
    (directory / name(4, "log.cleaned")).write_bytes(b"")
    log = reopen(three_segments).log
    assert offsets(log) == list(range(10))
    assert list(directory.glob("*.swap")) == []


def test_a_swap_before_an_unfinished_one_takes_its_place(three_segments: Log, directory: Path):
    three_segments.close(clean=True)
    swap(directory, 0, contents(directory, "log")[0][:SIZE] + contents(directory, "log")[0][3 * SIZE :])
    (directory / name(4, "log.cleaned")).write_bytes(b"")
    assert offsets(reopen(three_segments).log) == [0, 3, 4, 5, 6, 7, 8, 9]


def test_index_files_without_a_log_are_removed(three_segments: Log, directory: Path):
    three_segments.close(clean=True)
    for suffix in ("index", "timeindex", "txnindex"):
        (directory / name(2, suffix)).write_bytes(b"")
    assert offsets(reopen(three_segments).log) == list(range(10))
    assert not any((directory / name(2, suffix)).exists() for suffix in ("index", "timeindex", "txnindex"))


def test_files_of_others_are_left_alone(three_segments: Log, directory: Path):
    three_segments.close(clean=True)
    for stranger in ("notes.log", "backup.index", "README"):
        (directory / stranger).write_text("mine")
    assert offsets(reopen(three_segments).log) == list(range(10))
    assert (directory / "notes.log").exists()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("base", [0, 4, 8])
def test_a_missing_index_is_rebuilt(
    three_segments: Log, directory: Path, base: int, suffix: str, clean: bool
):
    three_segments.close(clean=True)
    (directory / name(base, suffix)).unlink()
    log = reopen(three_segments, clean=clean, recovery_point=10).log
    assert_indexes_match_the_log(log)
    assert log.log_end_offset == 10
    assert [segment.max_timestamp_ms - NOW_MS for segment in log.segments] == [3, 7, 9]
    assert log.producers.entries[1].last_sequence == 9


@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_transaction_index_is_rebuilt(make_log: MakeLog, directory: Path, clean: bool):
    log = make_log()
    for sequence in range(3):
        append(log, producer=(1, 0, sequence), transactional=True)
        end(log, 1, committed=False)
        log.roll(NOW_MS)
    log.close(clean=True)
    written = contents(directory, "txnindex")
    (directory / name(2, "txnindex")).write_bytes(written[2][:-1])
    again = reopen(log, clean=clean, recovery_point=log.log_end_offset).log
    assert contents(directory, "txnindex") == written
    assert again.producers.snapshot() == log.producers.snapshot()


def test_indexes_that_kafka_preallocated_and_did_not_close_are_rebuilt(three_segments: Log, directory: Path):
    (directory / name(8, "index")).write_bytes(bytes(10_485_760))
    (directory / name(8, "timeindex")).write_bytes(bytes(10_485_756))
    log = reopen(three_segments, clean=False, recovery_point=8).log
    log.close(clean=True)
    assert (directory / name(8, "index")).read_bytes() == struct.pack(">ii", 1, SIZE)
    assert (directory / name(8, "timeindex")).read_bytes() == struct.pack(">qi", NOW_MS + 9, 1)


def test_a_folder_copied_from_a_running_broker_opens_in_a_clean_directory(
    three_segments: Log, directory: Path, tmp_path: Path
):
    """A partition's directory that was copied from a running broker is recovered even after a clean stop of the broker that
    opens it. The copy has preallocated indexes, a torn last batch and no snapshot."""
    with (directory / name(8, "index")).open("ab") as file:
        file.write(bytes(8000))
    with (directory / name(8, "timeindex")).open("ab") as file:
        file.write(bytes(12000))
    with (directory / name(8, "log")).open("ab") as file:
        file.write(bytes(data(producer=(1, 0, 10)).data)[:50])
    copy = tmp_path / "copy-0"
    shutil.copytree(directory, copy)
    log = Log(copy, TOPIC_ID, three_segments.config)
    recovered = reopen(log, clean=True)
    assert recovered.cut_bytes == 50
    assert recovered.scanned_bytes == 2 * SIZE + 50
    assert recovered.log.log_end_offset == 10
    assert recovered.log.find_timestamp(NOW_MS + 9) is not None
    assert recovered.log.producers.entries[1].last_sequence == 9


def test_a_log_that_was_not_sealed_still_knows_its_largest_timestamp(three_segments: Log):
    """The largest timestamp is found if index files are older than the log, as after a stop during which the partition was
    offline."""
    log = reopen(three_segments, clean=True).log
    assert log.active.max_timestamp_ms == NOW_MS + 9
    found = log.find_timestamp(NOW_MS + 9)
    assert found is not None
    assert found.offset == 9


# -- snapshots --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [b"", b"\0\1", b"\0\2" + bytes(8), bytes(56)])
def test_a_corrupt_snapshot_is_removed_and_an_older_one_used(
    three_segments: Log, directory: Path, damage: bytes
):
    expected = three_segments.producers.snapshot()
    three_segments.close(clean=True)
    good = contents(directory, "snapshot")
    for offset in (10, 8):
        (directory / name(offset, "snapshot")).write_bytes(damage)
    log = reopen(three_segments).log
    assert log.producers.snapshot() == expected
    assert contents(directory, "snapshot") == good


def test_a_snapshot_with_a_wrong_checksum_is_not_believed(three_segments: Log, directory: Path):
    three_segments.close(clean=True)
    path = directory / name(10, "snapshot")
    raw = bytearray(path.read_bytes())
    raw[22] ^= 1
    path.write_bytes(raw)
    assert reopen(three_segments).log.producers.entries[1].last_sequence == 9


def test_without_any_snapshot_producers_are_learned_from_the_log_start(three_segments: Log, directory: Path):
    three_segments.close(clean=True)
    for path in directory.glob("*.snapshot"):
        path.unlink()
    log = reopen(three_segments, log_start_offset=3).log
    assert log.producers.entries[1].last_sequence == 9
    assert sorted(contents(directory, "snapshot")) == [4, 8, 10]


def test_snapshots_beyond_the_end_or_not_above_the_log_start_are_removed(
    three_segments: Log, directory: Path
):
    three_segments.close(clean=True)
    shutil.copy(directory / name(10, "snapshot"), directory / name(11, "snapshot"))
    reopen(three_segments, log_start_offset=4)
    assert sorted(contents(directory, "snapshot")) == [8, 10]


# -- the log start ----------------------------------------------------------------------------------------------


def test_the_log_start_is_the_checkpoint_s_or_the_first_segment_s(three_segments: Log, directory: Path):
    three_segments.close(clean=True)
    assert reopen(three_segments, log_start_offset=6).log.log_start_offset == 6
    for suffix in ("log", "index", "timeindex"):
        (directory / name(0, suffix)).unlink()
    log = reopen(three_segments).log
    assert (log.log_start_offset, log.log_end_offset) == (4, 10)
    assert log.epochs.entries() == [(0, 4)]


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_start_beyond_the_end_begins_an_empty_log_there(
    three_segments: Log, directory: Path, clean: bool
):
    three_segments.close(clean=True)
    log = reopen(three_segments, clean=clean, log_start_offset=30).log
    assert (log.log_start_offset, log.log_end_offset) == (30, 30)
    assert list(contents(directory, "log")) == [30]
    assert contents(directory, "snapshot") == {}
    assert append(log) == 30
    assert offsets(log) == [30]


def test_a_log_start_at_the_end_keeps_the_segments(three_segments: Log):
    three_segments.close(clean=True)
    log = reopen(three_segments, log_start_offset=10).log
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    assert list(log.batches()) == []


# -- logs that are not opened -----------------------------------------------------------------------------------


def test_a_log_that_cannot_be_read_is_named(three_segments: Log, directory: Path):
    three_segments.close(clean=True)
    path = directory / name(8, "log")
    path.unlink()
    path.mkdir()
    with pytest.raises(StorageError, match=r"8\.log: is not a regular file"):
        reopen(three_segments)


# -- random damage ----------------------------------------------------------------------------------------------


def test_every_cut_of_the_tail_leaves_a_valid_prefix(make_log: MakeLog, directory: Path, tmp_path: Path):
    log = make_log(index_interval_bytes=100)
    append(log, producer=(1, 0, 0), transactional=True)
    append(log, 3, compression=4)
    end(log, 1, committed=False)
    append(log, producer=(2, 0, 0), transactional=True)
    batches = list(stored(contents(directory, "log")[0]))
    whole = directory / name(0, "log")
    borders = {batch.position + more for batch in batches for more in (-1, 0, 1, 16, 60, 61)}
    for size in sorted({*range(0, whole.stat().st_size, 11), whole.stat().st_size, *borders} - {-1}):
        copy = tmp_path / f"cut-{size}"
        shutil.copytree(directory, copy)
        with (copy / name(0, "log")).open("r+b") as file:
            file.truncate(size)
        recovered = reopen(Log(copy, TOPIC_ID, log.config), clean=False).log
        left = [batch for batch in batches if batch.position + batch.size <= size]
        assert offsets(recovered) == [batch.base_offset for batch in left]
        assert len(recovered.active.transaction_index.entries()) == (len(left) > 2)
        assert_indexes_match_the_log(recovered)
        shutil.rmtree(copy)
