"""The summaries and the event stream that the control page uses, with transactions of a real producer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiokafka
import pytest

from tests.lab.control.conftest import Caller, OpenControl, until
from tests.support.deadlines import HANG_S


@asynccontextmanager
async def producing(caller: Caller, transactional_id: str | None = None) -> AsyncIterator[Any]:
    bootstrap = (await caller.get("/v1/cluster"))["bootstrap_servers"]
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=transactional_id
    ) as producer:
        yield producer


async def produce(producer: Any, *values: bytes) -> None:
    for value in values:
        await producer.send_and_wait("orders", value, partition=0)


async def batches(caller: Caller) -> list[Any]:
    return (await caller.get("/v1/views/batches/orders/0"))["batches"]


class Watching:
    """A reader of the events of one ``GET /v1/watch`` stream."""

    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        self._lines = lines

    async def next(self, name: str) -> Any:
        """Wait for the next event of this name, and return its data."""
        found = ""
        async with asyncio.timeout(HANG_S):
            async for line in self._lines:
                if line.startswith(b"event: "):
                    found = line[7:].strip().decode()
                elif line.startswith(b"data: ") and found == name:
                    return json.loads(line[6:])
        raise AssertionError("the stream ended")


@asynccontextmanager
async def watching(caller: Caller, query: str) -> AsyncIterator[Watching]:
    async with caller.session.get(f"{caller.url}/v1/watch?{query}") as answer:
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "text/event-stream"
        yield Watching(aiter(answer.content))


async def test_an_open_transaction_is_shown_with_the_readers_that_it_holds_up(caller: Caller) -> None:
    async with producing(caller, "payments") as producer, producing(caller) as plain:
        await producer.begin_transaction()
        await produce(producer, b"1", b"2")
        await produce(plain, b"3")
        summary = await caller.get("/v1/views/transactions")
        assert (summary["total"], summary["by_state"]) == (1, {"Ongoing": 1})
        [shown] = summary["transactions"]
        assert (shown["transactional_id"], shown["partitions"]) == ("payments", ["orders-0"])
        assert shown["holds_up"] == [{"topic": "orders", "partition": 0, "first_offset": 0, "records": 3}]
        [partition, *_] = (await caller.get("/v1/views/partitions?topic=orders"))["partitions"]
        assert (partition["last_stable"], partition["high_watermark"]) == (0, 3)
        assert [each["transactional_id"] for each in partition["open"]] == ["payments"]
        await producer.commit_transaction()
        [shown] = (await caller.get("/v1/views/transactions"))["transactions"]
        assert (shown["state"], shown["open_ms"], shown["holds_up"]) == ("CompleteCommit", None, [])


async def test_only_the_first_open_transaction_of_a_partition_holds_readers_up(caller: Caller) -> None:
    async with producing(caller, "first") as first, producing(caller, "second") as second:
        for producer in (first, second):
            await producer.begin_transaction()
            await produce(producer, b"value")
        shown = (await caller.get("/v1/views/transactions"))["transactions"]
        held_up = {each["transactional_id"]: each["holds_up"][0]["records"] for each in shown}
        assert held_up == {"first": 2, "second": 0}


async def test_batches_are_shown_with_their_producer_and_the_markers_behind_them(caller: Caller) -> None:
    async with producing(caller, "payments") as producer:
        for end in (producer.commit_transaction, producer.abort_transaction):
            await producer.begin_transaction()
            await produce(producer, b"value")
            await end()
    async with producing(caller) as plain:
        await produce(plain, b"value")
    found = await batches(caller)
    assert [each[4] for each in found] == ["transactional", "commit", "transactional", "abort", "data"]
    assert [(each[0], each[1], each[2]) for each in found] == [(at, at, 1) for at in range(5)]
    assert len({each[5] for each in found[:4]}) == 1


async def test_where_readers_wait_is_shown_however_much_was_written_since(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.views.batches.BATCHES_MAX", 3)
    monkeypatch.setattr("lab.views.batches.TAIL_OFFSETS", (3,))
    monkeypatch.setattr("lab.views.batches.HELD_BATCHES_MAX", 2)
    async with producing(caller) as plain, producing(caller, "payments") as producer:
        await produce(plain, b"before")
        await producer.begin_transaction()
        await produce(producer, b"held")
        await produce(plain, *(b"%d" % number for number in range(9)))
        piece = await caller.get("/v1/views/batches/orders/0")
        assert [each[0] for each in piece["batches"]] == [8, 9, 10]
        assert [(each[0], each[4]) for each in piece["held"]] == [(1, "transactional"), (2, "data")]
        await producer.commit_transaction()
        assert (await caller.get("/v1/views/batches/orders/0"))["held"] == []


async def test_a_large_batch_is_shown_by_its_header(caller: Caller) -> None:
    async with producing(caller, "payments") as producer:
        async with producer.transaction():
            await produce(producer, b"x" * 500_000)
        async with producer.transaction():
            await produce(producer, b"y" * 10_000, b"z")
    found = await batches(caller)
    assert [each[4] for each in found] == [
        "transactional", "commit", "transactional", "transactional", "commit",
    ]  # fmt: skip
    assert found[0][3] > 500_000


async def test_a_transaction_that_no_coordinator_knows_hangs(open_control: OpenControl) -> None:
    caller = await open_control()
    async with producing(caller, "payments") as producer:
        await producer.begin_transaction()
        await produce(producer, b"value")
    node = caller.control.cluster.running_nodes()[0]
    for shard in node.transactions._runtime.all():  # lose the coordinator's state
        shard.entries.clear()
    summary = await caller.get("/v1/views/transactions")
    assert summary["by_state"] == {"Hanging": 1}
    [shown] = summary["transactions"]
    assert (shown["state"], shown["coordinator"], shown["partitions"]) == ("Hanging", None, ["orders-0"])


async def test_a_group_is_shown_with_its_lag(caller: Caller) -> None:
    bootstrap = (await caller.get("/v1/cluster"))["bootstrap_servers"]
    async with producing(caller) as producer:
        await produce(producer, b"1", b"2", b"3")
    async with aiokafka.AIOKafkaConsumer(
        "orders", bootstrap_servers=bootstrap, group_id="workers", auto_offset_reset="earliest"
    ) as consumer:
        message = await consumer.getone()
        await consumer.commit({aiokafka.TopicPartition("orders", 0): message.offset + 1})
        [group] = (await caller.get("/v1/views/groups"))["groups"]
    assert (group["group"], group["type"], group["state"], group["members"]) == (
        "workers", "classic", "Stable", 1,
    )  # fmt: skip
    assert group["lag"] == 2
    assert group["offsets"] == [
        {"topic": "orders", "partition": 0, "committed": 1, "lag": 2, "pending": False}
    ]


async def test_the_stream_sends_a_summary_when_it_has_changed(caller: Caller) -> None:
    async with watching(caller, "show=faults,partitions&topic=orders&every_ms=100") as stream:
        assert await stream.next("faults") == {"faults": []}
        assert (await stream.next("partitions"))["total"] == 4
        await caller.post("/v1/faults", {"rule": "EndTxn -> drop"})
        assert [each["text"] for each in (await stream.next("faults"))["faults"]] == ["EndTxn -> drop"]
        assert caller.control.watchers.now == 1


async def test_the_stream_sends_only_the_batches_that_are_new(caller: Caller) -> None:
    async with producing(caller, "payments") as producer:
        await producer.begin_transaction()
        await produce(producer, b"value")
        async with watching(caller, "show=&batches=orders-0&every_ms=100") as stream:
            first = await stream.next("batches")
            assert (first["restarted"], len(first["batches"])) == (True, 1)
            await producer.commit_transaction()
            second = await stream.next("batches")
            assert second["restarted"] is False
            assert [each[4] for each in second["batches"]] == ["commit"]
            assert second["last_stable"] == 2


async def test_the_stream_begins_again_where_the_log_was_truncated(caller: Caller) -> None:
    async with (
        producing(caller) as producer,
        watching(caller, "show=&batches=orders-0&every_ms=100") as stream,
    ):
        await stream.next("batches")
        await produce(producer, b"1", b"2")
        await stream.next("batches")
        await caller.post("/v1/reset")
        again = await stream.next("batches")
        assert (again["restarted"], again["batches"], again["log_end"]) == (True, [], 0)


async def test_a_stream_that_its_viewer_leaves_is_over(caller: Caller) -> None:
    async with watching(caller, "every_ms=100") as stream:
        await stream.next("cluster")
    await until(lambda: caller.control.watchers.now == 0)


async def test_what_cannot_be_watched_is_refused(caller: Caller) -> None:
    for query, word in (("show=weather", "weather"), ("batches=orders", "orders"), ("batches=x-y", "x-y")):
        status, answer = await caller("GET", f"/v1/watch?{query}")
        assert status == 400
        assert word in answer["error"]


async def test_too_many_viewers_are_refused(caller: Caller) -> None:
    caller.control.watchers.now = 8
    status, answer = await caller("GET", "/v1/watch")
    assert (status, answer["error"]) == (
        429,
        "8 callers watch already: wait for one of them to disconnect, or close a web page",
    )
