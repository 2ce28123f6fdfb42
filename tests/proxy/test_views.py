"""The views and timelines of a proxy, compared with those of our cluster behind it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession
from click.testing import Result
from confluent_kafka import Consumer, Producer, TopicPartition

from broker.cluster import Cluster
from lab.control.listener import ControlListener
from lab.control.ports import Control
from lab.control.wiring import control_of
from lab.faults import parse_rule
from lab.trace.scanning import UnknownTransaction
from lab.views.ports import BatchPosition
from proxy.looking import ProxyLooking, looking_of, open_control
from proxy.options import parse as parse_proxy
from proxy.proxy import Proxy
from server.options import parse
from tests.lab.explain.staged_groups import ACCEPT, ShareMember
from tests.support.clients import PATIENCE
from tests.support.deadlines import HANG_S
from tests.tools.conftest import invoke
from tools.client.cluster import Cluster as Client

NODES = 3


@dataclass
class Both:
    """A cluster with its control port, and a proxy in front of it."""

    control: Control
    looking: ProxyLooking
    proxy: Proxy
    server: ControlListener

    async def cluster_stops(self) -> None:
        await self.control.cluster.stop()


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[Both]:
    arguments = ["--nodes", str(NODES), "--port", "0", "--data-dir", str(tmp_path / "data")]
    arguments += [
        "--set",
        "offsets.topic.num.partitions=3",
        "--set",
        "transaction.state.log.num.partitions=3",
    ]
    cluster = Cluster(parse([*arguments, "--topic", "orders:3", "--topic", "audit:1"], {}))
    await cluster.start()
    control = control_of(cluster)
    upstream = f"127.0.0.1:{cluster.first.listeners[0].port}"
    proxy = Proxy(parse_proxy(["--upstream", upstream, "--port", "0", "--control-port", "0"], {}))
    await proxy.start()
    looking = looking_of(proxy)
    assert proxy.settings.control is not None
    server = await open_control(proxy, looking, proxy.settings.control)
    try:
        await asyncio.to_thread(fill, proxy.bootstrap_servers)
        yield Both(control, looking, proxy, server)
    finally:
        await server.close()
        await proxy.stop()
        await cluster.stop()


def fill(bootstrap: str) -> None:
    """Write a committed, an aborted and an open transaction. The open transaction has a pending offset of a group."""
    options = {**PATIENCE, "bootstrap.servers": bootstrap}
    consumer = Consumer({**options, "group.id": "readers", "enable.auto.commit": "false"})
    producer = Producer({**options, "transactional.id": "billing"})
    producer.init_transactions(HANG_S)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce("orders", b"x" * 100, partition=partition)
        producer.flush(HANG_S)
        end(HANG_S)
    consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    waiting = Producer({**options, "transactional.id": "forgetful", "transaction.timeout.ms": 900_000})
    waiting.init_transactions(HANG_S)
    waiting.begin_transaction()
    waiting.produce("orders", b"y", partition=1)
    waiting.flush(HANG_S)
    waiting.send_offsets_to_transaction(
        [TopicPartition("orders", 0, 2)], consumer.consumer_group_metadata(), HANG_S
    )
    plain = Producer(options)
    plain.produce("orders", b"z", partition=1)
    plain.flush(HANG_S)
    consumer.close()


def built(value: object) -> Any:
    return msgspec.to_builtins(value)


async def test_a_viewer_of_the_proxy_sees_what_a_viewer_of_the_cluster_sees(both: Both) -> None:
    ours, seen = both.control.views, both.looking.views
    cluster = built(await seen.cluster())
    assert cluster["product"] == "proxy"
    own = built(await ours.cluster())
    for name in ("cluster_id", "topics", "partitions"):
        assert cluster[name] == own[name]
    for node, there in zip(cluster["nodes"], own["nodes"], strict=True):
        assert [node[name] for name in ("node", "state", "leads", "replicas")] == [
            there[name] for name in ("node", "state", "leads", "replicas")
        ]
        assert node["address"] != there["address"]

    def transactions(summary: Any) -> Any:
        told = built(summary)
        for each in told["transactions"]:
            assert (each.pop("open_ms") is None) == (each["state"] != "Ongoing")
        return told

    assert transactions(await seen.transactions()) == transactions(await ours.transactions())

    def partitions(summary: Any) -> Any:
        told = built(summary)
        for each in told["partitions"]:
            each.pop("log_end")
        return told

    for wanted in ((None, 0, 100), ("orders", 1, 2), ("__transaction_state", 0, 3), ("missing", 0, 1)):
        assert partitions(await seen.partitions(*wanted)) == partitions(await ours.partitions(*wanted))
    assert built(await seen.groups()) == built(await ours.groups())
    (group,) = (await seen.groups()).groups
    assert [each.pending for each in group.offsets] == [True]


async def test_a_share_group_is_seen_with_its_start_offsets(both: Both) -> None:
    with ExitStack() as connections:

        class Names:
            topic, group = "orders", "workers"

            def connect(self) -> Client:
                return connections.enter_context(Client(both.proxy.bootstrap_servers))

        def consume() -> None:
            member = ShareMember(Names())
            member.configure()
            member.join()
            ((first, _, _),) = member.fetch(1)
            member.acknowledge(first, first, ACCEPT)

        await asyncio.to_thread(consume)
        (seen,) = [each for each in (await both.looking.views.groups()).groups if each.type == "share"]
        (own,) = [each for each in (await both.control.views.groups()).groups if each.type == "share"]
    assert (seen.state, seen.members, seen.lag) == (own.state, own.members, own.lag)
    places = [[(each.topic, each.partition, each.lag) for each in summary.shares] for summary in (seen, own)]
    assert places[0] == places[1]
    assert len(places[0]) > 1
    assert [each.records for each in seen.shares] == [{}] * len(places[0])


async def test_batches_are_those_of_the_log(both: Both) -> None:
    ours, seen = BatchPosition("orders", 1), BatchPosition("orders", 1)
    pieces = [
        built(await views.batches(position))
        for views, position in ((both.control.views, ours), (both.looking.views, seen))
    ]
    assert pieces[1]["log_end"] is None
    for piece in pieces:
        piece.pop("log_end")
    assert pieces[0] == pieces[1]
    assert await both.looking.views.batches(seen) is None
    await asyncio.to_thread(one_more, both.proxy.bootstrap_servers)
    piece = await both.looking.views.batches(seen)
    assert piece is not None
    assert not piece.restarted
    assert [each.kind for each in piece.batches] == ["data"]
    assert await both.looking.views.batches(BatchPosition("missing", 0)) is None


def one_more(bootstrap: str) -> None:
    producer = Producer({**PATIENCE, "bootstrap.servers": bootstrap})
    producer.produce("orders", b"1", partition=1)
    assert producer.flush(HANG_S) == 0


async def test_a_timeline_is_that_of_the_cluster(both: Both) -> None:
    for transactional_id in ("billing", "forgetful"):
        told = [
            (await each.transactions.timeline(transactional_id)).to_json()
            for each in (both.control, both.looking)
        ]
        assert told[0] == told[1]
        assert all(each["is_whole"] for each in told[1]["scanned"])
    with pytest.raises(UnknownTransaction, match="of the upstream knows the id 'nothing'"):
        await both.looking.transactions.timeline("nothing")
    listed = [await each.transactions.list() for each in (both.control, both.looking)]
    for own, seen in zip(*listed, strict=True):
        assert seen.pop("last_update_ms") is None
        own.pop("last_update_ms")
        assert (own.pop("open_ms") is None) == (seen.pop("open_ms") is None)
        assert own == seen


async def test_an_upstream_that_does_not_answer_is_an_empty_view(both: Both) -> None:
    await both.cluster_stops()
    cluster = await both.looking.views.cluster()
    assert {each.state for each in cluster.nodes} == {"unreachable"}
    assert (await both.looking.views.transactions()).total == 0
    assert (await both.looking.views.groups()).total == 0
    assert (await both.looking.views.partitions(None, 0, 10)).total == 0
    assert await both.looking.views.batches(BatchPosition("orders", 0)) is None
    with pytest.raises(UnknownTransaction, match="does not respond"):
        await both.looking.transactions.timeline("billing")


async def test_the_control_port_has_what_a_proxy_can_do(both: Both) -> None:
    async with ClientSession() as session:

        async def call(method: str, path: str, body: object = None) -> tuple[int, Any]:
            data = None if body is None else json.dumps(body)
            headers = {"Content-Type": "application/json"}
            async with session.request(method, both.server.url + path, data=data, headers=headers) as answer:
                text = await answer.text()
                return answer.status, json.loads(text) if text.startswith("{") else text

        assert await call("GET", "/health") == (
            200,
            {
                "status": "ok",
                "nodes": {"1": "running", "2": "running", "3": "running"},
                "offline_partitions": 0,
            },
        )
        status, shown = await call("GET", "/v1/cluster")
        assert (status, shown["cluster_id"]) == (200, both.control.cluster.metadata.cluster_id)
        assert shown["bootstrap_servers"] == both.proxy.bootstrap_servers
        assert sorted(index for node in shown["nodes"] for index in node["leads"]["orders"]) == [0, 1, 2]
        addresses = [node["listeners"][0]["advertised"] for node in shown["nodes"]]
        assert ",".join(addresses) == both.proxy.bootstrap_servers
        status, refusal = await call("POST", "/v1/nodes/1/kill")
        assert status == 404
        assert refusal["error"].startswith(
            "POST /v1/nodes/{node_id}/kill is not for a proxy: it sees requests"
        )
        status, refusal = await call("POST", "/v1/clock/advance", {"by": "1h"})
        assert (status, "not for a proxy" in refusal["error"]) == (404, True)
        status, described = await call("GET", "/openapi.json")
        assert "/v1/nodes/{node_id}/kill" not in described["paths"]
        assert {"/v1/faults", "/v1/trace", "/v1/watch", "/v1/transactions/{transactional_id}/timeline"} <= {
            *described["paths"]
        }
        status, page = await call("GET", "/")
        assert (status, "<title>" in page) == (200, True)
        async with session.get(both.server.url + "/v1/watch?show=cluster") as stream:
            first = await stream.content.readuntil(b"\n\n")
        assert json.loads(first.partition(b"data: ")[2])["product"] == "proxy"
        assert (await call("GET", "/v1/transactions/billing/timeline"))[0] == 200
        status, metrics = await call("GET", "/metrics")
        assert (status, "# TYPE" in metrics) == (200, True)


async def test_the_command_explains_by_the_protocol_and_with_the_rules_of_the_proxy(both: Both) -> None:
    """``odradek explain`` at a proxy queries the cluster by Kafka's protocol and knows the proxy's rules, but nothing from
    inside the nodes."""

    def explain(*words: str) -> Result:
        where = {"ODRADEK_CONTROL": both.server.url}
        return invoke(both.proxy.bootstrap_servers, "explain", *words, **where)

    hold = both.looking.faults.add(parse_rule("Produce topic=audit -> hold"))
    producer = Producer({**PATIENCE, "bootstrap.servers": both.proxy.bootstrap_servers})
    producer.produce("audit", b"1")
    sending = asyncio.to_thread(producer.flush, HANG_S)
    task = asyncio.create_task(sending)
    await both.looking.faults.reached(hold.id)
    held = await asyncio.to_thread(explain, "audit")
    both.looking.faults.release(hold.id)
    await task
    # The nodes run in this process too, so the output also has their log lines.
    assert f"Rule {hold.id} (Produce topic=audit -> hold) holds Produce of rdkafka" in held.stdout
    healthy = await asyncio.to_thread(explain, "orders/0")
    assert "orders-0" in healthy.stdout, healthy.output
