"""Appended batches are flushed in the background within seconds, and then the checkpoint files have the flushed offsets."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import structlog
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from broker.metadata.values import TOPIC_RESOURCE
from broker.replicas.maintenance import producer_snapshots
from broker.replicas.partition import Partition
from protocol.batch import RecordBatch, build_batch
from protocol.errors import ErrorCode
from storage import files
from storage.checkpoints import read_offsets
from storage.directory import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from storage.files import StorageError
from storage.segment import Segment
from tests.support.broker import StartBroker
from tests.support.clients import DEADLINE_S, eventually
from tests.support.clock import NOW_MS
from tests.support.deadlines import HANG_S
from tests.support.world import World, begun

ROUND_MS = 5000
INTERVAL = "odradek.background.flush.interval.ms"


class Flushed(World):
    """A world with the timers of the replicas' maintenance."""

    def begin(self) -> None:
        self.node.replicas.start_timers()

    async def work(self) -> None:
        """Wait for the work that was handed to threads."""
        while self.node.replicas._background:
            await asyncio.wait(self.node.replicas._background)

    async def round(self) -> None:
        self.clock.advance(ROUND_MS)
        await self.work()

    def rows(self, name: str) -> dict[tuple[str, int], int]:
        return {key: offset for key, offset in read_offsets(self.path / name).items() if key[0][:2] != "__"}

    def crash(self) -> None:
        super().crash()
        self.begin()


def opened(path: Path, **settings: str) -> AbstractAsyncContextManager[Flushed]:
    return begun(Flushed(path, settings=settings))


def append(partition: Partition, size: int = 100, **options: Any) -> None:
    batch = RecordBatch.parse(build_batch([(NOW_MS, b"k", bytes(size))], **options))
    assert partition.append(batch, required_acks=-1).error is ErrorCode.none


class Syncs:
    """A replacement for `Segment.sync` that counts the calls, and can block or fail them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        self.may_end = threading.Event()
        self.may_end.set()
        self.fails = ""
        self.at_once = self.at_once_max = 0
        self._lock = threading.Lock()
        original = Segment.sync

        def sync(segment: Segment) -> None:
            name = segment.directory.name
            with self._lock:
                self.at_once += 1
                self.at_once_max = max(self.at_once, self.at_once_max)
                self.names.append(name)
            assert self.may_end.wait(HANG_S)
            with self._lock:
                self.at_once -= 1
            if self.fails and name.startswith(self.fails):
                raise StorageError(segment.directory, "Input/output error")
            original(segment)

        monkeypatch.setattr(Segment, "sync", sync)


# -- rounds -----------------------------------------------------------------------------------------------------


async def test_what_was_written_is_synced_in_the_next_round_and_checkpointed(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        world.create("t", 3)
        written = [world.partition("t", index) for index in (0, 2)]
        for partition in written:
            append(partition)
            append(partition)
        world.clock.advance(ROUND_MS - 1)
        await world.work()
        assert [partition.log.flushed_offset for partition in written] == [0, 0]
        world.clock.advance(1)
        await world.work()
        assert [partition.log.flushed_offset for partition in written] == [2, 2]
        assert [partition.unflushed for partition in written] == [False, False]
        points = {("t", each.index): each.log.recovery_point for each in written}
        assert world.rows(RECOVERY_POINTS) == points
        assert set(points.values()) <= {1, 2}
        assert world.rows(HIGH_WATERMARKS) == {("t", 0): 2, ("t", 2): 2}


async def test_a_round_without_anything_new_touches_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as world:
        world.create("t")
        append(world.partition("t"))
        await world.round()
        syncs = Syncs(monkeypatch)
        monkeypatch.setattr(files.System, "open", None)  # writing any file would fail
        for _ in range(3):
            await world.round()
        assert syncs.names == []
        monkeypatch.undo()
        append(world.partition("t"))
        await world.round()
        assert world.partition("t").log.flushed_offset == 2


async def test_a_round_begins_when_the_one_before_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as world:
        world.create("t", 100)
        syncs = Syncs(monkeypatch)
        for index in range(100):
            append(world.partition("t", index))
        syncs.may_end.clear()
        world.clock.advance(ROUND_MS)
        append(world.partition("t", 0))
        world.clock.advance(20 * ROUND_MS)
        assert len(world.node.replicas._background) == 1
        syncs.may_end.set()
        await world.work()
        assert syncs.at_once_max == 1
        assert sorted(set(syncs.names)) == sorted(f"t-{index}" for index in range(100))
        assert len(syncs.names) == 100
        await world.round()
        assert {world.partition("t", index).unflushed for index in range(100)} == {False}


async def test_after_a_crash_what_was_not_synced_is_synced_in_the_first_round(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        world.create("t")
        append(world.partition("t"))
        world.crash()
        partition = world.partition("t")
        assert (partition.log.flushed_offset, partition.log_end_offset) == (0, 1)
        await world.round()
        assert partition.log.flushed_offset == 1


async def test_without_rounds_only_sealed_segments_are_synced_and_checkpointed_at_kafka_s_interval(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, **{INTERVAL: "0"}) as world:
        world.create("t")
        partition = world.partition("t")
        append(partition)
        partition.log.roll(world.clock.now_ms())
        append(partition)
        assert partition.delete_records(1) == (ErrorCode.none, 1)
        world.clock.advance(59_999)
        await world.work()
        assert partition.log.flushed_offset == 1
        assert world.rows(RECOVERY_POINTS) == {}
        world.clock.advance(1)
        await world.work()
        assert world.rows(RECOVERY_POINTS) == {("t", 0): 1}
        assert world.rows(LOG_STARTS) == {("t", 0): 1}
        assert partition.log.flushed_offset == 1


# -- flush.ms and flush.messages --------------------------------------------------------------------------------


async def test_flush_ms_counts_from_the_first_record_that_is_not_on_the_disk(tmp_path: Path) -> None:
    async with opened(tmp_path, **{INTERVAL: "0"}) as world:
        world.create("t", 1, **{"flush.ms": "1000"})
        partition = world.partition("t")
        append(partition)
        world.clock.advance(900)
        append(partition)
        world.clock.advance(99)
        await world.work()
        assert partition.log.flushed_offset == 0
        world.clock.advance(1)
        await world.work()
        assert partition.log.flushed_offset == 2
        world.clock.advance(5000)
        append(partition)
        world.clock.advance(999)
        await world.work()
        assert partition.log.flushed_offset == 2
        world.clock.advance(1)
        await world.work()
        assert partition.log.flushed_offset == 3


async def test_what_comes_during_a_sync_has_its_own_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, **{INTERVAL: "0"}) as world:
        world.create("t", 1, **{"flush.ms": "1000"})
        partition = world.partition("t")
        syncs = Syncs(monkeypatch)
        append(partition)
        syncs.may_end.clear()
        world.clock.advance(1000)
        world.clock.advance(300)
        append(partition)
        world.clock.advance(300)
        syncs.may_end.set()
        await world.work()
        assert partition.log.flushed_offset == 1
        world.clock.advance(700)
        await world.work()
        assert partition.log.flushed_offset == 2


async def test_a_new_flush_ms_counts_for_what_waits(tmp_path: Path) -> None:
    async with opened(tmp_path, **{INTERVAL: "0"}) as world:
        world.create("t")
        partition = world.partition("t")
        append(partition)
        world.clock.advance(10_000_000)
        world.cluster.topics["t"].configs["flush.ms"] = "50"
        world.node.replicas.on_config_changed(TOPIC_RESOURCE, "t")
        world.clock.advance(50)
        await world.work()
        assert partition.log.flushed_offset == 1


async def test_one_sync_of_a_partition_runs_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most one sync of a partition runs at a time. The operating system reports lost pages only once, so of two
    concurrent syncs one would count lost pages as written."""
    async with opened(tmp_path) as world:
        world.create("t", 1, **{"flush.messages": "1", "flush.ms": "10"})
        partition = world.partition("t")
        syncs = Syncs(monkeypatch)
        syncs.may_end.clear()
        for _ in range(3):
            append(partition)
            partition.log.roll(world.clock.now_ms())
            world.clock.advance(ROUND_MS)
        assert len(world.node.replicas._background) == 1
        syncs.may_end.set()
        await world.work()
        assert syncs.at_once_max == 1
        assert (partition.log.flushed_offset, partition.high_watermark) == (3, 3)


# -- failures ---------------------------------------------------------------------------------------------------


async def test_a_sync_that_fails_in_a_round_takes_one_partition_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as world:
        world.create("broken")
        world.create("sound")
        for name in ("broken", "sound"):
            append(world.partition(name))
        syncs = Syncs(monkeypatch)
        syncs.fails = "broken"
        await world.round()
        assert world.partition("broken").offline is not None
        assert world.partition("broken").log.flushed_offset == 0
        assert world.partition("sound").log.flushed_offset == 1
        assert ("broken", 0) not in world.rows(RECOVERY_POINTS)
        syncs.names.clear()
        await world.round()
        assert syncs.names == []


async def test_checkpoints_that_cannot_be_written_are_written_in_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as world:
        world.create("t")
        append(world.partition("t"))

        def fails(source: Any, target: Any) -> None:
            if str(target).endswith("checkpoint"):
                raise OSError(errno.ENOSPC, "No space left on device")
            os.rename(source, target)

        with monkeypatch.context() as patched, structlog.testing.capture_logs() as lines:
            patched.setattr(files.System, "rename", staticmethod(fails))
            await world.round()
        assert [line["event"] for line in lines] == ["checkpoints could not be written"]
        assert world.rows(RECOVERY_POINTS) == {}
        assert world.partition("t").offline is None
        await world.round()
        assert ("t", 0) in world.rows(RECOVERY_POINTS)


async def test_a_topic_that_is_deleted_during_its_sync_leaves_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as world:
        world.create("t")
        old = world.partition("t")
        append(old)
        old.log.assign_epoch(7)  # the sync writes the epoch file too
        syncs = Syncs(monkeypatch)
        syncs.may_end.clear()
        world.clock.advance(ROUND_MS)
        world.cluster.delete("t")
        world.create("t")
        new = world.partition("t")
        append(new)
        with structlog.testing.capture_logs() as lines:
            syncs.may_end.set()
            await world.work()
        assert lines == []
        assert (old.offline, new.offline, old.log.flushed_offset) == (None, None, 0)
        assert (new.log.directory / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 0\n"
        assert ("t", 0) not in world.rows(RECOVERY_POINTS)
        await world.round()
        assert ("t", 0) in world.rows(RECOVERY_POINTS)
        assert new.log.flushed_offset == 1


# -- other files ------------------------------------------------------------------------------------------------


async def test_a_log_start_survives_a_crash(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        world.create("t")
        partition = world.partition("t")
        for _ in range(3):
            append(partition)
        assert partition.delete_records(2) == (ErrorCode.none, 2)
        await world.round()
        assert world.rows(LOG_STARTS) == {("t", 0): 2}
        world.crash()
        assert world.partition("t").log_start_offset == 2
        assert world.partition("t").log.epochs.entries()[0] == (0, 2)


async def test_opening_after_a_restart_forces_nothing_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening partitions after a restart calls no fsync: the entry of the new leader epoch is written with the first
    records."""
    async with opened(tmp_path) as world:
        world.create("t", 50)
        for index in range(50):
            append(world.partition("t", index))
        await world.node.replicas.close(clean=True)
        world.directory.close(clean=True)
        world.cluster.restart()
        world._open()
        forced: list[int] = []
        monkeypatch.setattr(files.System, "fsync", staticmethod(forced.append))
        for index in range(50):
            assert world.partition("t", index).log.epochs.entries() == [(0, 0), (1, 1)]
        await world.work()
        assert forced == []


async def test_an_epoch_is_on_the_disk_before_the_recovery_point_passes_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as world:
        world.create("t")
        append(world.partition("t"))
        await world.round()
        world.cluster.move("t", 0, leader=1)
        path = world.partition("t").log.directory / "leader-epoch-checkpoint"
        append(world.partition("t"))
        append(world.partition("t"))
        assert path.read_bytes() == b"0\n1\n0 0\n"
        seen: list[bytes] = []

        def renames(source: Any, target: Any) -> None:
            if str(target).endswith(RECOVERY_POINTS):
                seen.append(path.read_bytes())
            os.rename(source, target)

        monkeypatch.setattr(files.System, "rename", staticmethod(renames))
        await world.round()
        assert seen == [b"0\n2\n0 0\n1 1\n"]
        monkeypatch.undo()


async def test_an_epoch_that_a_crash_took_is_read_from_the_batches(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        world.create("t")
        append(world.partition("t"))
        await world.round()
        world.cluster.move("t", 0, leader=1)
        append(world.partition("t"))
        world.crash()
        assert world.partition("t").log.epochs.entries() == [(0, 0), (1, 1), (2, 2)]


async def test_a_long_log_has_a_snapshot_of_its_producers_near_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_snapshots, "SNAPSHOT_BYTES", 5000)

    def snapshots(partition: Partition) -> list[int]:
        return sorted(int(path.stem) for path in partition.log.directory.glob("*.snapshot"))

    async with opened(tmp_path) as world:
        world.create("t")
        partition = world.partition("t")
        taken = []
        for number in range(5):
            append(partition, 4000, producer_id=9, producer_epoch=0, base_sequence=2 * number)
            await world.round()
            taken.append(snapshots(partition))
            append(partition, 4000, producer_id=9, producer_epoch=0, base_sequence=2 * number + 1)
            await world.round()
        assert taken == [[], [2], [2, 4], [4, 6], [6, 8]]
        # The flusher does not remove the producer snapshot at the start of a segment.
        partition.log.roll(world.clock.now_ms())
        for number in range(10, 20):
            append(partition, 4000, producer_id=9, producer_epoch=0, base_sequence=number)
            await world.round()
        assert snapshots(partition) == [10, 18, 20]
        world.crash()
        entry = world.partition("t").log.producers.entries[9]
        assert entry.last_offset == 19


def test_deleted_records_do_not_come_back_after_a_kill(start_broker: StartBroker) -> None:
    broker = start_broker(topics=["t:1"], settings={INTERVAL: 50})
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in (b"a", b"b", b"c"):
        producer.produce("t", value, partition=0)
    assert producer.flush(DEADLINE_S) == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition("t", 0, 2)]).values()
    assert deleted.result(DEADLINE_S).low_watermark == 2
    eventually(lambda: read_offsets(broker.data_dir / LOG_STARTS) == {("t", 0): 2})
    broker.kill()
    broker.restart()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (found,) = admin.list_offsets({TopicPartition("t", 0): OffsetSpec.earliest()}).values()
    assert found.result(DEADLINE_S).offset == 2
