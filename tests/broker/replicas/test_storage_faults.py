"""A failing disk takes one partition offline. Only stored records are acknowledged, and other partitions are served."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from broker.replicas.partition import Partition
from protocol.batch import RecordBatch, build_batch
from protocol.errors import ErrorCode
from storage import files
from storage.files import StorageError
from storage.segment import Segment
from tests.support.deadlines import HANG_S
from tests.support.world import World


@contextlib.contextmanager
def opened(path: Path) -> Iterator[World]:
    world = World(path)
    try:
        yield world
    finally:
        world.abandon()


def a_batch() -> RecordBatch:
    return RecordBatch.parse(build_batch([(1, b"k", b"v")]))


def partition_of(world: World, name: str) -> Partition:
    partition = world.node.replicas.leader(name, 0)
    assert isinstance(partition, Partition)
    return partition


def test_a_failed_write_is_not_acknowledged_and_takes_one_partition_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as world:
        world.create("broken", 1)
        world.create("sound", 1)
        broken, sound = partition_of(world, "broken"), partition_of(world, "sound")
        assert broken.append(a_batch(), required_acks=-1).error is ErrorCode.none
        told: list[ErrorCode] = []
        broken.on_committed(5, told.append)

        def no_space(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(files.System, "pwritev", staticmethod(no_space))
            assert broken.append(a_batch(), required_acks=-1).error is ErrorCode.kafka_storage_error
        assert told == [ErrorCode.kafka_storage_error]
        assert world.node.replicas.leader("broken", 0) is ErrorCode.kafka_storage_error
        assert broken.log_end_offset == 1
        assert sound.append(a_batch(), required_acks=-1).error is ErrorCode.none


async def test_a_failed_fsync_acknowledges_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as world:
        world.create("synced", 1, **{"flush.messages": "1"})
        partition = partition_of(world, "synced")
        answered: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def fails(self: Segment) -> None:
            raise StorageError(self.log.path, "Input/output error")

        monkeypatch.setattr(Segment, "sync", fails)
        result = partition.append(a_batch(), required_acks=-1)
        assert result.error is ErrorCode.none
        assert partition.high_watermark == 0
        partition.on_committed(result.last_offset + 1, answered.set_result)
        assert await asyncio.wait_for(answered, HANG_S) is ErrorCode.kafka_storage_error
        assert partition.high_watermark == 0
        monkeypatch.undo()


async def test_what_is_on_the_disk_is_acknowledged_though_more_has_come_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = [threading.Event(), threading.Event()]
    begun = iter(turns)

    def waits(self: Segment) -> None:
        assert next(begun).wait(HANG_S)

    with opened(tmp_path) as world:
        world.create("synced", 1, **{"flush.messages": "1"})
        partition = partition_of(world, "synced")
        monkeypatch.setattr(Segment, "sync", waits)
        loop = asyncio.get_running_loop()
        answered: list[asyncio.Future[ErrorCode]] = [loop.create_future(), loop.create_future()]
        for future in answered:
            result = partition.append(a_batch(), required_acks=-1)
            partition.on_committed(result.last_offset + 1, future.set_result)
        turns[0].set()
        assert await asyncio.wait_for(answered[0], HANG_S) is ErrorCode.none
        assert (partition.high_watermark, partition.log_end_offset) == (1, 2)
        assert not answered[1].done()
        turns[1].set()
        assert await asyncio.wait_for(answered[1], HANG_S) is ErrorCode.none


def resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def test_a_sealed_segment_that_cannot_be_synced_takes_the_partition_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as world:
        world.create("rolled", 1)
        partition = partition_of(world, "rolled")
        partition.append(a_batch(), required_acks=-1)
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        partition.delayed.watch(partial(resolve, gone))

        def fails(self: Segment) -> None:
            raise StorageError(self.log.path, "Input/output error")

        monkeypatch.setattr(Segment, "sync", fails)
        partition.log.roll(world.clock.now_ms())
        await asyncio.wait_for(gone, HANG_S)
        assert partition.offline is not None
        assert partition.log.flushed_offset == 0
        monkeypatch.undo()
