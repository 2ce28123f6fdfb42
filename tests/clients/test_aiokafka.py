"""aiokafka without transactions: idempotent producer, groups."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiokafka
import pytest

from tests.support.broker import Broker, StartBroker
from tests.support.clients import batches_of, tidy
from tests.support.deadlines import HANG_S

pytestmark = pytest.mark.client("aiokafka")


@pytest.fixture(autouse=True)
def tidied() -> Any:
    yield
    tidy()


@contextlib.asynccontextmanager
async def consumer(broker: Broker, **more: Any) -> AsyncIterator[aiokafka.AIOKafkaConsumer]:
    made = aiokafka.AIOKafkaConsumer(
        "orders",
        bootstrap_servers=broker.bootstrap,
        group_id="readers",
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
        fetch_max_wait_ms=50,
        **more,
    )
    async with made:
        yield made


@pytest.mark.feature("idempotence")
async def test_an_idempotent_producer_numbers_its_batches(start_broker: StartBroker):
    broker = start_broker(topics=["orders:1"])
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap, enable_idempotence=True
    ) as producer:
        for value in (b"a", b"b", b"c"):
            await producer.send_and_wait("orders", value)
    batches = batches_of(broker.data_dir, "orders")
    assert [batch.base_sequence for batch in batches] == [0, 1, 2]
    assert len({batch.producer_id for batch in batches}) == 1


@pytest.mark.feature("produce and read")
async def test_a_group_continues_at_its_committed_offset(start_broker: StartBroker):
    broker = start_broker(topics=["orders:1"])
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        for expected in (b"a", b"b"):
            await producer.send_and_wait("orders", expected)
            async with consumer(broker, enable_auto_commit=False) as reading:
                record = await asyncio.wait_for(reading.getone(), HANG_S)
                assert record.value == expected
                await reading.commit()


@pytest.mark.feature("classic group")
async def test_two_members_share_the_partitions_and_one_takes_over(start_broker: StartBroker):
    broker = start_broker(topics=["orders:4"])

    async def settled(*expected: tuple[aiokafka.AIOKafkaConsumer, int]) -> None:
        async with asyncio.timeout(HANG_S):
            while any(len(each.assignment()) != count for each, count in expected):
                await asyncio.gather(*(each.getmany(timeout_ms=20) for each, _ in expected))

    async with consumer(broker) as first:
        async with consumer(broker) as second:
            await settled((first, 2), (second, 2))
            assert len(first.assignment() | second.assignment()) == 4
        await settled((first, 4))


@pytest.mark.feature("transactions", "read_committed")
@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_a_transaction_as_a_context(start_broker: StartBroker, end: str):
    broker = start_broker(topics=["orders:1"])
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap, transactional_id="orders"
    ) as producer:
        with contextlib.suppress(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait("orders", b"one")
                if end == "abort":
                    raise ZeroDivisionError
        async with producer.transaction():
            await producer.send_and_wait("orders", b"two")
    async with consumer(broker, isolation_level="read_committed") as reading:
        record = await asyncio.wait_for(reading.getone(), HANG_S)
        assert record.value == (b"one" if end == "commit" else b"two")
