"""When logs are compacted, what a compaction pass leaves on disk, and what a failed pass affects."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from broker.clock.of_node import NodeClock
from broker.replicas.maintenance.cleaner_throttler import REST_S, Abandoned, CleanerThrottler
from broker.replicas.maintenance.log_cleaner import LogCleaner
from broker.replicas.partition import Partition
from broker.transactions.transaction import Transaction
from protocol.batch import RecordBatch, build_batch
from protocol.compression import GZIP, NONE
from protocol.errors import ErrorCode
from storage import files
from storage.checkpoints import read_offsets
from storage.compaction.rewriting import Pass
from storage.directory import CLEANER_OFFSETS
from storage.log import Log
from tests.support.deadlines import HANG_S
from tests.support.world import CONSUMER_OFFSETS, TRANSACTION_STATE, World, begun, committed_values

BACKOFF_MS = 15_000
DELAY_MS = 60_000
COMPACT = {"cleanup.policy": "compact"}


class Compacting(World):
    """A world whose node compacts its logs."""

    compaction: LogCleaner
    skewed: NodeClock
    """The clock of the compaction, ahead of the cluster's clock by a skew that the test sets."""

    def begin(self) -> None:
        replicas = self.node.replicas
        self.skewed = NodeClock(self.clock)
        self.compaction = LogCleaner(self.directory, self.config, self.skewed, replicas.in_background)
        replicas.add_listener(self.compaction)
        self.compaction.start()

    async def work(self) -> None:
        """Wait for a running compaction pass, and for the work of the replicas in threads."""
        while (task := self.compaction._task) is not None or self.node.replicas._background:
            await asyncio.wait({*self.node.replicas._background, *([task] if task else [])})

    async def round(self, wait_ms: int = BACKOFF_MS) -> None:
        self.clock.advance(wait_ms)
        await self.work()

    async def restart(self, *, clean: bool) -> None:
        await self.node.replicas.close(clean=clean)
        self.directory.close(clean=clean)
        self.clock.forget_timers()
        self.cluster.restart()
        self._open()
        self.node.replicas.recover()
        self.begin()

    def rows(self) -> dict[tuple[str, int], int]:
        return read_offsets(self.path / CLEANER_OFFSETS)

    def names(self, partition: Partition, ending: str) -> list[str]:
        return sorted(path.name for path in partition.log.directory.glob(f"*{ending}"))


def opened(path: Path, **settings: str) -> AbstractAsyncContextManager[Compacting]:
    return begun(Compacting(path, settings={"log.retention.check.interval.ms": str(10**12), **settings}))


def append(partition: Partition, key: str, value: str | None = "v", **options: Any) -> None:
    now_ms = partition._clock.now_ms()
    record = (now_ms, key.encode(), value if value is None else value.encode())
    batch = RecordBatch.parse(build_batch([record], **options))
    assert partition.append(batch, required_acks=-1).error is ErrorCode.none


def roll(partition: Partition) -> None:
    partition.log.roll(partition._clock.now_ms())


def dirty(world: Compacting, topic: str, **configs: str) -> Partition:
    """Create a partition with three records in a sealed segment, two of them with the same key."""
    world.create(
        topic, 1, **{**COMPACT, **{name.replace("_", "."): value for name, value in configs.items()}}
    )
    partition = world.partition(topic)
    for key in "aab":
        append(partition, key)
    roll(partition)
    return partition


def offsets(log: Log) -> list[int]:
    return [record.offset for batch in log.batches() for record in batch.records()]


@contextmanager
def said(*events: str) -> Iterator[list[Any]]:
    """Context manager: yield a list that has the log lines of these events after the end of the block."""
    found: list[Any] = []
    with structlog.testing.capture_logs() as lines:
        yield found
    found += [line for line in lines if line["event"] in events]


# -- when -------------------------------------------------------------------------------------------------------


async def test_a_sealed_segment_is_compacted_in_the_next_round(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        partition = dirty(world, "t")
        size = partition.log.size
        await world.round(BACKOFF_MS - 1)
        assert offsets(partition.log) == [0, 1, 2]
        with said("log compacted") as lines:
            await world.round(1)
        assert offsets(partition.log) == [1, 2]
        assert (partition.log_start_offset, partition.log_end_offset) == (0, 3)
        (line,) = lines
        assert line["log_level"] == "info"
        told = {
            name: value for name, value in line.items() if name not in ("event", "log_level", "duration_ms")
        }
        assert told == {
            "topic": "t",
            "partition": 0,
            "from_offset": 0,
            "to_offset": 3,
            "bytes_before": size,
            "bytes_after": partition.log.size,
            "records_before": 3,
            "records_after": 2,
        }
        assert world.rows() == {("t", 0): 3}
        # The old files stay under another name until file.delete.delay.ms is over.
        assert world.names(partition, ".deleted")
        await world.round(DELAY_MS)
        assert world.names(partition, ".deleted") == []
        assert world.names(partition, ".swap") == world.names(partition, ".cleaned") == []


async def test_logs_that_need_no_compaction_are_not_checked(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        world.create("deleted", 1)
        partition = world.partition("deleted")
        append(partition, "a")
        roll(partition)
        world.create("short", 1, **COMPACT)
        append(world.partition("short"), "a")
        assert world.compaction._candidates == {}
        assert [timer for timer in world.clock.timers if "LogCleaner" in repr(timer.callback)] == []


async def test_a_log_that_is_clean_enough_waits_for_more(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        partition = dirty(world, "t")
        await world.round()
        append(partition, "b")
        roll(partition)
        await world.round()
        # A third of the log is dirty, less than min.cleanable.dirty.ratio: the log is not checked again until it grows.
        assert offsets(partition.log) == [1, 2, 3]
        assert world.compaction._candidates == {}
        for _ in range(2):
            append(partition, "b")
        roll(partition)
        await world.round()
        assert offsets(partition.log) == [1, 5]


async def test_a_changed_setting_applies(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        partition = dirty(world, "t", cleanup_policy="delete")
        await world.round()
        assert offsets(partition.log) == [0, 1, 2]
        world.cluster.topics["t"].configs["cleanup.policy"] = "compact"
        world.node.replicas.on_config_changed(2, "t")
        await world.round()
        assert offsets(partition.log) == [1, 2]


async def test_the_dirtiest_comes_first(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        first = dirty(world, "first")
        await world.round()
        for _ in range(4):
            append(first, "a")
        roll(first)
        dirty(world, "second")
        with said("log compacted") as lines:
            await world.round()
        assert [line["topic"] for line in lines] == ["second", "first"]


async def test_records_stay_for_as_long_as_min_compaction_lag_says(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        partition = dirty(world, "t", min_compaction_lag_ms="100000")
        await world.round(99_999)
        assert offsets(partition.log) == [0, 1, 2]
        await world.round(BACKOFF_MS)
        assert offsets(partition.log) == [1, 2]


async def test_a_log_that_waits_for_its_lag_holds_up_no_other(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        patient = dirty(world, "patient", min_compaction_lag_ms=str(10 * BACKOFF_MS))
        await world.round()
        other = dirty(world, "other")
        await world.round()
        assert (offsets(patient.log), offsets(other.log)) == ([0, 1, 2], [1, 2])
        await world.round(10 * BACKOFF_MS)
        assert offsets(patient.log) == [1, 2]


async def test_a_node_whose_clock_is_set_ahead_finds_records_older_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        partition = dirty(world, "t", min_compaction_lag_ms="100000")
        await world.round()
        world.skewed.skew(200_000)
        await world.round()
        assert offsets(partition.log) == [1, 2]


async def test_max_compaction_lag_counts_more_than_the_share_of_dirty_bytes(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        partition = dirty(world, "t", min_cleanable_dirty_ratio="1", max_compaction_lag_ms="100000")
        await world.round(100_000)
        assert offsets(partition.log) == [0, 1, 2]
        await world.round(BACKOFF_MS)
        assert offsets(partition.log) == [1, 2]


async def test_max_compaction_lag_seals_segments(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        world.create("t", 1, **COMPACT, **{"max.compaction.lag.ms": "1000"})
        partition = world.partition("t")
        append(partition, "a")
        world.clock.advance(1001)
        append(partition, "a")
        assert [segment.base_offset for segment in partition.log.segments] == [0, 1]


async def test_the_end_of_a_transaction_makes_a_log_ready(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        world.create("t", 1, **COMPACT)
        partition = world.partition("t")
        producer_id, epoch = world.init()
        world.produce("t", 0, b"1", transactional_id="tx", producer_id=producer_id, epoch=epoch, sequence=0)
        append(partition, "k", "2")
        roll(partition)
        await world.round()
        assert offsets(partition.log) == [0, 1]
        world.end("tx", producer_id, epoch, committed=False)
        assert committed_values(partition) == [b"2"]
        await world.round()
        assert offsets(partition.log) == [1, 2]
        assert committed_values(partition) == [b"2"]


# -- starts and stops -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
async def test_the_cleaner_checkpoint_survives_a_restart(tmp_path: Path, clean: bool) -> None:
    async with opened(tmp_path) as world:
        dirty(world, "t")
        await world.round()
        await world.restart(clean=clean)
        partition = world.partition("t")
        assert offsets(partition.log) == [1, 2]
        with said("log compacted") as lines:
            await world.round()
        assert lines == []
        append(partition, "b")
        append(partition, "c")
        append(partition, "c")
        roll(partition)
        with said("log compacted") as lines:
            await world.round()
        assert [(line["from_offset"], line["to_offset"]) for line in lines] == [(3, 6)]


@pytest.mark.parametrize("text", ["", "0\n1\nt 0 99\n", "0\n7\n", "0\n1\nt 0 -5\n"])
async def test_a_checkpoint_that_cannot_be_right_costs_a_pass(tmp_path: Path, text: str) -> None:
    async with opened(tmp_path) as world:
        partition = dirty(world, "t")
        await world.node.replicas.close(clean=True)
        (tmp_path / CLEANER_OFFSETS).write_text(text)
        await world.restart(clean=True)
        partition = world.partition("t")
        await world.round()
        assert offsets(partition.log) == [1, 2]
        assert world.rows() == {("t", 0): 3}


async def test_a_stop_ends_a_pass_and_leaves_the_log_whole(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        dirty(world, "t")
        world.clock.advance(BACKOFF_MS)
        await world.restart(clean=True)
        partition = world.partition("t")
        assert offsets(partition.log) in ([0, 1, 2], [1, 2])
        assert world.names(partition, ".swap") == world.names(partition, ".cleaned") == []


class Held:
    """A replacement for ``Pass.rewrite`` that blocks a compaction pass until ``go_on`` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        original = Pass.rewrite

        def rewrite(work: Pass, group: Any) -> Any:
            self.reached.set()
            assert self.go_on.wait(HANG_S)
            return original(work, group)

        monkeypatch.setattr(Pass, "rewrite", rewrite)

    async def until_reached(self) -> None:
        await asyncio.to_thread(self.reached.wait, 10)


async def test_a_topic_that_is_deleted_takes_its_pass_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as world:
        dirty(world, "t")
        other = dirty(world, "other", min_cleanable_dirty_ratio="0.1")
        held = Held(monkeypatch)
        world.clock.advance(BACKOFF_MS)
        await held.until_reached()
        (lifecycle_lock,) = {world.compaction._at_work}
        assert lifecycle_lock is not None
        world.cluster.delete(lifecycle_lock.topic)
        with said("log cannot be compacted", "partition offline") as lines:
            held.go_on.set()
            await world.work()
        assert lines == []
        # The result of the old topic's pass does not appear in a new topic of the same name.
        again = dirty(world, lifecycle_lock.topic)
        await world.round()
        assert offsets(again.log) == [1, 2]
        survivor = other if lifecycle_lock is not other else again
        assert offsets(survivor.log) == [1, 2]
        assert (lifecycle_lock.topic, 0) in world.rows()


async def test_segments_that_retention_deletes_during_a_pass_stay_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as world:
        partition = dirty(world, "t", cleanup_policy="compact,delete")
        append(partition, "c")
        roll(partition)
        held = Held(monkeypatch)
        world.clock.advance(BACKOFF_MS)
        await held.until_reached()
        partition.log.drop_oldest(1, world.clock.now_ms())
        held.go_on.set()
        await world.work()
        assert (partition.log_start_offset, offsets(partition.log)) == (3, [3])
        assert world.names(partition, ".swap") == world.names(partition, ".cleaned") == []
        # The log is compacted again later.
        append(partition, "c")
        roll(partition)
        await world.round()
        assert offsets(partition.log) == [4]


# -- failures ---------------------------------------------------------------------------------------------------


async def test_a_record_above_max_decompressed_message_bytes_ends_the_compaction_of_its_log(
    tmp_path: Path,
) -> None:
    """The limit was lowered after the batch was appended. Only compressed batches have a limit, as in Apache Kafka 4.4.0."""
    async with opened(tmp_path) as world:
        plain, packed = dirty(world, "plain"), dirty(world, "packed")
        for partition, codec in ((plain, NONE), (packed, GZIP)):
            append(partition, "c", "v" * 200, compression=codec)
            roll(partition)
            partition.log.config = replace(partition.log.config, max_decompressed_message_bytes=100)
        with said("log cannot be compacted", "log compacted") as lines:
            for _ in range(3):
                await world.round()
        assert {(line["event"], line["topic"]) for line in lines} == {
            ("log cannot be compacted", "packed"),
            ("log compacted", "plain"),
        }
        assert offsets(packed.log) == [0, 1, 2, 3]
        assert packed.offline is None


async def test_a_broken_batch_spares_its_log_and_the_others(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        bad, good = dirty(world, "bad"), dirty(world, "good")
        path = bad.log.segments[0].path("log")
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        with said("log cannot be compacted", "log compacted") as lines:
            for _ in range(3):
                await world.round()
        assert [(line["event"], line["topic"]) for line in lines] == [
            ("log cannot be compacted", "bad"),
            ("log compacted", "good"),
        ]
        assert lines[0]["file"] == str(path)
        assert "CRC" in lines[0]["reason"]
        assert bad.offline is None
        # The damaged log is not compacted again before a restart.
        append(bad, "a")
        roll(bad)
        assert list(world.compaction._candidates) == []
        assert offsets(good.log) == [1, 2]


class Failing(files.System):
    """The file system calls, except that ``call`` ("open" or "rename") raises ENOSPC for paths that end with
    ``ending``."""

    def __init__(self, call: str, ending: str) -> None:
        self.call, self.ending = call, ending

    def open(self, path: Any, *more: Any) -> int:
        self._check("open", path)
        return super().open(path, *more)

    def rename(self, source: Any, target: Any) -> None:
        self._check("rename", target)
        super().rename(source, target)

    def _check(self, call: str, path: Any) -> None:
        if call == self.call and str(path).endswith(self.ending):
            raise OSError(28, "No space left on device", str(path))


@contextmanager
def failing(call: str, ending: str) -> Iterator[None]:
    before = files.use_system(Failing(call, ending))
    try:
        yield
    finally:
        files.use_system(before)


@pytest.mark.parametrize(
    ("call", "ending"),
    [
        ("open", ".log.cleaned"),
        ("open", ".index.cleaned"),
        ("rename", ".log.swap"),
        ("rename", ".index.swap"),
    ],
)
async def test_a_full_disk_ends_the_pass_and_nothing_else(tmp_path: Path, call: str, ending: str) -> None:
    async with opened(tmp_path) as world:
        partition = dirty(world, "t")
        with failing(call, ending), said("log cannot be compacted") as lines:
            await world.round()
        assert len(lines) == 1
        assert partition.offline is None
        assert offsets(partition.log) == [0, 1, 2]
        assert world.names(partition, ".swap") == world.names(partition, ".cleaned") == []
        append(partition, "a")
        await world.restart(clean=False)
        partition = world.partition("t")
        assert offsets(partition.log) == [0, 1, 2, 3]
        await world.round()
        assert offsets(partition.log) == [1, 2, 3]


@pytest.mark.parametrize("ending", [".log.deleted", ".index.deleted", ".log"])
async def test_a_replacement_that_fails_half_way_takes_the_log_offline(tmp_path: Path, ending: str) -> None:
    async with opened(tmp_path) as world:
        partition = dirty(world, "t")
        with failing("rename", ending), said("partition offline") as lines:
            await world.round()
        assert len(lines) == 1
        assert partition.offline is not None
        # The next start completes the replacement.
        await world.restart(clean=False)
        assert offsets(world.partition("t").log) == [1, 2]


# -- the coordinators' topics -----------------------------------------------------------------------------------


async def test_coordinators_load_the_same_state_after_a_compaction(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        world.create("t", 2)
        world.start()
        for number in range(30):
            tx = f"tx-{number % 4}"
            producer_id, epoch = world.init(tx)
            assert world.add(tx, producer_id, epoch, ("t", 0), version=3) == {("t", 0): 0}
            world.produce("t", 0, b"v", transactional_id=tx, producer_id=producer_id, epoch=epoch, sequence=0)
            group = f"g-{number % 3}"
            wrong = world.commit_offsets(
                tx, producer_id, epoch, {("t", 0): number, ("t", number % 2): 7}, group_id=group
            )
            assert wrong is ErrorCode.none
            if number < 27:
                assert world.end(tx, producer_id, epoch, committed=number % 3 != 1)[0] == 0
            if number % 10 == 9:
                for topic in (TRANSACTION_STATE, CONSUMER_OFFSETS):
                    for state in world.cluster.topics[topic].partitions:
                        roll(world.partition(topic, state.index))
        sizes = sum_of(world)
        transactions, groups = picture(world), world.node.groups.memory()
        for _ in range(3):
            await world.round()
        assert sum_of(world) < sizes / 2
        assert (picture(world), world.node.groups.memory()) == (transactions, groups)
        await world.restart(clean=False)
        world.start()
        assert (picture(world), world.node.groups.memory()) == (transactions, groups)


def picture(world: World) -> dict[str, Transaction]:
    """The transactions in memory, without their last epochs, which are not in the log."""
    shards = world.node.transactions.memory().values()
    return {name: known._replace(last_epoch=-1) for shard in shards for name, known in shard.items()}


def sum_of(world: World) -> int:
    return sum(
        world.partition(topic, state.index).log.size
        for topic in (TRANSACTION_STATE, CONSUMER_OFFSETS)
        for state in world.cluster.topics[topic].partitions
    )


# -- pace -------------------------------------------------------------------------------------------------------


def test_an_obsolete_pass_ends() -> None:
    pace = CleanerThrottler(1e9)
    pace(10)
    pace.abandoned = True
    with pytest.raises(Abandoned):
        pace(0)


def test_bytes_per_second_are_kept_to(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("broker.replicas.maintenance.cleaner_throttler.time.monotonic", lambda: now[0])

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr("broker.replicas.maintenance.cleaner_throttler.time.sleep", sleep)
    pace = CleanerThrottler(1000)
    for _ in range(100):
        pace(100)
        now[0] += 0.001
    assert 9.5 < now[0] < 11
    pace = CleanerThrottler(float("inf"))
    before = now[0]
    for _ in range(100):
        pace(10**9)
        now[0] += 0.001
    assert now[0] - before == pytest.approx(100 * (0.001 + REST_S))
