"""Damaged batches in `__transaction_state` and `__consumer_offsets` are skipped and logged; all other batches are loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog

from broker.transactions.transaction import TransactionState
from protocol.errors import ErrorCode
from storage.directory import CLEAN_MARK
from tests.support.world import CONSUMER_OFFSETS, NODE_ID, TRANSACTION_STATE, World

TOPIC = "t"
OTHER_NODE_ID = 2
FIRST, SECOND, THIRD = "payments", "orders", "refunds"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A world in which one partition has the state of all transactional ids."""
    made = World(tmp_path, state_partitions=1)
    made.create(TOPIC)
    made.start()
    return made


def flip(world: World, topic: str, number: int, field: int, index: int = 0) -> tuple[str, int]:
    """Flip a bit at the byte position ``field`` of batch ``number``. Returns the segment's path and the batch's
    base offset."""
    log = world.partition(topic, index).log
    (segment,) = log.segments
    batches = list(segment.batches())
    position = sum(batch.size for batch in batches[: number % len(batches)]) + field
    path = segment.path("log")
    data = bytearray(path.read_bytes())
    data[position] ^= 4
    with path.open("r+b") as file:
        file.write(data)
    return str(path), batches[number].base_offset


def places(world: World) -> list[int]:
    """The position of each batch in the one partition of `__transaction_state`, in bytes."""
    sizes = [batch.size for batch in world.batches(TRANSACTION_STATE)]
    return [sum(sizes[:number]) for number in range(len(sizes))]


def moved(world: World, topic: str, index: int = 0) -> list[Mapping[str, Any]]:
    """Move the coordinator to another node and back, and return the log lines about damage in the coordinator's
    partition."""
    with structlog.testing.capture_logs() as lines:
        world.cluster.move(topic, index, OTHER_NODE_ID)
        world.cluster.move(topic, index, NODE_ID)
    return [line for line in lines if line["event"] == "damaged records skipped"]


LENGTH, MAGIC, CRC, CODEC, RECORDS_COUNT, IN_THE_VALUE = 8, 16, 18, 22, 57, 90


@pytest.mark.parametrize("field", [LENGTH, MAGIC, CRC, RECORDS_COUNT, IN_THE_VALUE])
def test_one_damaged_batch_loses_the_state_of_one_id(world: World, field: int) -> None:
    first, second, third = world.init(FIRST), world.init(SECOND), world.init(THIRD)
    path, offset = flip(world, TRANSACTION_STATE, 1, field)
    (line,) = moved(world, TRANSACTION_STATE)
    assert line["log_level"] == "error"
    assert (line["file"], line["offset"], line["next_offset"]) == (path, offset, offset + 1)
    assert line["transactional_ids"] == [SECOND]
    assert world.init(FIRST) == (first[0], first[1] + 1)
    assert world.init(THIRD) == (third[0], third[1] + 1)
    # The id of the damaged record is unknown, so it gets a new producer id.
    assert world.init(SECOND) != second


def test_an_unreadable_id_is_one_of_those_without_a_later_record(world: World) -> None:
    for name in (FIRST, SECOND, THIRD):
        world.init(name)
    world.init(SECOND)
    world.init(THIRD)
    position = places(world)[3]
    path, offset = flip(world, TRANSACTION_STATE, 3, CODEC)
    (line,) = moved(world, TRANSACTION_STATE)
    assert line["transactional_ids"] == [
        SECOND
    ]  # the id can be found in the bytes, though they cannot be decoded
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(bytes(100))
    (line,) = moved(world, TRANSACTION_STATE)
    assert (line["offset"], line["transactional_ids"]) == (offset, [SECOND, FIRST])
    world.init(SECOND)


def test_the_start_survives_a_damaged_state(world: World) -> None:
    for name in (FIRST, SECOND):
        world.init(name)
    world.partition(TRANSACTION_STATE).log.close(clean=True)
    flip(world, TRANSACTION_STATE, 0, IN_THE_VALUE)
    (world.path / CLEAN_MARK).touch()
    with structlog.testing.capture_logs() as lines:
        world.crash()
        world.start()
    assert [line["transactional_ids"] for line in lines if line["event"] == "damaged records skipped"] == [
        [FIRST]
    ]
    assert world.memory(SECOND) is not None


def test_a_lost_decision_leaves_a_transaction_that_ends(world: World) -> None:
    """If the PrepareCommit record is damaged and the CompleteCommit record after it is not, the new coordinator
    loads the transaction as CompleteCommit."""
    producer_id, epoch = world.init(FIRST)
    answer = world.produce(
        TOPIC, 0, b"v", transactional_id=FIRST, producer_id=producer_id, epoch=epoch, sequence=0
    )
    assert answer.error_code == ErrorCode.none
    assert world.end(FIRST, producer_id, epoch, committed=True)[0] == ErrorCode.none
    flip(world, TRANSACTION_STATE, -2, IN_THE_VALUE)
    (line,) = moved(world, TRANSACTION_STATE)
    assert line["transactional_ids"] == [FIRST]
    found = world.memory(FIRST)
    assert found is not None
    assert found.state is TransactionState.COMPLETE_COMMIT


def test_many_damaged_states_are_counted(world: World) -> None:
    for number in range(30):
        world.init(f"id-{number}")
    for number in range(0, 30, 2):
        flip(world, TRANSACTION_STATE, number, IN_THE_VALUE)
    with structlog.testing.capture_logs() as lines:
        world.cluster.move(TRANSACTION_STATE, 0, OTHER_NODE_ID)
        world.cluster.move(TRANSACTION_STATE, 0, NODE_ID)
    events = [line["event"] for line in lines]
    assert events.count("damaged records skipped") == 10
    assert [line["stretches"] for line in lines if line["event"] == "more damaged records skipped"] == [5]


def commit(world: World, transactional_id: str, offset: int, *, group: str, committed: bool) -> None:
    producer_id, epoch = world.init(transactional_id)
    error = world.commit_offsets(transactional_id, producer_id, epoch, {(TOPIC, 0): offset}, group_id=group)
    assert error is ErrorCode.none
    assert world.end(transactional_id, producer_id, epoch, committed=committed)[0] == ErrorCode.none


def committed_offset(world: World, group: str) -> int | None:
    index = world.node.groups.partition_for(group)
    found = world.node.groups._runtime._shards[index].state.offsets.find(group, TOPIC, 0, require_stable=True)
    assert found.error is ErrorCode.none
    return None if found.committed is None else found.committed.offset


@pytest.mark.parametrize("field", [LENGTH, CRC, IN_THE_VALUE])
def test_one_damaged_batch_loses_one_commit(world: World, field: int) -> None:
    index = world.node.groups.partition_for("g")
    commit(world, FIRST, 5, group="g", committed=True)
    commit(world, FIRST, 6, group="g", committed=True)
    path, offset = flip(world, CONSUMER_OFFSETS, 2, field, index)
    (line,) = moved(world, CONSUMER_OFFSETS, index)
    assert (line["file"], line["offset"], line["groups"]) == (path, offset, ["g"])
    assert committed_offset(world, "g") == 5
    commit(world, FIRST, 7, group="g", committed=True)
    assert committed_offset(world, "g") == 7


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("field", [MAGIC, CRC])
def test_a_damaged_marker_leaves_no_group_unstable(world: World, field: int, committed: bool) -> None:
    """The offsets of a transaction become stable although its marker is damaged: the producer state and the index of aborted
    transactions show how the transaction ended."""
    index = world.node.groups.partition_for("g")
    commit(world, FIRST, 5, group="g", committed=True)
    commit(world, FIRST, 6, group="g", committed=committed)
    flip(world, CONSUMER_OFFSETS, 3, field, index)
    (line,) = moved(world, CONSUMER_OFFSETS, index)
    assert line["groups"] == ["g"]
    assert committed_offset(world, "g") == (6 if committed else 5)
