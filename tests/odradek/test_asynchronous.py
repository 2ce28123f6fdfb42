"""The calls for coroutines: they do not block the event loop, and cancelling a call disconnects.

Their types match those of the blocking calls.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Iterator

import pytest

import odradek
from tests.support.clients import ConfluentProducer
from tests.support.deadlines import HANG_S


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as broker:
        yield broker


def callers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "odradek call"]


async def test_the_loop_goes_on_while_a_rule_is_waited_for(broker: odradek.Broker) -> None:
    with broker.faults.add("Metadata -> delay 1ms") as rule:
        waiting = asyncio.create_task(rule.wait_async(2))
        await asyncio.sleep(0)
        assert callers()
        for _ in range(2):
            await asyncio.to_thread(ask_for_metadata, broker)
        assert await waiting is rule
        assert rule.hits >= 2


def ask_for_metadata(broker: odradek.Broker) -> None:
    from confluent_kafka.admin import AdminClient

    AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=HANG_S)


async def test_an_async_call_raises_the_error_of_the_blocking_call(broker: odradek.Broker) -> None:
    with broker.faults.add("EndTxn -> drop") as rule:
        with pytest.raises(odradek.FaultNotHit, match=r"0 of 1 hits after 0 s \(0 matched\)$"):
            await rule.wait_async(timeout_s=0)
        with pytest.raises(odradek.FaultNotHit, match=r"in a coroutine, use `await rule.wait_async\(...\)`$"):
            rule.wait(timeout_s=0)
    with pytest.raises(odradek.TransactionNotReached, match="unknown"):
        await broker.transactions.wait_async("unknown", timeout_s=0)
    with pytest.raises(odradek.NotFound):
        await broker.records_async("gone")


async def test_a_cancelled_call_disconnects_and_its_thread_ends(broker: odradek.Broker) -> None:
    with broker.faults.add("EndTxn -> drop") as rule:
        waiting = asyncio.create_task(rule.wait_async(timeout_s=HANG_S))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        for each in callers():
            await asyncio.to_thread(each.join, HANG_S / 2)
        assert not callers()


async def test_all_calls_that_wait_have_an_async_form(broker: odradek.Broker) -> None:
    topic = broker.create_topic()
    await broker.assert_exactly_once_async(topic, [])
    await broker.assert_no_open_transactions_async()
    with pytest.raises(odradek.AssertionFailed):
        await broker.assert_committed_async("unknown")
    await broker.clock.advance_async("1s")
    with broker.snapshot() as snapshot:
        await snapshot.restore_async()
    await broker.nodes[1].kill_async()
    await broker.nodes[1].start_async()
    await broker.nodes[1].stop_async()
    assert await broker.reset_async() is broker
    assert broker.nodes[1].state == "running"
    await odradek.connect(broker.control_url).reset_async()
    name = type(broker).reset_async.__name__
    assert (name, type(broker).reset_async.__doc__) == (
        "reset_async",
        "``reset`` as a coroutine: the event loop keeps running while it waits.",
    )


async def test_a_warning_names_the_line_that_awaits(broker: odradek.Broker) -> None:
    topic = broker.create_topic()
    producer = ConfluentProducer(broker.bootstrap_servers, transactional_id=topic)
    producer.init()
    producer.begin()
    producer.send(topic, ["open"])
    other = ConfluentProducer(broker.bootstrap_servers, idempotent=False)
    other.send(topic, ["behind it"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert await broker.records_async(topic) == []
        assert broker.records(topic) == []
    assert [each.category for each in caught] == [odradek.RecordsHiddenWarning] * 2
    assert [each.filename for each in caught] == [__file__] * 2
    assert str(caught[0].message).startswith(
        f"{topic}: 1 decided record is behind the last stable offset, where read_committed consumers do not get them"
        f"\n  Readers with read_committed of {topic}-0 stop at offset 0: {topic} "
    )
    producer.abort()
    producer.close()
    other.close()
