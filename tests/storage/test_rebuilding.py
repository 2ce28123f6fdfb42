"""Lost and damaged files beside a log are rebuilt from the log, with one log line."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.config import LogConfig
from storage.epochs import LeaderEpochs
from storage.log import EPOCH_FILE, Log
from storage.recovery import truncate
from storage.segment import SEGMENT_SUFFIXES
from tests.storage.logs import TOPIC_ID, append, end, options, reopen

DEFAULT = LogConfig(segment_bytes=1024)


def new_log(path: Path, config: LogConfig = DEFAULT) -> Log:
    return Log(path / "t-0", TOPIC_ID, config)


def epochs_of(log: Log) -> list[tuple[int, int]]:
    return log.epochs.entries()


@pytest.fixture
def led(tmp_path: Path) -> Log:
    """A log with batches of four leader epochs, ten of each."""
    log = new_log(tmp_path)
    for epoch in (0, 2, 5, 6):
        for _ in range(10):
            append(log, leader_epoch=epoch)
    log.save_epochs()
    log.close(clean=True)
    return log


EPOCHS = [(0, 0), (2, 10), (5, 20), (6, 30)]


def test_sound_leader_epochs_are_read(led: Log) -> None:
    recovered = reopen(led)
    assert (epochs_of(recovered.log), recovered.rebuilt) == (EPOCHS, [])


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "content",
    [
        "1\n4\n0 0\n2 10\n5 20\n6 30\n",
        "0\n5\n0 0\n2 10\n5 20\n6 30\n",
        "0\n4\n0 0\n2 10\n5 x0\n6 30\n",
        "0\n4\n0 0\n2 10\n5 22\n6 30\n",
        "0\n4\n0 0\n2 10\n4 20\n6 30\n",
        "0\n4\n0 0\n3 10\n5 20\n6 30\n",
        "0\n4\n0 0\n2 10\n5 20\n6 38\n",
        "0\n4\n0 0\n2 10\n1 20\n6 30\n",
        "\0\0\0\n4\n",
    ],
)
def test_flipped_leader_epochs_are_rebuilt_from_the_batches(led: Log, content: str, clean: bool) -> None:
    path = led.directory / EPOCH_FILE
    path.write_text(content)
    recovered = reopen(led, clean=clean)
    assert epochs_of(recovered.log) == EPOCHS
    assert LeaderEpochs.load(path).entries() == EPOCHS
    assert len(recovered.rebuilt) == 1
    assert EPOCH_FILE in recovered.rebuilt[0]


def test_an_epoch_without_a_record_is_no_damage(led: Log) -> None:
    log = reopen(led).log
    log.assign_epoch(9)
    log.save_epochs()
    log.close(clean=True)
    recovered = reopen(log)
    assert (epochs_of(recovered.log), recovered.rebuilt) == ([*EPOCHS, (9, 40)], [])


def remove_segment(log: Log, index: int) -> tuple[int, int]:
    """Delete all files of a segment. Returns its (first, last) offset."""
    segment, following = log.segments[index : index + 2]
    for suffix in SEGMENT_SUFFIXES:
        segment.path(suffix).unlink(missing_ok=True)
    return segment.base_offset, following.base_offset - 1


def test_a_deleted_segment_is_reported_and_reads_continue_behind_it_as_in_kafka(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for _ in range(60):
        append(log)
    log.close(clean=True)
    first, last = remove_segment(log, 1)
    recovered = reopen(log)
    assert recovered.gaps == [(first, last)]
    span = recovered.log.read(first, recovered.log.log_end_offset, 1 << 20, whole_first_batch=True)
    assert span is not None
    assert span.base_offset == last + 1  # like `LocalLog.read`, which continues in the next segment with data


def test_what_compaction_has_removed_is_no_gap(tmp_path: Path) -> None:
    log = new_log(tmp_path, LogConfig(segment_bytes=1024, cleanup_policy=("compact",)))
    for _ in range(60):
        append(log)
    log.close(clean=True)
    remove_segment(log, 1)
    assert reopen(log).gaps == []


def aborted(log: Log) -> list[tuple[int, int, int]]:
    """(producer id, first offset, last offset) of the entries in the index of aborted transactions."""
    return [
        (entry.producer_id, entry.first_offset, entry.last_offset)
        for segment in log.segments
        if segment.has_aborted
        for entry in segment.transaction_index.entries()
    ]


def test_a_deleted_transaction_index_is_rebuilt(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for number in range(30):
        producer = (number % 3, 0, number // 3)
        append(log, transactional=True, producer=producer)
        end(log, number % 3, committed=number % 4 != 0)
    expected = aborted(log)
    log.close(clean=True)
    files = sorted(log.directory.glob("*.txnindex"))
    assert len(files) > 1
    contents = [path.read_bytes() for path in files]
    for path in files:
        path.unlink()
    recovered = reopen(log)
    assert aborted(recovered.log) == expected
    assert [path.read_bytes() for path in files] == contents
    assert len(recovered.rebuilt) == len(files)
    assert recovered.cut_bytes == 0
    assert reopen(recovered.log).rebuilt == []


def test_logs_without_aborted_transactions_are_not_checked(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for number in range(30):
        append(log, transactional=True, producer=(1, 0, number))
        end(log, 1, committed=True)
    log.close(clean=True)
    recovered = reopen(log)
    assert (recovered.scanned_bytes, recovered.rebuilt) == (0, [])


def test_an_abort_without_data_is_listed_nowhere_and_lacks_no_index(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, transactional=True, producer=(1, 0, 0))
    end(log, 1, committed=True)
    end(log, 1, committed=False)
    log.close(clean=True)
    recovered = reopen(log)
    assert (recovered.scanned_bytes, recovered.rebuilt) == (0, [])


def test_an_abort_whose_data_lies_below_the_log_start_lacks_no_index(tmp_path: Path) -> None:
    """An abort whose data is below the log start needs no entry in the index of aborted transactions. A truncation rebuilds
    the producer state from the log start, so the repeated marker ends no transaction."""
    log = new_log(tmp_path)
    append(log, transactional=True, producer=(1, 0, 0))
    log.advance_log_start(1)
    end(log, 1, committed=False)
    truncate(log, 1, options())
    end(log, 1, committed=False)
    log.close(clean=True)
    recovered = reopen(log, log_start_offset=1)
    assert (recovered.scanned_bytes, recovered.rebuilt) == (0, [])
