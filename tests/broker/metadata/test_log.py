"""The metadata log recovers from damage to its file, and reports what it cannot recover."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from broker.metadata.changes import records_for_new_topic
from broker.metadata.deltas import apply
from broker.metadata.framing import CorruptMetadata, data_batch
from broker.metadata.image import Image
from broker.metadata.log import MetadataLog, MetadataLogFailed
from broker.metadata.values import MetadataDelta
from protocol.batch import batches, build_batch
from protocol.records import cluster_metadata as schema
from protocol.records.kraft import LeaderChangeMessage, QuorumVoter, decode_control_record
from storage import files
from storage.files import AppendFile
from tests.broker.metadata.world import NOW_MS, Gate


class Opened:
    """A metadata log and the image that applies its records."""

    def __init__(self, directory: Path, sync=AppendFile.sync, node_id: int = 1) -> None:
        self.image = Image()
        self.log = MetadataLog.open(
            directory, self.image, node_id=node_id, apply=self.apply, now_ms=NOW_MS, sync=sync
        )

    def apply(self, records, last_offset: int) -> None:
        for record in records:
            apply(self.image, record, MetadataDelta())
        self.image.offset = last_offset

    def add(self, number: int) -> None:
        self.log.commit_now([topic(number)], NOW_MS)


def topic(number: int, partitions: int = 1):
    return records_for_new_topic(
        UUID(int=number), f"t{number}", [(1,)] * partitions, {}, {1: UUID(int=9)}, {1}
    )


def segment(directory: Path) -> Path:
    [path] = directory.glob("*.log")
    return path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "__cluster_metadata-0"


def closed_with(directory: Path, topics: int) -> Image:
    opened = Opened(directory)
    for number in range(1, topics + 1):
        opened.add(number)
    opened.log.abandon()
    return opened.image


def test_a_reopened_log_gives_the_same_image(directory):
    before = closed_with(directory, 3)
    again = Opened(directory)
    assert (again.image.topics, again.image.offset) == (before.topics, before.offset)
    assert again.log.next_offset == before.offset + 2
    again.log.abandon()


def test_each_start_leads_in_a_new_epoch(directory):
    for _ in range(3):
        Opened(directory).log.abandon()
    found = []
    for batch in batches(segment(directory).read_bytes()):
        assert batch.is_control
        [record] = batch.records()
        found.append(
            (record.offset, batch.partition_leader_epoch, decode_control_record(record.key, record.value))
        )
    voters = (QuorumVoter(1),)
    assert found == [(at, at + 1, LeaderChangeMessage(1, voters, voters)) for at in range(3)]
    assert (directory / "leader-epoch-checkpoint").read_text() == "0\n3\n1 0\n2 1\n3 2\n"
    assert '"leaderId":1,"leaderEpoch":3' in (directory / "quorum-state").read_text()
    assert (directory / "partition.metadata").read_text() == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"


def test_an_epoch_that_was_only_voted_for_is_not_used_again(directory):
    Opened(directory).log.abandon()
    state = directory / "quorum-state"
    state.write_text(state.read_text().replace('"leaderEpoch":1', '"leaderEpoch":41'))
    opened = Opened(directory)
    assert opened.log.epoch == 42
    opened.log.abandon()


@pytest.mark.parametrize("cut", [1, 7, 12, 30, 61, 70])
def test_a_torn_tail_is_cut_at_the_last_whole_commit(directory, cut):
    before = closed_with(directory, 2)
    whole = segment(directory).stat().st_size
    opened = Opened(directory)
    begin = segment(directory).stat().st_size
    opened.add(3)
    opened.log.abandon()
    with segment(directory).open("r+b") as file:
        file.truncate(begin + cut)
    again = Opened(directory)
    assert again.image.topics == before.topics
    again.add(4)
    again.log.abandon()
    assert whole < begin
    assert set(Opened(directory).image.topics) == {"t1", "t2", "t4"}


def test_a_tail_of_zeros_or_garbage_is_cut(directory):
    before = closed_with(directory, 2)
    for tail in (bytes(37), os.urandom(200), bytes(5000)):
        with segment(directory).open("ab") as file:
            file.write(tail)
        opened = Opened(directory)
        assert opened.image.topics == before.topics
        opened.log.abandon()


def test_a_flipped_bit_in_the_last_commit_takes_it_back(directory):
    closed_with(directory, 2)
    data = bytearray(segment(directory).read_bytes())
    data[-3] ^= 1
    segment(directory).write_bytes(data)
    opened = Opened(directory)
    assert set(opened.image.topics) == {"t1"}
    opened.log.abandon()


def test_damage_before_the_end_is_not_taken_for_a_torn_tail(directory):
    closed_with(directory, 2)
    data = bytearray(segment(directory).read_bytes())
    first = next(batches(data))
    data[first.size + 80] ^= 1
    segment(directory).write_bytes(data)
    with pytest.raises(CorruptMetadata, match=f"damaged at byte {first.size}"):
        Opened(directory)


def test_a_missing_file_is_noticed(directory):
    closed_with(directory, 1)
    segment(directory).rename(directory / f"{5:020d}.log")
    with pytest.raises(CorruptMetadata, match="begins after offset 0"):
        Opened(directory)


def test_a_record_of_a_later_version_is_an_error(directory):
    closed_with(directory, 1)
    opened = Opened(directory)
    at = opened.log.next_offset
    opened.log.abandon()
    value = bytes([1, 2, 99])  # a TopicRecord of version 99
    with segment(directory).open("ab") as file:
        file.write(build_batch([(NOW_MS, None, value)], base_offset=at, leader_epoch=2))
    with pytest.raises(CorruptMetadata, match=f"cannot be read at offset {at}"):
        Opened(directory)


def append(directory: Path, *commits) -> None:
    """Append batches (lists of records) to the log's file, as one of Kafka's controllers might write them."""
    opened = Opened(directory)
    offset = opened.log.next_offset
    opened.log.abandon()
    with segment(directory).open("ab") as file:
        for records in commits:
            file.write(data_batch(records, offset, 1, NOW_MS))
            offset += len(records)


def test_a_metadata_transaction_counts_when_it_ends(directory):
    begin, end = schema.BeginTransactionRecord(name="Bootstrap records"), schema.EndTransactionRecord()
    append(directory, [begin, *topic(1)], topic(2), [end], topic(3))
    opened = Opened(directory)
    assert list(opened.image.topics) == ["t1", "t2", "t3"]
    opened.log.abandon()


def test_an_aborted_metadata_transaction_has_no_effect(directory):
    begin, abort = schema.BeginTransactionRecord(name="x"), schema.AbortTransactionRecord(reason="y")
    append(directory, [begin, *topic(1)], [abort], topic(2))
    opened = Opened(directory)
    assert list(opened.image.topics) == ["t2"]
    opened.log.abandon()


def test_an_unfinished_metadata_transaction_is_aborted_by_the_next_start(directory):
    append(directory, [schema.BeginTransactionRecord(name="x"), *topic(1)])
    opened = Opened(directory)
    assert opened.image.topics == {}
    opened.add(1)
    opened.log.abandon()
    again = Opened(directory)
    assert list(again.image.topics) == ["t1"]
    again.log.abandon()


async def test_commits_that_come_while_a_sync_runs_share_the_next_one(directory):
    held, gate = threading.Event(), Gate()

    def sync(file: AppendFile) -> None:
        gate(file)
        held.wait()

    opened = Opened(directory, sync)
    first = opened.log.commit(topic(1), NOW_MS)
    later = [opened.log.commit(topic(number), NOW_MS) for number in range(2, 10)]
    written, seen = segment(directory).stat().st_size, dict(opened.image.topics)
    held.set()
    assert seen == {}
    await first
    assert list(opened.image.topics) == ["t1"]
    await asyncio.gather(*later)
    assert len(opened.image.topics) == 9
    assert gate.calls == 2
    # Each commit was written at its call, before any sync.
    assert segment(directory).stat().st_size == written
    await opened.log.close()


async def test_commits_whose_syncs_are_deferred_share_one(directory):
    gate = Gate()
    opened = Opened(directory, gate)
    await opened.log.commit(topic(1), NOW_MS)
    opened.log.defer_syncs()
    for number in (2, 3):
        await opened.log.commit(topic(number), NOW_MS)
    assert (list(opened.image.topics), gate.calls) == (["t1", "t2", "t3"], 1)
    await opened.log.sync_deferred()
    await opened.log.sync_deferred()
    assert gate.calls == 2
    await opened.log.commit(topic(4), NOW_MS)
    assert gate.calls == 3
    await opened.log.close()


async def test_commits_that_were_deferred_are_durable_in_a_closed_log(directory):
    gate = Gate()
    opened = Opened(directory, gate)
    opened.log.defer_syncs()
    first = opened.log.commit(topic(1), NOW_MS)
    await opened.log.close()
    assert (first.done(), gate.calls) == (True, 1)


async def test_a_deferred_sync_that_fails_is_an_error_and_is_not_tried_again(directory):
    gate = Gate()
    opened = Opened(directory, gate)
    opened.log.defer_syncs()
    await opened.log.commit(topic(1), NOW_MS)
    gate.failure = OSError(5, "Input/output error")
    with pytest.raises(MetadataLogFailed, match="Input/output error"):
        await opened.log.sync_deferred()
    with pytest.raises(MetadataLogFailed):
        opened.log.commit(topic(2), NOW_MS)
    await opened.log.close()
    assert gate.calls == 1


async def test_the_image_has_changed_when_the_caller_continues(directory):
    opened = Opened(directory)
    seen: list[bool] = []

    def look(name: str, _: object) -> None:
        seen.append(name in opened.image.topics)

    commits = [opened.log.commit(topic(number), NOW_MS) for number in (1, 2)]
    for number, commit in enumerate(commits, 1):
        commit.add_done_callback(partial(look, f"t{number}"))
    await asyncio.gather(*commits)
    assert seen == [True, True]
    await opened.log.close()


async def test_a_failed_sync_fails_all_that_wait_and_all_that_follows(directory):
    gate = Gate()
    opened = Opened(directory, gate)
    gate.failure = OSError(5, "Input/output error")
    first, second = opened.log.commit(topic(1), NOW_MS), opened.log.commit(topic(2), NOW_MS)
    for commit in (first, second):
        with pytest.raises(MetadataLogFailed, match="Input/output error"):
            await commit
    gate.failure = None
    with pytest.raises(MetadataLogFailed):
        opened.log.commit(topic(3), NOW_MS)
    assert opened.image.topics == {}
    await opened.log.close()


async def test_callers_of_a_commit_that_could_not_be_applied_get_its_error(directory):
    opened = Opened(directory)
    told = []
    asyncio.get_running_loop().set_exception_handler(lambda _, details: told.append(details["exception"]))
    applied: dict[int, Any] = {}
    opened.log._apply = lambda records, last_offset: applied[last_offset]
    commits = [opened.log.commit(topic(number), NOW_MS) for number in (1, 2)]
    for commit in commits:
        with pytest.raises(MetadataLogFailed):
            await commit
    with pytest.raises(MetadataLogFailed):
        opened.log.commit(topic(3), NOW_MS)
    assert [type(error) for error in told] == [KeyError]
    await opened.log.close()


async def test_a_failed_write_is_cut_off_again(directory, monkeypatch):
    opened = Opened(directory)
    await opened.log.commit(topic(1), NOW_MS)
    size = segment(directory).stat().st_size

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(files.system, "pwritev", full)
        with pytest.raises(MetadataLogFailed, match="No space left"):
            opened.log.commit(topic(2), NOW_MS)
    assert segment(directory).stat().st_size == size
    await opened.log.close()


async def test_a_closed_log_has_synced_what_was_written(directory):
    gate = Gate()
    opened = Opened(directory, gate)
    commits = [opened.log.commit(topic(number), NOW_MS) for number in (1, 2)]
    await opened.log.close()
    assert all(commit.done() for commit in commits)
    assert len(opened.image.topics) == 2
    with pytest.raises(MetadataLogFailed, match="closed"):
        opened.log.commit(topic(3), NOW_MS)


async def test_a_cancelled_caller_loses_no_commit(directory):
    opened = Opened(directory)
    opened.log.commit(topic(1), NOW_MS).cancel()
    await opened.log.commit(topic(2), NOW_MS)
    assert list(opened.image.topics) == ["t1", "t2"]
    await opened.log.close()


def holding_logs(directory: Path) -> None:
    (directory.parent / "orders-0").mkdir()
    (directory.parent / "orders-0" / "00000000000000000000.log").touch()


@pytest.mark.parametrize("what", ["all of it", "its log", "the content of its log"])
def test_a_metadata_log_that_is_gone_while_topics_are_not_is_refused(directory, what):
    closed_with(directory, 2)
    holding_logs(directory)
    if what == "all of it":
        shutil.rmtree(directory)
    elif what == "its log":
        segment(directory).unlink()
    else:
        os.truncate(segment(directory), 0)
    for _ in range(2):
        with pytest.raises(CorruptMetadata, match=r"no log of the cluster metadata, though .*orders-0"):
            Opened(directory)


def test_a_metadata_log_that_was_there_and_is_gone_is_refused(directory):
    closed_with(directory, 2)
    segment(directory).unlink()
    with pytest.raises(CorruptMetadata, match="though quorum-state says that there was one"):
        Opened(directory)
