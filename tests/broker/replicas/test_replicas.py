"""Many partitions of one node: work that is done for all partitions together, and work that idle partitions do not
cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.replicas.maintenance import idle_producers
from broker.replicas.maintenance.idle_producers import IdleProducers
from protocol.batch import RecordBatch, build_batch
from protocol.errors import ErrorCode
from storage.directory import RECOVERY_POINTS
from tests.support.disk import Disk
from tests.support.world import World

PARTITIONS = 5


def append(world: World, topic: str, index: int, sequence: int = 0) -> None:
    records = [(world.clock.now, None, b"value")]
    batch = RecordBatch.parse(build_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence))
    assert world.partition(topic, index).append(batch, required_acks=-1).error is ErrorCode.none


async def stop(world: World) -> bool:
    clean = await world.node.replicas.close(clean=True)
    world.directory.close(clean=clean)
    world.clock.forget_timers()
    return clean


def start(world: World) -> None:
    world.cluster.restart()
    world._open()


async def test_a_stop_changes_nothing_in_folders_without_writes(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    with disk.in_use():
        world = World(tmp_path)
        world.create("t", PARTITIONS)
        for index in range(PARTITIONS):
            append(world, "t", index)
        assert await stop(world)
        start(world)
        assert world.partition("t", 0).log_end_offset == 1
        append(world, "t", 1, 1)
        touched: set[str] = set()
        disk.before = lambda call, path: touched.update(Path(path).relative_to(tmp_path).parts[:1])
        assert await stop(world)
        disk.mend()
        assert {name for name in touched if name.startswith("t-")} == {"t-1"}
        start(world)
        ends = [world.partition("t", index).log_end_offset for index in range(PARTITIONS)]
        assert ends == [1, 2, 1, 1, 1]
        world.abandon()


async def test_a_sync_that_fails_at_the_stop_keeps_the_others_and_no_clean_mark(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    with disk.in_use():
        world = World(tmp_path)
        world.create("t", PARTITIONS)
        for index in range(PARTITIONS):
            append(world, "t", index)
        disk.fail("fsync", path="*/t-2/*.log")
        assert not await stop(world)
        disk.mend()
        assert world.node.replicas.is_offline("t", 2)
        points = world.directory.read_checkpoint(RECOVERY_POINTS)
        assert {key: offset for key, offset in points.items() if key[0] == "t"} == {
            ("t", index): 1 for index in (0, 1, 3, 4)
        }
        start(world)
        assert not world.directory.was_clean
        world.abandon()


async def test_idle_producers_of_many_partitions_are_dropped_in_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_producers, "EXPIRED_PER_TURN", 2)
    world = World(tmp_path, settings={"producer.id.expiration.ms": "1000"})
    world.create("t", PARTITIONS)
    for index in range(PARTITIONS):
        append(world, "t", index)

    def left() -> int:
        return sum(7 in each.log.producers.entries for each in world.node.replicas.opened())

    world.clock.now += 2000
    IdleProducers(world.node.config, world.clock, world.node.replicas.opened).expire()
    assert left() == PARTITIONS - 2
    world.clock.advance(0)
    assert left() == 0
    world.abandon()
