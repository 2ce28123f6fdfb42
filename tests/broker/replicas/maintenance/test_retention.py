"""Retention: segments are deleted when Kafka would delete them, a few in each turn of the event loop, and their files are
renamed first."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import structlog
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from broker.clock import Domain
from broker.metadata.values import TOPIC_RESOURCE
from broker.replicas.maintenance.retention import WORK_PER_TURN, Retention
from broker.replicas.partition import Partition
from protocol.batch import RecordBatch, build_batch
from protocol.errors import ErrorCode
from storage import files
from storage.log import Log
from storage.retention import Ageing
from tests.support.broker import StartBroker
from tests.support.clients import DEADLINE_S, eventually
from tests.support.clock import NOW_MS
from tests.support.world import World, begun

DAY_MS = 86_400_000
INITIAL_MS = 30_000
INTERVAL_MS = 300_000
REMOVAL_MS = 60_000


class Kept(World):
    """A world with retention. No other component sets timers."""

    def begin(self) -> None:
        replicas = self.node.replicas
        replicas.add_listener(Retention(self.config, self.clock, replicas))
        replicas._listeners.members[-1].start()

    def configure(self, topic: str, **configs: str) -> None:
        self.cluster.topics[topic].configs.update(configs)
        self.node.replicas.on_config_changed(TOPIC_RESOURCE, topic)

    def segments(self, topic: str, *ages_ms: int | None, size: int = 1000) -> Partition:
        """Make a log of segments with one batch each, ``age_ms`` old (None: no timestamp). The last segment is active."""
        partition = self.partition(topic)
        for age_ms in ages_ms:
            if partition.log.exists and partition.log.active.size:
                partition.log.roll(self.clock.now_ms())
            append(partition, -1 if age_ms is None else self.clock.now_ms() - age_ms, size)
        return partition

    async def work(self) -> None:
        """Wait for the work that was handed to threads."""
        while self.node.replicas._background:
            await asyncio.wait(self.node.replicas._background)

    async def reopen(self) -> None:
        """Stop the node cleanly and start it again."""
        await self.node.replicas.close(clean=True)
        self.directory.close(clean=True)
        self.clock.forget_timers()
        self.cluster.restart()
        self._open()
        self.begin()


def append(partition: Partition, timestamp_ms: int, size: int = 100) -> None:
    batch = RecordBatch.parse(build_batch([(timestamp_ms, b"k", bytes(size - 70))]))
    assert partition.append(batch, required_acks=-1).error is ErrorCode.none


def opened(path: Path, **settings: str) -> AbstractAsyncContextManager[Kept]:
    return begun(Kept(path, settings=settings))


def names(partition: Partition, suffix: str = "") -> list[str]:
    return sorted(path.name for path in partition.log.directory.glob(f"*.log{suffix}"))


def folders(path: Path, topic: str) -> list[str]:
    return [each.name for each in path.iterdir() if each.name.startswith(topic)]


def bases(partition: Partition) -> list[int]:
    return [segment.base_offset for segment in partition.log.segments]


async def test_expired_segments_are_removed_at_the_first_check_and_their_files_a_minute_later(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as world:
        world.create("old", 1, **{"retention.ms": str(DAY_MS)})
        partition = world.segments("old", 2 * DAY_MS, DAY_MS + 1, 5, 5)
        woken: list[int] = []
        partition.delayed.watch(lambda: woken.append(partition.log_start_offset))
        world.clock.advance(INITIAL_MS - 1)
        assert partition.log_start_offset == 0
        with structlog.testing.capture_logs() as lines:
            world.clock.advance(1)
        assert bases(partition) == [2, 3]
        assert partition.log_start_offset == 2
        assert woken == [2]
        assert partition.earliest().offset == 2
        refused = partition.read(1, 1 << 20, read_committed=False, whole_first_batch=True)
        assert refused.error is ErrorCode.offset_out_of_range
        assert names(partition) == [f"{base:020}.log" for base in (2, 3)]
        assert names(partition, ".deleted") == [f"{base:020}.log.deleted" for base in (0, 1)]
        (line,) = [line for line in lines if line["event"] == "segments deleted"]
        assert line == {
            "event": "segments deleted",
            "log_level": "info",
            "topic": "old",
            "partition": 0,
            "segments": 2,
            "bytes": 2 * partition.log.segments[0].size,
            "reason": "retention.ms",
            "log_start_offset": 2,
        }
        world.clock.advance(REMOVAL_MS - 1)
        await world.work()
        assert len(names(partition, ".deleted")) == 2
        world.clock.advance(1)
        await world.work()
        assert list(partition.log.directory.glob("*.deleted")) == []


async def test_the_active_segment_is_deleted_too_if_all_its_records_are_old(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        world.create("old", 1, **{"retention.ms": str(DAY_MS)})
        partition = world.segments("old", 2 * DAY_MS, 2 * DAY_MS)
        world.clock.advance(INITIAL_MS)
        assert (bases(partition), partition.log_start_offset, partition.log_end_offset) == ([2], 2, 2)
        assert partition.log.epochs.entries() == [(0, 2)]
        append(partition, world.clock.now_ms())
        assert partition.log_end_offset == 3
        world.clock.advance(INTERVAL_MS)
        assert partition.log_start_offset == 2


async def test_a_log_is_looked_at_when_it_is_due_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    expired = Ageing.expired

    def counted(self: Ageing[Any], *arguments: Any) -> Any:
        looked.append(self.log_end_offset)
        return expired(self, *arguments)

    monkeypatch.setattr(Ageing, "expired", counted)
    async with opened(tmp_path) as world:
        world.create("timed", 1, **{"retention.ms": str(DAY_MS)})
        world.create("kept", 1, **{"retention.ms": "-1"})
        partition = world.segments("timed", 5, 5)
        world.segments("kept", 5, 5)
        world.clock.advance(INITIAL_MS)
        assert len(looked) == 2
        looked.clear()
        while world.clock.now_ms() + INTERVAL_MS < NOW_MS + DAY_MS - 5:
            world.clock.advance(INTERVAL_MS)
        assert looked == []
        assert partition.log_start_offset == 0
        world.clock.advance(2 * INTERVAL_MS)
        assert partition.log_start_offset == 2
        assert set(looked) == {2}


async def test_what_was_appended_with_an_old_timestamp_goes_at_the_next_check(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        world.create("old", 1, **{"retention.ms": str(DAY_MS)})
        partition = world.partition("old")
        world.clock.advance(INITIAL_MS)
        append(partition, NOW_MS - 2 * DAY_MS)
        world.clock.advance(INTERVAL_MS - 1)
        assert partition.log_start_offset == 0
        world.clock.advance(1)
        assert partition.log_start_offset == 1


@pytest.mark.parametrize("flushed", [True, False])
async def test_a_log_with_a_size_limit_is_looked_at_when_it_grew(tmp_path: Path, flushed: bool) -> None:
    """A log that grows beyond ``retention.bytes`` is checked, whether or not its earlier records were synced since the
    last check."""
    async with opened(tmp_path) as world:
        world.create("sized", 1, **{"retention.bytes": "2500"})
        partition = world.segments("sized", 5, 5, 5)
        size = partition.log.active.size
        assert 830 < size <= 1250
        world.clock.advance(INITIAL_MS)
        assert bases(partition) == [0, 1, 2]
        for kept in ([1, 2, 3], [2, 3, 4]):
            if flushed:
                world.node.replicas._flushing.flush(partition)
                await world.work()
                assert not partition.unflushed
                world.clock.advance(INTERVAL_MS)
            world.segments("sized", 5)
            world.clock.advance(INTERVAL_MS)
            assert bases(partition) == kept
        assert partition.log.size == 3 * size


async def test_a_new_setting_counts_at_the_next_check(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        world.create("t", 1, **{"retention.ms": "-1"})
        partition = world.segments("t", 2 * DAY_MS, 5)
        world.clock.advance(INITIAL_MS + INTERVAL_MS)
        assert bases(partition) == [0, 1]
        world.configure("t", **{"retention.ms": str(DAY_MS)})
        world.clock.advance(INTERVAL_MS)
        assert bases(partition) == [1]


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "compact", ""])
async def test_segments_below_the_log_start_are_deleted(tmp_path: Path, policy: str) -> None:
    async with opened(tmp_path) as world:
        world.create("t", 1, **{"cleanup.policy": policy})
        partition = world.segments("t", 5, 5, 5)
        assert partition.delete_records(2) == (ErrorCode.none, 2)
        assert bases(partition) == [0, 1, 2]
        with structlog.testing.capture_logs() as lines:
            world.clock.advance(INITIAL_MS)
        assert bases(partition) == [2]
        assert [line["reason"] for line in lines if line["event"] == "segments deleted"] == [
            "log start offset"
        ]
        world.segments("t", 5)
        assert partition.delete_records(3) == (ErrorCode.none, 3)
        world.clock.advance(INTERVAL_MS)
        assert bases(partition) == [3]


async def test_compacted_logs_are_checked_at_the_cleaner_s_pace(tmp_path: Path) -> None:
    async with opened(tmp_path, **{"log.cleaner.backoff.ms": "1000"}) as world:
        world.create("both", 1, **{"cleanup.policy": "compact,delete", "retention.ms": str(DAY_MS)})
        partition = world.segments("both", 2 * DAY_MS, 5)
        world.clock.advance(999)
        assert bases(partition) == [0, 1]
        world.clock.advance(1)
        assert bases(partition) == [1]


async def test_without_a_cleaner_compacted_logs_keep_everything(tmp_path: Path) -> None:
    """With ``log.cleaner.enable=false`` no segment of a compacted log is deleted, as in Kafka, whose cleaner thread deletes
    them."""
    async with opened(tmp_path, **{"log.cleaner.enable": "false"}) as world:
        world.create("both", 1, **{"cleanup.policy": "compact,delete", "retention.ms": str(DAY_MS)})
        world.create("changed", 1, **{"retention.ms": str(DAY_MS)})
        kept = [world.segments(name, 2 * DAY_MS, 5) for name in ("both", "changed")]
        world.configure("changed", **{"cleanup.policy": "compact,delete"})
        world.clock.advance(DAY_MS // 2)
        assert [bases(partition) for partition in kept] == [[0, 1], [0, 1]]
        world.configure("changed", **{"cleanup.policy": "delete"})
        world.clock.advance(INTERVAL_MS)
        assert [bases(partition) for partition in kept] == [[0, 1], [1]]


async def test_a_segment_without_timestamps_expires_by_its_modification_time(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        world.create("t", 1, **{"retention.ms": str(DAY_MS)})
        partition = world.segments("t", None, 5)
        path = partition.log.segments[0].paths()[0]
        os.utime(path, (0, (NOW_MS + INITIAL_MS - DAY_MS) / 1000))
        world.clock.advance(INITIAL_MS)
        assert bases(partition) == [0, 1]
        world.clock.advance(INTERVAL_MS)
        assert bases(partition) == [1]


async def test_many_segments_go_a_few_in_each_turn_and_are_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    drop_oldest = Log.drop_oldest

    def counted(self: Log, count: int, now_ms: int) -> list[Path]:
        counts.append(count)
        return drop_oldest(self, count, now_ms)

    monkeypatch.setattr(Log, "drop_oldest", counted)
    async with opened(tmp_path) as world:
        world.create("long", 1, **{"retention.ms": str(DAY_MS)})
        partition = world.segments("long", *[2 * DAY_MS] * 100, 5)
        await world.work()
        with structlog.testing.capture_logs() as lines:
            world.clock.advance(INITIAL_MS)
        assert bases(partition) == [100]
        assert sum(counts) == 100
        assert max(counts) <= WORK_PER_TURN
        (line,) = [line for line in lines if line["event"] == "segments deleted"]
        assert line["segments"] == 100
        world.clock.advance(REMOVAL_MS)
        await world.work()
        assert names(partition) == [f"{100:020}.log"]
        assert list(partition.log.directory.glob("*.deleted")) == []


async def test_turns_are_turns_of_the_loop(tmp_path: Path) -> None:
    """Each turn of retention is a timer of its own, so other callbacks run between the turns."""
    async with opened(tmp_path) as world:
        world.create("long", 1, **{"retention.ms": str(DAY_MS)})
        partition = world.segments("long", *[2 * DAY_MS] * 50, 5)
        retention = world.node.replicas._listeners.members[-1]
        assert isinstance(retention, Retention)
        world.clock.now += INITIAL_MS
        retention._begin()
        assert 0 < partition.log_start_offset <= WORK_PER_TURN
        world.clock.advance(0)
        assert partition.log_start_offset == 50


async def test_unopened_partitions_are_looked_at_once_after_a_clean_start(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as world:
        world.create("many", 20, **{"retention.ms": str(DAY_MS)})
        world.create("never", 3)
        for index in range(20):
            append(world.partition("many", index), NOW_MS - DAY_MS + INITIAL_MS + INTERVAL_MS)
        await world.reopen()
        replicas = world.node.replicas
        assert list(replicas.opened()) == []
        world.clock.advance(INITIAL_MS)
        assert {each.index for each in replicas.opened() if each.topic == "many"} == set(range(20))
        world.clock.advance(2 * INTERVAL_MS)
        assert {each.log_start_offset for each in replicas.opened() if each.topic == "many"} == {1}


async def test_a_folder_that_was_never_made_is_not_opened(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        world.create("never", 3)
        world.clock.advance(INITIAL_MS)
        assert [each for each in world.node.replicas.opened() if each.topic == "never"] == []


async def test_retention_stops_when_its_topic_is_deleted(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        world.create("long", 1, **{"retention.ms": str(DAY_MS)})
        partition = world.segments("long", *[2 * DAY_MS] * 50, 5)
        await world.work()
        retention = world.node.replicas._listeners.members[-1]
        assert isinstance(retention, Retention)
        world.clock.now += INITIAL_MS
        retention._begin()
        left = len(partition.log.segments)
        assert left > 1
        world.cluster.delete("long")
        world.clock.advance(10 * DAY_MS)
        await world.work()
        assert len(partition.log.segments) == left
        assert folders(tmp_path, "long") == []


async def test_a_segment_that_cannot_be_renamed_takes_its_partition_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = files.System.rename

    def fails(source: Any, target: Any) -> None:
        if "broken" in str(source):
            raise OSError(5, "Input/output error")
        rename(source, target)

    async with opened(tmp_path) as world:
        for name in ("broken", "sound"):
            world.create(name, 1, **{"retention.ms": str(DAY_MS)})
            world.segments(name, 2 * DAY_MS, 5)
        monkeypatch.setattr(files.System, "rename", staticmethod(fails))
        world.clock.advance(INITIAL_MS)
        assert world.partition("broken").offline is not None
        assert bases(world.partition("sound")) == [1]
        monkeypatch.undo()


async def test_only_timers_of_retention_are_set(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        world.create("t", 1, **{"retention.ms": str(DAY_MS)})
        world.segments("t", 2 * DAY_MS, 5)
        world.clock.advance(INITIAL_MS)
        assert {timer.domain for timer in world.clock.timers} == {Domain.RETENTION}


# -- seen by clients --------------------------------------------------------------------------------------------


@pytest.fixture
def consumer_of() -> Iterator[Any]:
    made: list[Consumer] = []

    def make(bootstrap: str) -> Consumer:
        made.append(Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "error"}))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


def test_a_consumer_below_the_new_log_start_gets_an_error(
    start_broker: StartBroker, consumer_of: Any
) -> None:
    broker = start_broker(
        topics=["old:1"],
        settings={
            "log.retention.ms": 3_600_000,
            "log.initial.task.delay.ms": 100,
            "log.retention.check.interval.ms": 100,
        },
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in (b"a", b"b", b"c"):
        producer.produce("old", value, partition=0, timestamp=1_600_000_000_000)
    assert producer.flush(DEADLINE_S) == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    partition = TopicPartition("old", 0)

    def earliest() -> int:
        (found,) = admin.list_offsets({partition: OffsetSpec.earliest()}).values()
        return int(found.result(DEADLINE_S).offset)

    eventually(lambda: earliest() == 3)
    consumer = consumer_of(broker.bootstrap)
    consumer.assign([TopicPartition("old", 0, 1)])
    message = consumer.poll(DEADLINE_S)
    assert message is not None
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
    producer.produce("old", b"d", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    consumer.assign([TopicPartition("old", 0, 3)])
    assert consumer.poll(DEADLINE_S).value() == b"d"
