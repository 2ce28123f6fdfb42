"""How much of the logs a timeline reads, and that the reading delays no request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from unittest.mock import patch

import aiokafka
import pytest

from lab.trace import reading
from lab.trace.reading import ScanLimits, timeline
from protocol.batch import RecordBatch
from storage.files import StorageError
from storage.log import Log
from tests.lab.trace.conftest import StartTraced, TracedBroker

SEGMENT_BYTES = 1024 * 1024
FILLER = b"x" * 900_000


@pytest.fixture
async def broker(start_traced: StartTraced) -> TracedBroker:
    return await start_traced("--topic", f"orders:1:segment.bytes={SEGMENT_BYTES}")


async def transact(broker: TracedBroker, transactional_id: str) -> None:
    async with broker.producer(transactional_id) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"value", partition=0)
        await producer.commit_transaction()


async def fill(broker: TracedBroker, count: int) -> None:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()
    for _ in range(count):
        await producer.send_and_wait("orders", FILLER, partition=0)
    await producer.stop()


async def scan(broker: TracedBroker, transactional_id: str, bytes_max: int) -> tuple[list[str], bool, int]:
    """Read a timeline. Returns the kinds of its events, whether the whole topic orders was read, and the first offset that
    was read."""
    found = await timeline(
        broker.cluster.running_nodes(), transactional_id, limits=ScanLimits(bytes_max=bytes_max)
    )
    told = found.to_json()
    (orders,) = (each for each in told["scanned"] if each["topic"] == "orders")
    return [event["kind"] for event in told["events"]], orders["is_whole"], orders["from_offset"]


WHOLE = ["state", "state", "batch", "state", "marker", "state"]


async def test_a_log_within_the_limit_is_read_as_a_whole(broker: TracedBroker) -> None:
    await transact(broker, "early")
    await fill(broker, 3)
    assert await scan(broker, "early", 64 * SEGMENT_BYTES) == (WHOLE, True, 0)


async def test_of_a_longer_one_the_time_index_says_where_to_begin(broker: TracedBroker) -> None:
    await fill(broker, 6)
    await transact(broker, "late")
    kinds, is_whole, start = await scan(broker, "late", 2 * SEGMENT_BYTES)
    assert (kinds, is_whole) == (WHOLE, True)
    assert start == 6


async def test_what_is_too_far_from_the_end_is_not_read_and_that_is_said(broker: TracedBroker) -> None:
    await transact(broker, "early")
    await fill(broker, 6)
    kinds, is_whole, start = await scan(broker, "early", 2 * SEGMENT_BYTES)
    assert (kinds, is_whole) == (["state"] * 4, False)
    assert start > 2


async def test_others_have_their_turn_while_a_log_is_read(broker: TracedBroker) -> None:
    for _ in range(10):
        await transact(broker, "tx")
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count_turns())
    with patch.object(reading, "SLICE_BATCHES", 3):
        told = (await timeline(broker.cluster.running_nodes(), "tx")).to_json()
    counting.cancel()
    assert len(told["transactions"]) == 10
    assert turns >= 10 * 6 // 3


async def test_a_log_that_goes_away_meanwhile_is_told_as_read_in_part(broker: TracedBroker) -> None:
    for _ in range(3):
        await transact(broker, "tx")
    whole = Log.batches
    asked = 0

    def batches(log: Log, offset: int | None = None) -> Iterator[RecordBatch]:
        nonlocal asked
        if log.directory.name == "orders-0":
            asked += 1
            if asked == 3:
                raise StorageError(str(log.directory), "the segment was deleted")
        return whole(log, offset)

    with patch.object(reading, "SLICE_BATCHES", 1), patch.object(Log, "batches", batches):
        told = (await timeline(broker.cluster.running_nodes(), "tx")).to_json()
    assert [each["verdict"] for each in told["transactions"]] == ["committed"] * 3
    assert [each["is_whole"] for each in told["scanned"]] == [True, False]
    assert [event["offset"] for event in told["events"] if event["kind"] in ("batch", "marker")] == [0, 1]
