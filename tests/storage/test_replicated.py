"""A follower's log gets the same files and producer state as its leader's log, also after a truncation."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.batch import CorruptBatch
from storage.config import LogConfig
from storage.files import remove_all
from storage.flush import Flush
from storage.log import Log
from storage.recovery import truncate, truncate_fully_and_start_at
from tests.storage.logs import NOW_MS, TOPIC_ID, append, contents, data, end, options, reopen

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150)


@pytest.fixture
def leader(tmp_path: Path) -> Log:
    return Log(tmp_path / "leader", TOPIC_ID, CONFIG)


@pytest.fixture
def follower(tmp_path: Path) -> Log:
    return Log(tmp_path / "follower", TOPIC_ID, CONFIG)


def copy(leader: Log, follower: Log, max_bytes: int = 1 << 20) -> None:
    """Append all of the leader's log to the follower's, in pieces that may end inside a batch."""
    while follower.log_end_offset < leader.log_end_offset:
        span = leader.read(follower.log_end_offset, leader.log_end_offset, max_bytes, whole_first_batch=True)
        assert span is not None
        follower.append_replicated(span.bytes(), NOW_MS)


def fill(log: Log) -> None:
    """Append batches of two leader epochs in several segments, an open, a committed and an aborted transaction, and an
    idempotent producer's twelve batches."""
    for sequence in range(12):
        append(log, producer=(7, 0, sequence))
    append(log, 3, producer=(1, 4, 0), transactional=True, leader_epoch=2)
    append(log, producer=(2, 0, 0), transactional=True, leader_epoch=2)
    end(log, 1, committed=False, epoch=4, leader_epoch=2)
    end(log, 2, committed=True, leader_epoch=2)
    append(log, producer=(3, 0, 0), transactional=True, leader_epoch=2)
    append(log, 2, leader_epoch=2, compression=1)


def same(left: Log, right: Log) -> None:
    """Check that both logs have the same files, including the last index entries, and the same state in memory."""
    for log in (left, right):
        if log.exists:
            log.active.save_indexes()
    for suffix in ("log", "index", "timeindex", "txnindex", "snapshot"):
        assert contents(left.directory, suffix) == contents(right.directory, suffix), suffix
    assert left.log_end_offset == right.log_end_offset
    assert left.epochs.entries() == right.epochs.entries()
    assert left.producers.entries == right.producers.entries
    assert list(left.producers.open_transactions()) == list(right.producers.open_transactions())
    for high_watermark in range(left.log_end_offset + 1):
        stable = left.producers.first_unstable_offset(high_watermark)
        assert stable == right.producers.first_unstable_offset(high_watermark)


@pytest.mark.parametrize("max_bytes", [1, 200, 1 << 20])
def test_a_follower_has_the_same_files_and_the_same_producers(leader: Log, follower: Log, max_bytes: int):
    fill(leader)
    copy(leader, follower, max_bytes)
    assert len(follower.segments) > 2
    aborted = [entry for segment in follower.segments for entry in segment.transaction_index.entries()]
    assert [entry.producer_id for entry in aborted] == [1]
    same(leader, follower)


def test_a_follower_knows_the_last_five_batches_of_a_producer(leader: Log, follower: Log):
    fill(leader)
    copy(leader, follower)
    known = [follower.producers.duplicate_of(data(producer=(7, 0, sequence))) for sequence in range(12)]
    assert [found is not None for found in known] == [False] * 7 + [True] * 5


def test_an_older_epoch_is_taken_as_it_comes(leader: Log, follower: Log):
    append(leader, producer=(7, 5, 0))
    append(leader, producer=(7, 3, 9))
    copy(leader, follower)
    same(leader, follower)
    assert follower.producers.entries[7].epoch == 3


def test_offsets_that_the_leader_has_compacted_away_are_left_out(leader: Log, follower: Log):
    for _ in range(3):
        append(leader)
    whole = contents_of(leader)
    size = data().size
    follower.append_replicated(whole[:size] + whole[2 * size :], NOW_MS)
    assert follower.log_end_offset == 3
    assert [batch.base_offset for batch in follower.batches()] == [0, 2]


def contents_of(log: Log) -> bytes:
    return b"".join(content for _, content in sorted(contents(log.directory, "log").items()))


def test_a_batch_that_does_not_follow_or_is_damaged_is_refused_and_those_before_it_stay(
    leader: Log, follower: Log
):
    append(leader)
    append(leader)
    whole, size = contents_of(leader), data().size
    damaged = whole[:-1] + bytes([whole[-1] ^ 1])
    with pytest.raises(CorruptBatch):
        follower.append_replicated(damaged, NOW_MS)
    assert follower.log_end_offset == 1
    with pytest.raises(CorruptBatch):
        follower.append_replicated(whole[:size], NOW_MS)
    follower.append_replicated(whole[size:], NOW_MS)
    same(leader, follower)


@pytest.mark.parametrize("offset", [0, 1, 4, 6, 11, 12, 15, 16, 17, 18, 19, 21])
def test_what_was_cut_off_and_copied_again_leaves_no_trace(leader: Log, follower: Log, offset: int):
    fill(leader)
    copy(leader, follower)
    truncate(follower, offset, options(config=CONFIG))
    assert follower.log_end_offset == offset
    assert follower.flushed_offset <= offset
    copy(leader, follower)
    for log in (leader, follower):
        assert contents_of(log) == contents_of(leader)
    # For producers whose batches were not read again, the snapshot has only the last batch, as in Kafka.
    assert follower.producers.snapshot() == leader.producers.snapshot()
    assert follower.epochs.entries() == leader.epochs.entries()
    follower.close(clean=False)
    assert contents_of(
        reopen(follower, clean=False, recovery_point=follower.recovery_point).log
    ) == contents_of(leader)


def test_an_epoch_without_records_goes_though_nothing_is_cut_off(follower: Log):
    append(follower)
    follower.assign_epoch(5)
    truncate(follower, 1, options(config=CONFIG))
    assert follower.epochs.entries() == [(0, 0)]


def test_truncation_to_the_end_forgets_none_of_the_five_batches(follower: Log):
    for sequence in range(5):
        append(follower, producer=(7, 0, sequence))
    truncate(follower, 5, options(config=CONFIG))
    assert len(follower.producers.entries[7].batches) == 5


def test_a_flush_that_began_before_a_truncation_vouches_for_nothing(follower: Log):
    for _ in range(3):
        append(follower)
    flush = Flush(follower, whole=True)
    truncate(follower, 1, options(config=CONFIG))
    append(follower, 2, leader_epoch=1)
    assert flush.run() is None
    flush.finish()
    assert follower.flushed_offset <= 1
    assert (follower.directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


def test_a_compaction_that_began_before_a_truncation_is_not_installed(follower: Log):
    """The result of a compaction is not installed if a truncation has cut one of its source segments: that segment gets
    other content before it is sealed again."""
    while len(follower.segments) < 3:
        append(follower)
    sources = follower.segments[:2]
    assert follower.holds(sources)
    truncate(follower, sources[1].base_offset + 1, options(config=CONFIG))
    while len(follower.segments) < 3:
        append(follower, leader_epoch=1)
    assert not follower.holds(sources)


def test_a_follower_below_its_leader_s_log_start_restarts_there(follower: Log):
    fill(follower)
    doomed = truncate_fully_and_start_at(follower, 1000, NOW_MS)
    assert (follower.log_start_offset, follower.log_end_offset, follower.flushed_offset) == (1000, 1000, 1000)
    assert follower.epochs.entries() == []
    assert not follower.producers.entries
    assert contents(follower.directory, "snapshot") == {}
    assert list(contents(follower.directory, "log")) == [1000]
    remove_all(doomed)
    append(follower, leader_epoch=6)
    assert follower.epochs.entries() == [(6, 1000)]
    follower.close(clean=False)
    again = reopen(follower, clean=False).log
    assert (again.log_start_offset, again.log_end_offset) == (1000, 1001)


def test_a_log_without_files_restarts_without_creating_any(follower: Log):
    assert truncate_fully_and_start_at(follower, 7, NOW_MS) == []
    assert not follower.directory.exists()
    append(follower)
    assert (follower.log_start_offset, follower.log_end_offset) == (7, 8)
