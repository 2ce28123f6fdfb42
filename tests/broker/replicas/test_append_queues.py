"""Produce requests whose records are read over many turns of the event loop: ordering, and events in the meantime."""

from __future__ import annotations

import asyncio
import time
from struct import pack_into
from typing import Any

import pytest
from google_crc32c import value as crc32c

from broker.apis.produce import produce
from broker.loop.coroutines import Waiter, start_in_background
from broker.loop.life import NodeLife
from broker.loop.slices import Slices
from broker.replicas.append_queues import AppendQueues
from protocol.batch import RecordBatch, build_batch
from protocol.compression import ZSTD, compress
from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.record import encode_record
from protocol.record_walk import WALKED_PER_SLICE
from storage.validation import Invalid
from tests.support.clock import NOW_MS
from tests.support.coroutines import handled
from tests.support.world import OTHER_NODE_ID, World

OK = ErrorCode.none
MANY = 20 * WALKED_PER_SLICE


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    world.create("compacted", 2, **{"cleanup.policy": "compact"})
    world.create("plain")
    yield world
    world.abandon()


def large(value: bytes = b"v", **producer: Any) -> bytes:
    return build_batch([(NOW_MS, b"k", value)] * MANY, compression=ZSTD, **producer)


def small(value: bytes = b"v", **producer: Any) -> bytes:
    return build_batch([(NOW_MS, b"k", value)], **producer)


def ask(world: World, *batches: tuple[str, int, bytes], acks: int = 1) -> Any:
    topics = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=index, records=records)])
        for name, index, records in batches
    ]
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)
    return handled(produce, request, world.context(9))


def results(response: Any) -> list[tuple[int, int]]:
    return [
        (each.error_code, each.base_offset)
        for topic in response.responses
        for each in topic.partition_responses
    ]


async def outcome(answer: Any) -> list[tuple[int, int]]:
    return results(await answer if asyncio.isfuture(answer) else answer)


async def test_many_records_are_read_over_many_turns(world):
    answer = ask(world, ("compacted", 0, large()))
    assert asyncio.isfuture(answer)
    turns = 0
    while not answer.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= MANY // WALKED_PER_SLICE
    assert await outcome(answer) == [(OK, 0)]
    assert world.partition("compacted").log.log_end_offset == MANY


async def test_few_records_are_read_at_once(world):
    answer = ask(world, ("compacted", 0, small()), ("plain", 0, large()))
    assert results(answer) == [(OK, 0), (OK, 0)], (
        "the records of a topic that is not compacted need not be read"
    )


async def test_what_comes_later_does_not_overtake_on_the_same_partition(world):
    first = ask(world, ("compacted", 0, large()))
    second = ask(world, ("compacted", 0, small()))
    third = ask(world, ("compacted", 0, large()))
    elsewhere = ask(world, ("compacted", 1, small()), ("plain", 0, small()))
    assert results(elsewhere) == [(OK, 0), (OK, 0)]
    assert asyncio.isfuture(second)
    assert await outcome(third) == [(OK, MANY + 1)]
    assert await outcome(second) == [(OK, MANY)]
    assert await outcome(first) == [(OK, 0)]
    assert results(ask(world, ("compacted", 0, small()))) == [(OK, 2 * MANY + 1)], (
        "the queue is empty, so no wait"
    )


async def test_a_repeated_batch_behind_its_first_form_is_a_duplicate(world):
    """A batch that a client sends again while its first copy is still being read is a duplicate, with the first copy's base
    offset."""
    batch = large(producer_id=5, producer_epoch=0, base_sequence=0)
    following = small(producer_id=5, producer_epoch=0, base_sequence=MANY)
    answers = [ask(world, ("compacted", 0, each)) for each in (batch, batch, following)]
    assert [await outcome(each) for each in answers] == [[(OK, 0)], [(OK, 0)], [(OK, MANY)]]


async def test_a_part_of_a_request_that_needs_no_reading_is_answered_with_the_rest(world):
    answer = ask(world, ("plain", 0, small()), ("compacted", 0, large()), ("nowhere", 0, small()))
    assert world.partition("plain").log.log_end_offset == 1
    assert await outcome(answer) == [(OK, 0), (OK, 0), (ErrorCode.unknown_topic_or_partition, -1)]


async def test_a_marker_that_comes_in_between_is_looked_at_when_the_batch_is_appended(world):
    """A batch is refused if the marker of its transaction is written while the batch is being read. In Kafka, too,
    the marker may get the partition's lock before the batch."""
    world.init("other")  # so that the producer id below is not 0
    producer_id, epoch = world.init("tx")
    world.add("tx", producer_id, epoch, ("compacted", 0))
    batch = large(producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
    topic = TopicProduceData(name="compacted", partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=1000, topic_data=[topic])
    answer = handled(produce, request, world.context(11))
    assert asyncio.isfuture(answer)
    world.end("tx", producer_id, epoch, committed=False)
    [(error, base_offset)] = results(await answer)
    assert error in (ErrorCode.invalid_txn_state, ErrorCode.invalid_producer_epoch)
    assert base_offset == -1
    assert not [each for each in world.partition("compacted").log.batches() if not each.is_control]


async def test_a_partition_that_has_moved_meanwhile(world):
    answer = ask(world, ("compacted", 0, large()))
    world.cluster.move("compacted", 0, OTHER_NODE_ID)
    assert await outcome(answer) == [(ErrorCode.not_leader_or_follower, -1)]


async def test_a_topic_that_is_gone_meanwhile(world):
    answer = ask(world, ("compacted", 0, large()))
    world.cluster.delete("compacted")
    assert [error for error, _ in await outcome(answer)] == [ErrorCode.unknown_topic_or_partition]


async def test_a_dead_node_appends_nothing(world):
    """If the node dies while a thread decompresses a batch, the batch is not appended when the thread has finished."""
    partition = world.partition("compacted")
    answer = ask(world, ("compacted", 0, large()))
    world.node.life.end()
    await asyncio.get_running_loop().shutdown_default_executor()
    for _ in range(3 * MANY // WALKED_PER_SLICE):
        await asyncio.sleep(0)
    assert not answer.done()
    assert partition.log.log_end_offset == 0


async def test_acks_all_waits_for_both(world):
    answer = ask(world, ("compacted", 0, large()), acks=-1)
    assert await outcome(answer) == [(OK, 0)]


def bomb(count: int, record: bytes) -> bytes:
    body = compress(ZSTD, record * count)
    raw = bytearray(build_batch([(NOW_MS, b"k", b"v")])[:61]) + body
    pack_into(">i", raw, 8, len(raw) - 12)
    pack_into(">h", raw, 21, ZSTD)
    pack_into(">i", raw, 23, count - 1)
    pack_into(">i", raw, 57, count)
    pack_into(">I", raw, 17, crc32c(bytes(raw[21:])))
    return bytes(raw)


async def test_two_million_records_in_a_kilobyte(world):
    """A batch with too many records is refused early. Without this limit, a kilobyte of compressed records kept the
    event loop busy for 8.6 s."""
    batch = bomb(2_000_000, b"\x0c\0\0\0\0\1\0")
    assert len(batch) < 2_000
    began = time.process_time()
    assert results(ask(world, ("compacted", 0, batch))) == [(ErrorCode.message_too_large, -1)]
    assert time.process_time() - began < 1


async def test_a_hundred_megabytes_in_ten_kilobytes(world):
    batch = bomb(1, encode_record(0, 0, b"k", bytes(100 << 20)))
    assert len(batch) < 20_000
    assert await outcome(ask(world, ("compacted", 0, batch))) == [(OK, 0)]


class SlicesByHand(Slices):
    """A `Slices` that runs no work. Each call of ``run`` adds a waiter to ``ends``, and returns the result with
    which the test wakes that waiter."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[Waiter[Any]] = []

    async def run(self, steps: object) -> Any:
        self.ends.append(Waiter())
        return await self.ends[-1]


def test_a_batch_that_comes_while_the_queue_is_emptied_is_appended_too(world: World) -> None:
    slices = SlicesByHand()
    queues = AppendQueues(slices)
    partition, done = world.partition("plain"), Invalid(ErrorCode.none, "")
    steps = world.partition("compacted").check(RecordBatch.parse(large()))
    appended: list[str] = []

    async def append(name: str, checked: Any, *followers: tuple[str, Any]) -> None:
        await queues.turn(partition, checked)
        appended.append(name)
        for follower in followers:
            start_in_background(append(*follower), life)
        queues.leave(partition)

    life = NodeLife()
    start_in_background(append("first", steps, ("second", done), ("third", steps)), life)
    slices.ends[0].wake(done)
    assert not queues.is_free(partition)
    slices.ends[1].wake(done)
    assert appended == ["first", "second", "third"]
    assert queues.is_free(partition)


class Queue:
    """The queue of one partition, in which batch 0 is being read until `end_reading`. Later batches need no reading."""

    def __init__(self, world: World) -> None:
        self.takes_appends = True
        self.appended: list[int] = []
        self.queues = AppendQueues(slices := SlicesByHand(), alive=lambda: self.takes_appends)
        self.partition = world.partition("plain")
        self._slices, self._life, self._done = slices, NodeLife(), Invalid(ErrorCode.none, "")
        steps = world.partition("compacted").check(RecordBatch.parse(large()))
        start_in_background(self._append(0, steps), self._life)

    async def _append(self, number: int, checked: Any) -> None:
        await self.queues.turn(self.partition, checked)
        self.appended.append(number)
        self.queues.leave(self.partition)

    def add(self, number: int) -> None:
        start_in_background(self._append(number, self._done), self._life)

    def end_reading(self) -> None:
        self._slices.ends[0].wake(self._done)


def test_a_node_that_stops_appends_no_batch_of_a_queue(world: World) -> None:
    queue = Queue(world)
    queue.add(1)
    queue.takes_appends = False
    queue.end_reading()
    assert queue.appended == [0]


def test_many_batches_behind_one_are_appended_in_their_order_at_any_depth(world: World) -> None:
    queue = Queue(world)
    for number in range(1, 2000):
        queue.add(number)
    queue.end_reading()
    assert queue.appended == list(range(2000))
    assert queue.queues.is_free(queue.partition)
