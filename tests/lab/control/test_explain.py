"""`GET /v1/explain`: its parameters and its response. tests/lab/explain/test_staged.py has the explanations of real
problems."""

from __future__ import annotations

import asyncio
import re
from typing import Final

import aiokafka
import pytest

from lab.views.explaining import cluster as explained_cluster
from lab.views.explaining.transactions import all_serve
from tests.lab.control.conftest import Caller

LOOKS: Final = 20
BEHIND: Final = re.compile(
    r"orders-0: (?P<offsets>\d+) offsets behind the last stable offset (?P<end>\d+): (?P<content>.+)\."
)


async def test_a_cluster_without_a_trouble_says_so(caller: Caller) -> None:
    [found] = (await caller.get("/v1/explain"))["explanations"]
    assert found["cause"] == "nothing"
    assert found["lines"]


async def test_a_topic_is_explained_partition_by_partition(caller: Caller) -> None:
    found = (await caller.get("/v1/explain?topic=orders"))["explanations"]
    assert [each["subject"] for each in found] == ["orders-0", "orders-1", "orders-2", "orders-3"]
    [one] = (await caller.get("/v1/explain?topic=orders&partition=2"))["explanations"]
    assert one == found[2]


async def test_an_open_transaction_is_the_cause_by_its_topic_and_by_its_id(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.explain.cluster.YOUNG_MS", 0)
    bootstrap = (await caller.get("/v1/cluster"))["bootstrap_servers"]
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="etl-1")
    async with producer:
        async with producer.transaction():
            await producer.send_and_wait("orders", b"1", partition=0)
            for query in ("?topic=orders&partition=0", "?transactional_id=etl-1"):
                first, *_ = (await caller.get(f"/v1/explain{query}"))["explanations"]
                assert first["cause"] == "open-transaction", query
                assert "etl-1 (producer 0 epoch 0) has an open transaction" in first["lines"][0]
        [after] = (await caller.get("/v1/explain?transactional_id=etl-1"))["explanations"]
        assert after["cause"] == "nothing"
        # A question about one transactional id loads only the partition of this id.
        assert all_serve(caller.control.cluster)


async def test_an_id_and_a_group_that_were_never_used_are_unknown(caller: Caller) -> None:
    [group] = (await caller.get("/v1/explain?group=readers"))["explanations"]
    assert (group["subject"], group["cause"]) == ("group readers", "unknown-group")
    [of_id] = (await caller.get("/v1/explain?transactional_id=etl-1"))["explanations"]
    assert (of_id["subject"], of_id["cause"]) == ("transactional id etl-1", "unknown-id")


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("topic=order", 404, "there is no topic order; did you mean orders?"),
        ("topic=weather", 404, "there is no topic weather"),
        ("topic=orders&partition=9", 404, "orders has no partition 9: the last is 3"),
        ("topic=orders&group=readers", 400, "give only one of topic, group and transactional_id"),
        ("partition=0", 400, "the parameter partition needs the parameter topic"),
    ],
)
async def test_what_cannot_be_explained_is_refused(
    caller: Caller, query: str, status: int, words: str
) -> None:
    assert await caller("GET", f"/v1/explain?{query}") == (status, {"error": words})


async def test_no_line_contradicts_another_while_a_client_writes(caller: Caller) -> None:
    """The lines of one response agree although a client keeps writing batches and markers: a group's lag and the records in
    the lag are from one moment."""
    bootstrap = (await caller.get("/v1/cluster"))["bootstrap_servers"]
    place = aiokafka.TopicPartition("orders", 0)
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id="readers")
    async with consumer:
        consumer.assign([place])
        await consumer.commit({place: 0})
    looks: list[tuple[int, int, int]] = []

    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="etl-1")
        async with producer:
            while len(looks) < LOOKS:
                await producer.begin_transaction()
                await asyncio.gather(*[producer.send("orders", b"1", partition=0) for _ in range(20)])
                await (producer.commit_transaction() if len(looks) % 3 else producer.abort_transaction())

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        while len(looks) < LOOKS:
            [found] = (await caller.get("/v1/explain?group=readers"))["explanations"]
            lag = next(map(BEHIND.match, filter(BEHIND.match, found["lines"])), None)
            if lag is not None:
                content = sum(map(int, re.findall(r"(\d+) (?:aborted )?(?:record|marker)", lag["content"])))
                looks.append((int(lag["offsets"]), int(lag["end"]), content))
    assert all(offsets == end == content for offsets, end, content in looks), looks
    assert looks[-1] > looks[0]


async def test_without_any_node_that_runs_the_nodes_are_the_cause(caller: Caller) -> None:
    """Explanations name the nodes as the cause if no node runs: after a kill, and while the next process of the killed node
    has not opened its logs yet."""
    bootstrap = (await caller.get("/v1/cluster"))["bootstrap_servers"]
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="etl-1")
    async with producer, producer.transaction():
        await producer.send_and_wait("orders", b"1", partition=0)
    await caller.post("/v1/nodes/1/kill")
    cluster = caller.control.cluster
    for runtime in (cluster.nodes[1], cluster._runtime(cluster.nodes[1].config)):
        cluster.nodes[1] = runtime
        for query, cause in (
            ("?topic=orders&partition=0", "no-leader"),
            ("?transactional_id=etl-1", "coordinator-not-available"),
            ("?group=readers", "coordinator-not-available"),
            ("", "node-away"),
        ):
            [found, *_] = (await caller.get(f"/v1/explain{query}"))["explanations"]
            assert (found["cause"], query) == (cause, query)


async def test_of_many_open_transactions_those_that_have_been_idle_for_longest_are_told(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explained_cluster, "PARTITIONS_MAX", 1)
    monkeypatch.setattr(explained_cluster, "YOUNG_MS", 0)
    bootstrap = (await caller.get("/v1/cluster"))["bootstrap_servers"]
    idle = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="idle")
    busy = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="busy")
    async with idle, busy, idle.transaction(), busy.transaction():
        now_ms = caller.control.clock.now_ms()
        await idle.send_and_wait("orders", b"1", partition=3, timestamp_ms=now_ms - 60_000)
        for index in range(3):
            await busy.send_and_wait("orders", b"1", partition=index, timestamp_ms=now_ms)
        found = await explained_cluster.suspects(caller.control.cluster)
    assert found.partitions == (("orders", 3),)
    assert (set(found.transactional_ids), found.left_out) == ({"idle", "busy"}, 0)
