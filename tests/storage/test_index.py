"""`.index`, `.timeindex` and `.txnindex` (`OffsetIndex`, `TimeIndex`, `TransactionIndex`): entries and look-ups."""

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.aborted import AbortedTransaction
from storage.files import StorageError
from storage.index import TAIL_ENTRIES, OffsetIndex, TimeIndex, TransactionIndex
from storage.log import Log
from tests.storage.conftest import MakeLog
from tests.storage.logs import NOW_MS, aborted, append, assert_indexes_match_the_log, contents, data, end

SIZE = data().size


def offset_entries(log: Log) -> list[tuple[int, int]]:
    return list(struct.iter_unpack(">ii", b"".join(contents(log.directory, "index").values())))


def time_entries(log: Log) -> list[tuple[int, int]]:
    return list(struct.iter_unpack(">qi", b"".join(contents(log.directory, "timeindex").values())))


# -- entries ----------------------------------------------------------------------------------------------------


def test_an_entry_names_the_last_offset_of_a_batch_and_where_the_batch_begins(make_log: MakeLog):
    log = make_log(index_interval_bytes=0)
    for _ in range(3):
        append(log, 4)
    log.close(clean=True)
    size = data(4).size
    assert offset_entries(log) == [(7, size), (11, 2 * size)]


@pytest.mark.parametrize(
    ("interval", "indexed"), [(SIZE - 1, [1, 2, 3]), (SIZE, [2]), (2 * SIZE - 1, [2]), (2 * SIZE, [3])]
)
def test_an_entry_comes_once_more_than_the_interval_was_written(
    make_log: MakeLog, interval: int, indexed: list[int]
):
    log = make_log(index_interval_bytes=interval)
    for _ in range(4):
        append(log)
    log.close(clean=True)
    assert [offset for offset, _ in offset_entries(log)] == indexed


def test_a_segment_of_one_batch_has_no_offset_entry_and_one_time_entry(make_log: MakeLog):
    log = make_log(index_interval_bytes=0)
    append(log, 2)
    log.close(clean=True)
    assert offset_entries(log) == []
    assert time_entries(log) == [(NOW_MS, 1)]


def test_a_time_entry_is_left_out_when_time_does_not_rise(make_log: MakeLog):
    log = make_log(index_interval_bytes=0)
    for delta in (0, 5, 5, 3, 9, 1):
        append(log, timestamp_ms=NOW_MS + delta)
    log.close(clean=True)
    assert len(offset_entries(log)) == 5
    assert time_entries(log) == [(NOW_MS + 5, 1), (NOW_MS + 9, 4)]


def test_the_final_time_entry_has_the_largest_timestamp_of_all(make_log: MakeLog):
    log = make_log(index_interval_bytes=10**6)
    for delta in (0, 7, 3):
        append(log, timestamp_ms=NOW_MS + delta)
    log.close(clean=True)
    assert time_entries(log) == [(NOW_MS + 7, 1)]


def test_records_without_timestamps_leave_the_time_index_empty(make_log: MakeLog):
    log = make_log(index_interval_bytes=0)
    for _ in range(3):
        append(log, timestamp_ms=-1)
    log.close(clean=True)
    assert time_entries(log) == []
    assert len(offset_entries(log)) == 2


def test_a_roll_seals_the_indexes_of_the_segment(make_log: MakeLog):
    log = make_log(index_interval_bytes=SIZE, segment_bytes=5 * SIZE)
    for index in range(17):
        append(log, timestamp_ms=NOW_MS + index * 7 % 5)
    assert len(log.segments) == 4
    log.close(clean=True)
    assert_indexes_match_the_log(log)


# -- look-ups ---------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 500)), max_size=30), st.integers(0, 2000))
def test_an_offset_is_searched_from_the_greatest_entry_that_is_not_above_it(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], target: int
):
    index = OffsetIndex(tmp_path_factory.getbasetemp() / "unused", 100, fresh=True)
    entries, offset, position = [(100, 0)], 100, 0
    for more_offsets, more_bytes in steps:
        offset, position = offset + more_offsets, position + more_bytes
        index.append(offset, position)
        entries.append((offset, position))
    below = [found for known, found in entries if known <= max(target, 100)]
    assert index.position_at_or_before(max(target, 100)) == below[-1]
    above = [known for known, found in entries[1:] if found >= target]
    assert index.offset_after_position(target) == (above[0] if above else None)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 500)), min_size=1, max_size=1500),
    st.lists(st.integers(0, 1500), max_size=4),
    st.lists(st.integers(-1, 80_000), min_size=1, max_size=20),
)
@settings(max_examples=30)
def test_entries_are_found_wherever_they_are(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[int, int]],
    saves: list[int],
    targets: list[int],
):
    """Entries are found in the file, in memory, and in the file after the index was opened again."""
    folder = tmp_path_factory.mktemp("index")
    index = OffsetIndex(folder / "index", 100, fresh=True)
    times = TimeIndex(folder / "timeindex", 100, fresh=True)
    entries, offset, position = [(100, 0)], 100, 0
    for number, (more_offsets, more_bytes) in enumerate(steps):
        offset, position = offset + more_offsets, position + more_bytes
        index.append(offset, position)
        times.maybe_append(position, offset)
        entries.append((offset, position))
        if number in saves:
            index.save()
            times.save()
    for target in targets:
        known = max(entry for entry in entries if entry[0] <= max(target, 100))
        assert index.position_at_or_before(max(target, 100)) == known[1]
        after = [found for found, at in entries[1:] if at >= target]
        assert index.offset_after_position(target) == (after[0] if after else None)
        assert times.offset_at_or_before(target) == max(found for found, at in entries if at < max(target, 1))
    index.save()
    times.save()
    again, times_again = OffsetIndex(folder / "index", 100), TimeIndex(folder / "timeindex", 100)
    assert list(again.rows()) == list(index.rows()) == [(found - 100, at) for found, at in entries[1:]]
    for target in targets:
        assert again.position_at_or_before(target) == index.position_at_or_before(target)
        assert times_again.offset_at_or_before(target) == times.offset_at_or_before(target)
    cut = targets[0]
    again.truncate(cut)
    times_again.truncate(cut)
    left = [(found - 100, at) for found, at in entries[1:] if found < cut]
    assert list(again.rows()) == list(OffsetIndex(folder / "index", 100).rows()) == left
    assert list(times_again.rows()) == [(at, found) for found, at in left]


def test_the_entries_of_a_full_tail_go_to_the_files(make_log: MakeLog, directory: Path):
    log = make_log(index_interval_bytes=0)
    for number in range(2 * TAIL_ENTRIES + 3):
        append(log, timestamp_ms=NOW_MS + number)
    assert (directory / f"{0:020d}.index").stat().st_size == 8 * 2 * TAIL_ENTRIES
    assert (directory / f"{0:020d}.timeindex").stat().st_size == 12 * 2 * TAIL_ENTRIES
    place = log.locate(5)
    assert place is not None
    assert place.values() == (-1, log.active, 5 * SIZE, SIZE)
    found = log.find_timestamp(NOW_MS + 1000)
    assert found is not None
    assert found.offset == 1000
    log.close(clean=True)
    assert_indexes_match_the_log(log)


def test_entries_wait_in_memory_until_a_sync(make_log: MakeLog, directory: Path):
    log = make_log(index_interval_bytes=0)
    for number in range(5):
        append(log, timestamp_ms=NOW_MS + number)
    assert (directory / f"{0:020d}.index").stat().st_size == 0
    log.flush_targets()
    assert (directory / f"{0:020d}.index").stat().st_size == 8 * 4
    assert (directory / f"{0:020d}.timeindex").stat().st_size == 12 * 4


def test_an_index_that_became_shorter_is_a_storage_error(tmp_path: Path):
    """A look-up in an index file that has become shorter raises StorageError. With a memory-mapped file it would crash the
    process."""
    path = tmp_path / "0.index"
    path.write_bytes(b"".join(struct.pack(">ii", n, n) for n in range(1, 5000)))
    index = OffsetIndex(path, 0)
    assert index.position_at_or_before(4321) == 4321
    os.truncate(path, 8)
    with pytest.raises(StorageError, match=r"0\.index"):
        index.position_at_or_before(1234)


def test_an_index_reads_its_file_once_for_neighbouring_offsets(tmp_path: Path):
    """A search keeps the block of entries that it has read: a consumer that reads on finds its next position there. Entries
    that are removed are not found any more."""
    path = tmp_path / "0.index"
    path.write_bytes(b"".join(struct.pack(">ii", 2 * n, n) for n in range(1, 5000)))
    index = OffsetIndex(path, 0)
    assert index.position_at_or_before(8642) == 4321
    os.truncate(path, 0)
    assert [index.position_at_or_before(offset) for offset in (8643, 8644, 8642)] == [4321, 4322, 4321]
    path.write_bytes(b"".join(struct.pack(">ii", 2 * n, n) for n in range(1, 5000)))
    index.keep(4321)
    assert [index.position_at_or_before(offset) for offset in (8641, 8642, 8650)] == [4320, 4321, 4321]


def test_what_does_not_rise_is_not_counted(tmp_path: Path):
    """Index entries that do not increase are ignored: after a power cut the unsynced part of a file may have zeros or
    another file's former content."""
    path, times = tmp_path / "0.index", tmp_path / "0.timeindex"
    path.write_bytes(struct.pack(">8i", 1, 10, 2, 20, 0, 0, 4, 40))
    times.write_bytes(struct.pack(">qiqiqi", 100, 1, 0, 0, 300, 3))
    assert [OffsetIndex(path, 50).count_below(offset) for offset in (0, 51, 52, 53, 99)] == [0, 0, 1, 2, 2]
    assert [TimeIndex(times, 50).count_below(offset) for offset in (51, 52, 99)] == [0, 1, 1]


def test_an_index_that_was_saved_reads_the_same(tmp_path: Path):
    written = OffsetIndex(tmp_path / "a.index", 1000, fresh=True)
    times = TimeIndex(tmp_path / "a.timeindex", 1000, fresh=True)
    for number in range(1, 1000):
        written.append(1000 + number * 3, number * 2**21)
        times.maybe_append(NOW_MS + number, 1000 + number)
    written.save()
    times.save()
    read = OffsetIndex(tmp_path / "a.index", 1000)
    assert len(read) == 999
    assert list(read.rows()) == list(written.rows()) == [(n * 3, n * 2**21) for n in range(1, 1000)]
    assert (tmp_path / "a.index").read_bytes()[:8] == struct.pack(">ii", 3, 2**21)
    assert (tmp_path / "a.timeindex").read_bytes()[:12] == struct.pack(">qi", NOW_MS + 1, 1)
    assert TimeIndex(tmp_path / "a.timeindex", 1000).last() == (NOW_MS + 999, 1999)
    assert len(TimeIndex(tmp_path / "a.timeindex", 1000)) == 999


@pytest.mark.parametrize("entries", [[], [(1, 78)], [(256, 65536), (512, 1 << 24)]])
def test_the_zeros_of_a_preallocated_index_are_no_entries(tmp_path: Path, entries: list[tuple[int, int]]):
    path = tmp_path / "0.index"
    path.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries) + bytes(10_485_760))
    index = OffsetIndex(path, 0)
    assert len(index) == len(entries)
    assert list(index.rows()) == entries
    assert index.last_position() == (entries[-1][1] if entries else 0)
    # The next entry overwrites the zeros.
    index.append(1 << 25, 1 << 26)
    index.save()
    assert list(struct.iter_unpack(">ii", path.read_bytes())) == [*entries, (1 << 25, 1 << 26)]


@pytest.mark.parametrize("entries", [[], [(NOW_MS, 1)], [(256, 256), (1 << 24, 512)], [(0, 0), (1, 5)]])
def test_the_zeros_of_a_preallocated_time_index_are_no_entries(
    tmp_path: Path, entries: list[tuple[int, int]]
):
    path = tmp_path / "0.timeindex"
    path.write_bytes(b"".join(struct.pack(">qi", *entry) for entry in entries) + bytes(10_485_756))
    index = TimeIndex(path, 0)
    assert len(index) == len(entries)
    assert list(index.rows()) == entries
    assert index.last() == (entries[-1] if entries else (-1, 0))
    index.save()
    assert path.stat().st_size == 12 * len(entries)


def test_a_record_of_the_first_millisecond_of_1970_keeps_its_time_entry(tmp_path: Path):
    path = tmp_path / "0.timeindex"
    path.write_bytes(bytes(12))
    assert TimeIndex(path, 0).last() == (0, 0)
    assert len(TimeIndex(path, 0)) == 1


# -- aborted transactions ---------------------------------------------------------------------------------------


def test_only_the_first_aborted_transaction_makes_the_file(make_log: MakeLog, directory: Path):
    log = make_log()
    append(log, producer=(1, 0, 0), transactional=True)
    end(log, 1, committed=True)
    end(log, 2, committed=False)  # an empty transaction, so the index needs no entry
    assert list(directory.glob("*.txnindex")) == []
    append(log, producer=(1, 0, 1), transactional=True)
    end(log, 1, committed=False)
    assert aborted((directory / f"{0:020d}.txnindex").read_bytes()) == [(1, 3, 4, 5)]


def test_two_overlapping_aborts_are_listed_in_marker_order(make_log: MakeLog, directory: Path):
    """Two overlapping aborts are in the index in the order of their markers. The last stable offset of an entry is the first
    offset of the transaction that is still open (`TransactionIndex`)."""
    log = make_log()
    append(log, producer=(33, 0, 0), transactional=True)
    append(log, producer=(34, 0, 0), transactional=True)
    append(log)
    end(log, 34, committed=False)
    end(log, 33, committed=False)
    assert aborted((directory / f"{0:020d}.txnindex").read_bytes()) == [(34, 1, 3, 0), (33, 0, 4, 5)]


def test_the_entry_is_in_the_segment_that_holds_the_marker(make_log: MakeLog, directory: Path):
    log = make_log()
    append(log, producer=(1, 0, 0), transactional=True)
    log.roll(NOW_MS)
    append(log)
    log.roll(NOW_MS)
    end(log, 1, committed=False)
    assert {base: aborted(content) for base, content in contents(directory, "txnindex").items()} == {
        2: [(1, 0, 2, 3)]
    }


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(b"\0\0" + bytes(31), id="a part of an entry"),
        pytest.param(struct.pack(">hqqqq", 1, 1, 101, 102, 103), id="a version of the future"),
        pytest.param(struct.pack(">hqqqq", 0, 1, 1, 2, 3), id="a marker before the segment"),
        pytest.param(2 * struct.pack(">hqqqq", 0, 1, 101, 102, 103), id="markers that do not rise"),
        pytest.param(bytes(34), id="zeros"),
    ],
)
def test_a_damaged_transaction_index_is_recognised(tmp_path: Path, damage: bytes):
    path = tmp_path / "100.txnindex"
    path.write_bytes(damage)
    assert not TransactionIndex(path).is_sane(100)


def test_a_missing_transaction_index_is_sane(tmp_path: Path):
    assert TransactionIndex(tmp_path / "100.txnindex").is_sane(100)


def test_truncation_forgets_the_transactions_whose_markers_go(tmp_path: Path):
    index = TransactionIndex(tmp_path / "0.txnindex", fresh=True)
    entries = [AbortedTransaction(7, at - 5, at, at + 1) for at in (10, 20, 30)]
    for entry in entries:
        index.append(entry)
    index.truncate(20)
    assert index.entries() == entries[:1]
    assert aborted(index.path.read_bytes()) == [tuple(entries[0])]
    index.append(entries[1])
    assert TransactionIndex(index.path).entries() == entries[:2]
    index.truncate(0)
    assert not index.path.exists()


# -- rebuilding -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", [b"", bytes(8), bytes(11), b"wrong" * 8, bytes(400), None])
def test_an_index_that_is_made_anew_holds_just_that_whatever_was_there(tmp_path: Path, there: bytes | None):
    """A cleared index has only its new entries, whatever the file contained before, and can be appended to after it was
    saved."""
    path = tmp_path / "0.index"
    if there is not None:
        path.write_bytes(there)
    index = OffsetIndex(path, 0)
    index.clear()
    entries = [(0, 0), *((number, number * 100) for number in range(1, 5))]
    for offset, position in entries:
        index.append(offset, position)
    index.save()
    assert list(struct.iter_unpack(">ii", path.read_bytes())) == entries
    index.append(9, 900)
    index.save()
    assert list(struct.iter_unpack(">ii", path.read_bytes())) == [*entries, (9, 900)]
    assert list(index.rows()) == [*entries, (9, 900)]
