"""Timeouts of a week in no real time (scenarios B1 and B4), and clients that are not affected by the advanced clock."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import pytest

from tests.scenarios.conftest import NewProducer
from tests.support.clients import (
    COMPLETE_ABORT,
    ONGOING,
    PREPARE_ABORT,
    ConfluentProducer,
    Refused,
    eventually,
    statuses,
    transaction_log,
    values,
)
from tests.support.in_process import InProcess

WEEK_MS = 7 * 86_400_000


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., InProcess]]:
    with contextlib.ExitStack() as stack:

        def make(*arguments: str, **options: Any) -> InProcess:
            return stack.enter_context(InProcess(tmp_path, "--topic", "orders:1", *arguments, **options))

        yield make


def transact(producer: Any, value: str) -> None:
    producer.begin()
    producer.send("orders", [value])
    producer.commit()


def test_a_transactional_id_that_was_idle_for_a_week_expires(start, client: str, new_producer: NewProducer):
    """Scenario B1: a transactional id expires after Kafka's default of seven days."""
    broker = start()
    producer = new_producer(broker.bootstrap, "orders")
    producer.init()
    transact(producer, "before")
    broker.advance("6d")
    assert transaction_log(broker.bootstrap, "orders")[-1] is not None
    broker.advance("1d2h")
    assert transaction_log(broker.bootstrap, "orders")[-1] is None, "a tombstone"

    with pytest.raises(Refused):
        transact(producer, "from one that is forgotten")
    new_producer(broker.bootstrap, "orders").init()
    *_, latest = transaction_log(broker.bootstrap, "orders")
    assert latest is not None
    assert latest.last_update_ms > int(time.time() * 1000) + WEEK_MS, "the record has the virtual time"
    assert values(broker.bootstrap, "orders") == ["before"]


@pytest.mark.parametrize("moved_before", [[], ["retention"]], ids=["plain", "retention a week ahead"])
def test_a_transaction_that_is_open_for_too_long_is_aborted(
    start, client: str, new_producer: NewProducer, moved_before: list[str]
):
    """Scenario B4: a transaction is aborted after Kafka's default timeout of a minute."""
    broker = start()
    if moved_before:
        broker.advance("7d", moved_before)
    producer = new_producer(broker.bootstrap, "orders")
    producer.init()
    producer.begin()
    producer.send("orders", ["left open"])
    broker.advance("30s")  # real time that passes on a slow machine adds to it
    assert statuses(broker.bootstrap, "orders")[-1] == ONGOING
    broker.advance("45s")
    assert statuses(broker.bootstrap, "orders")[-2:] == [PREPARE_ABORT, COMPLETE_ABORT]
    with pytest.raises(Refused):
        producer.commit()
    assert values(broker.bootstrap, "orders") == []


async def test_a_week_passes_and_a_live_group_loses_neither_member_nor_record(start):
    broker = start(settings={"log.retention.hours": 24, "log.retention.check.interval.ms": 100})
    seen: list[bytes] = []

    async def read(consumer: Any) -> None:
        while True:
            seen.append((await consumer.getone()).value)

    consumer = aiokafka.AIOKafkaConsumer(
        "orders",
        bootstrap_servers=broker.bootstrap,
        group_id="readers",
        auto_offset_reset="earliest",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=200,
        isolation_level="read_committed",
    )
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="orders")
    async with producer, consumer:
        reading = asyncio.ensure_future(read(consumer))
        async with producer.transaction():
            await producer.send_and_wait("orders", b"before")
        await _until(lambda: seen == [b"before"])
        await consumer.commit()
        before = await _members(broker)
        for day in range(7):
            await asyncio.to_thread(broker.advance, "24h")
            async with producer.transaction():
                await producer.send_and_wait("orders", b"day %d" % day)
        await _until(lambda: len(seen) == 8)
        assert seen == [b"before", *(b"day %d" % day for day in range(7))]
        await consumer.commit()
        assert await _members(broker) == before, "the same member in the same generation"
        reading.cancel()
        await asyncio.wait([reading])
    everything = await asyncio.to_thread(values, broker.bootstrap, "orders")
    assert len(everything) == 8, "no record of the log was deleted"


async def _members(broker: InProcess) -> object:
    """The groups at their coordinators: generations, states, members."""

    async def look() -> object:
        return [
            each["groups"] for each in broker.cluster.first.node.groups.memory().values() if each["groups"]
        ]

    return await asyncio.to_thread(broker.run, look())


async def _until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(eventually, condition)


def test_markers_on_other_nodes_are_written_at_the_time_of_their_transaction_s_end(start):
    """After an advance by a week, the abort markers on all nodes have the time of the transaction's timeout.

    The timeout is a minute.
    """
    broker = start("--nodes", "3", "--topic", "many:12")
    producer = ConfluentProducer(broker.bootstrap, transactional_id="wide")
    producer.init()
    producer.begin()
    for partition in range(12):
        producer.send("many", ["left open"], partition=partition)
    broker.advance("7d")
    abort = next(
        each for each in transaction_log(broker.bootstrap, "wide") if each and each.status == PREPARE_ABORT
    )

    async def markers() -> list[int]:
        return [
            batch.max_timestamp
            for node in broker.cluster.running_nodes()
            for partition in node.replicas.opened()
            if partition.topic == "many" and partition.leader_id == node.node_id
            for batch in partition.log.batches()
            if batch.is_control
        ]

    late_ms = [at_ms - abort.last_update_ms for at_ms in broker.run(markers())]
    assert len(late_ms) == 12
    assert max(late_ms) < 5_000
    assert abort.last_update_ms - abort.start_ms < 75_000
    producer.close()
