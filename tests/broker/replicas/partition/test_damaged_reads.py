"""A consumer that reads a damaged batch gets an error or detects the damage itself, and the broker logs one line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog

from broker.replicas.partition import Partition
from protocol.errors import ErrorCode
from storage.reading import TAIL_BATCHES_REMEMBERED
from storage.steps import run
from tests.support.world import World

TOPIC = "t"
VALUES = 12
MAGIC, CRC, IN_THE_RECORD = 16, 18, 66


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    world = World(tmp_path)
    world.create(TOPIC)
    for number in range(VALUES):
        world.produce(TOPIC, 0, b"value %d" % number)
    world.partition(TOPIC).log.close(clean=True)
    world.crash()
    return world.partition(TOPIC)


def write(partition: Partition, number: int, field: int, content: bytes) -> None:
    (segment,) = partition.log.segments
    position = sum(batch.size for batch in list(segment.batches())[:number]) + field
    with segment.path("log").open("r+b") as file:
        file.seek(position)
        file.write(content)


def fetch(partition: Partition, offset: int) -> ErrorCode:
    return partition.read(offset, 1 << 20, read_committed=False, whole_first_batch=True).error


def lines_of(lines: list[Any]) -> list[Mapping[str, Any]]:
    return [line for line in lines if line["event"] == "damaged batch read"]


@pytest.mark.parametrize("length", [b"\0\0\0\1", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"])
def test_an_impossible_length_is_corrupt_message_and_no_end_of_the_partition(
    partition: Partition, length: bytes
) -> None:
    write(partition, 5, 8, length)
    with structlog.testing.capture_logs() as lines:
        assert [fetch(partition, 7) for _ in range(3)] == [ErrorCode.corrupt_message] * 3
        assert run(partition.offset_for_timestamp(0, read_committed=False)).error is ErrorCode.none
        assert partition.readable_bytes(7, read_committed=False)[1]
    (line,) = lines_of(lines)
    assert line["file"].endswith("00000000000000000000.log")
    assert partition.offline is None
    assert fetch(partition, 0) is ErrorCode.none


@pytest.mark.parametrize("field", [MAGIC, CRC, IN_THE_RECORD])
def test_a_reader_that_cannot_get_past_a_batch_is_told_of_in_one_line(
    partition: Partition, field: int
) -> None:
    write(partition, 5, field, b"\x7e")
    with structlog.testing.capture_logs() as lines:
        assert fetch(partition, 0) is ErrorCode.none
        assert lines_of(lines) == []
        for _ in range(4):
            assert fetch(partition, 5) is ErrorCode.none  # like Kafka, the broker checks nothing here
    (line,) = lines_of(lines)
    assert (line["topic"], line["partition"], line["offset"]) == (TOPIC, 0, 5)


def test_readers_that_come_again_cost_no_line(partition: Partition) -> None:
    with structlog.testing.capture_logs() as lines:
        for offset in (0, 0, 0, 3, 3, 0):
            assert fetch(partition, offset) is ErrorCode.none
    assert lines_of(lines) == []


def test_a_new_batch_that_is_cut_short_on_the_disk_is_told_of(tmp_path: Path) -> None:
    """Three reads of a batch whose length on disk is damaged log one line, even if the log has the batch's
    position in memory and so reads no header."""
    world = World(tmp_path)
    world.create(TOPIC)
    for value in (b"a", b"b"):
        world.produce(TOPIC, 0, value)
    partition = world.partition(TOPIC)
    write(partition, 1, 8, b"\x7f\xff\xff\xff")
    with structlog.testing.capture_logs() as lines:
        assert [fetch(partition, 1) for _ in range(3)] == [ErrorCode.none] * 3
    assert len(lines_of(lines)) == 1


def test_damage_in_front_of_an_open_transaction_costs_no_other_partition_its_fetch(tmp_path: Path) -> None:
    """A damaged batch just below the log start does not fail a read_committed read at the log start. The last stable offset
    is the log start too, so the read needs no position in the file. A read_uncommitted read gets CORRUPT_MESSAGE."""
    world = World(tmp_path)
    world.create(TOPIC)
    world.start()
    producer_id, epoch = world.init()
    for number in range(3 + TAIL_BATCHES_REMEMBERED):
        more: Any = {"transactional_id": "tx", "producer_id": producer_id, "epoch": epoch, "version": 12}
        assert world.produce(TOPIC, 0, b"v", sequence=number, **more).error_code == ErrorCode.none
    partition = world.partition(TOPIC)
    assert partition.delete_records(2)[0] is ErrorCode.none
    assert (partition.log_start_offset, partition.last_stable_offset) == (2, 2)
    write(partition, 1, 8, b"\x7f\xff\xff\xff")
    answer = partition.read(2, 1 << 20, read_committed=True, whole_first_batch=True)
    assert (answer.error, answer.last_stable_offset, answer.records) == (ErrorCode.none, 2, b"")
    assert partition.readable_bytes(2, read_committed=True) == (0, False)
    assert fetch(partition, 2) is ErrorCode.corrupt_message
