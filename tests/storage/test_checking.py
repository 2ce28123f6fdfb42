"""Recovery of batches that are smaller or larger than the recovery's read window, valid and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.checking import Check
from storage.log import Log
from storage.recovery import Recovered
from storage.segment import REPLAY_BYTES
from tests.storage.conftest import MakeLog
from tests.storage.logs import NOW_MS, append, assert_indexes_match_the_log, contents, end, reopen
from tests.support.batches import stored

VALUES = [100, 70_000, 100, 2 * REPLAY_BYTES, 100, 100, 900_000, 300_000, 70_000, 100]
"""Sizes of the batches' records: CRCs over one and several chunks, batches inside one read window and across two."""


@pytest.fixture
def mixed(make_log: MakeLog) -> Log:
    log = make_log(index_interval_bytes=0)
    for number, size in enumerate(VALUES):
        append(log, value=bytes(size), leader_epoch=number // 3)
    return log


def recover(log: Log) -> Recovered:
    for path in (*log.directory.glob("*index"), log.directory / "leader-epoch-checkpoint"):
        path.unlink()
    return reopen(log, clean=False)


def test_batches_of_all_sizes_are_good_and_indexed(mixed: Log):
    recovered = recover(mixed)
    assert (recovered.cut_bytes, recovered.reason) == (0, None)
    assert recovered.scanned_bytes == mixed.size
    assert recovered.log.log_end_offset == len(VALUES)
    assert recovered.log.epochs.entries() == [(0, 0), (1, 3), (2, 6), (3, 9)]
    assert_indexes_match_the_log(recovered.log)


@pytest.mark.parametrize("damaged", range(len(VALUES)))
@pytest.mark.parametrize("byte", [16, 21, 61, -1])
def test_at_a_damaged_batch_of_any_size_the_log_ends(mixed: Log, directory: Path, damaged: int, byte: int):
    path = directory / f"{0:020d}.log"
    batch = list(stored(path.read_bytes()))[damaged]
    with path.open("r+b") as file:
        file.seek(batch.position + byte % batch.size)
        found = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([found ^ 1]))
    recovered = recover(mixed)
    assert recovered.log.log_end_offset == damaged
    assert recovered.cut_bytes == mixed.size - batch.position
    assert recovered.reason is not None
    assert_indexes_match_the_log(recovered.log)


def test_whether_producers_have_a_part_in_it_is_told(make_log: MakeLog):
    log = make_log()
    append(log)
    append(log, leader_epoch=4)
    check = Check(log.active, 0, 4096)
    check.run()
    assert (check.last_batches, check.epochs, check.end_offset) == ({}, [(0, 0), (4, 1)], 2)
    append(log, producer=(1, 0, 0))
    append(log, producer=(1, 0, 1), value=bytes(2 * REPLAY_BYTES))
    append(log, producer=(2, 0, 0))
    check = Check(log.active, 0, 4096)
    check.run()
    found = {key: [batch.base_offset for batch in batches] for key, batches in check.last_batches.items()}
    assert found == {1: [2, 3], 2: [4]}
    assert (check.has_transactions, check.end_offset, check.position) == (False, 5, log.size)
    append(log, producer=(1, 0, 2), transactional=True)
    check = Check(log.active, 0, 4096)
    check.run()
    assert check.has_transactions


@pytest.mark.parametrize("ending", ["nothing", "commit", "abort"])
def test_producers_are_as_they_were_with_and_without_transactions(make_log: MakeLog, ending: str):
    log = make_log(segment_bytes=1000)
    for number in range(40):
        append(log, producer=(number % 3, number // 20, number), timestamp_ms=NOW_MS + number)
    if ending != "nothing":
        append(log, producer=(7, 0, 0), transactional=True)
        append(log, producer=(8, 0, 0), transactional=True)
        end(log, 7, committed=ending == "commit")
    recovered = recover(log).log
    assert len(recovered.segments) > 2
    assert recovered.producers.snapshot() == log.producers.snapshot()
    assert list(recovered.producers.open_transactions()) == list(log.producers.open_transactions())
    assert {key: list(entry.batches) for key, entry in recovered.producers.entries.items()} == {
        key: list(entry.batches) for key, entry in log.producers.entries.items()
    }


def test_a_small_log_without_producers_needs_no_snapshot(make_log: MakeLog, directory: Path):
    log = make_log()
    append(log)
    again = reopen(log, clean=False).log
    assert contents(directory, "snapshot") == {}
    again.close(clean=True)
    assert list(contents(directory, "snapshot")) == [1]


def test_producers_of_deleted_records_are_not_learned(make_log: MakeLog):
    log = make_log()
    append(log, producer=(1, 0, 0))
    append(log, producer=(2, 0, 0))
    again = reopen(log, clean=False, log_start_offset=1).log
    assert list(again.producers.entries) == [2]
