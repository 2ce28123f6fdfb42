"""Effects of the control port's operations, seen over HTTP and checked in the cluster, with real clients if needed."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import quote

import aiokafka
import pytest
from yarl import URL

from broker.clock import Domain
from broker.injection.losses import Loss
from lab.control.access import ControlConfigError
from lab.control.routes import trace
from lab.faults import parse_rule, rule_to_json
from lab.trace import filters
from tests.lab.control.conftest import Caller, OpenControl, until

DAY_MS = 86_400_000

RULE = "EndTxn transactional_id=payments nth=2 -> lose-answer"


@asynccontextmanager
async def producing(caller: Caller, transactional_id: str) -> AsyncIterator[aiokafka.AIOKafkaProducer]:
    bootstrap = (await caller.get("/v1/cluster"))["bootstrap_servers"]
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=transactional_id, retry_backoff_ms=20
    )
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def transaction(producer: aiokafka.AIOKafkaProducer) -> None:
    async with producer.transaction():
        await producer.send_and_wait("orders", b"value", partition=0)


# -- the nodes


async def test_the_cluster_is_shown_with_who_leads_what(open_control: OpenControl) -> None:
    caller = await open_control(nodes=3)
    shown = await caller.get("/v1/cluster")
    cluster = caller.control.cluster
    assert shown["cluster_id"] == cluster.metadata.cluster_id
    assert [node["node_id"] for node in shown["nodes"]] == [1, 2, 3]
    assert {node["state"] for node in shown["nodes"]} == {"running"}
    led = sorted(index for node in shown["nodes"] for index in node["leads"].get("orders", []))
    assert led == [0, 1, 2, 3]
    ports = [node.listeners[0].port for node in cluster.nodes.values()]
    assert shown["bootstrap_servers"] == ",".join(f"127.0.0.1:{port}" for port in ports)
    assert [node["listeners"][0]["address"] for node in shown["nodes"]] == shown["bootstrap_servers"].split(
        ","
    )


async def test_a_node_is_killed_and_comes_back(open_control: OpenControl) -> None:
    caller = await open_control(nodes=3)
    killed = await caller.post("/v1/nodes/2/kill")
    assert (killed["state"], killed["leads"]) == ("killed", {})  # the response comes after the elections
    assert (await caller.get("/health"))["status"] == "degraded"
    status, answer = await caller("POST", "/v1/nodes/2/stop")
    assert (status, answer["error"]) == (409, "node 2 is killed, not running")
    assert (await caller.post("/v1/nodes/2/start"))["state"] == "running"
    assert (await caller.get("/health"))["status"] == "ok"
    assert (await caller.post("/v1/nodes/2/stop"))["state"] == "stopped"
    assert caller.control.cluster.running(2) is None


async def test_a_paused_node_answers_when_it_is_resumed(open_control: OpenControl) -> None:
    caller = await open_control(nodes=2)
    cluster = caller.control.cluster
    led = next(state.index for state in cluster.metadata.topics["orders"].partitions if state.leader == 2)
    bootstrap = (await caller.get("/v1/cluster"))["bootstrap_servers"]
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await producer.start()
    try:
        await producer.send_and_wait("orders", b"before", partition=led)
        connections = len(cluster.nodes[2].connections)
        assert (await caller.post("/v1/nodes/2/pause"))["state"] == "paused"
        assert (await caller.get("/health"))["nodes"] == {"1": "running", "2": "paused"}
        sending = asyncio.ensure_future(producer.send_and_wait("orders", b"meanwhile", partition=led))
        await caller.post("/v1/clock/advance", {"by": "5s", "only": ["all"]})
        assert not sending.done()
        (shown,) = [
            each for each in (await caller.get("/v1/partitions"))["partitions"] if each["partition"] == led
        ]
        assert (shown["leader"], shown["high_watermark"]) == (2, 1)
        assert len(cluster.nodes[2].connections) == connections
        assert (await caller.post("/v1/nodes/2/resume"))["state"] == "running"
        assert (await sending).offset == 1
    finally:
        await producer.stop()
    assert cluster.injection.links.all_up


async def test_timers_of_a_paused_node_run_when_it_is_resumed(caller: Caller) -> None:
    cluster = caller.control.cluster
    ran: list[int] = []
    node = cluster.running_nodes()[0]
    for number in range(2):
        node.clock.call_later_ms(DAY_MS * (2 - number), partial(ran.append, number), Domain.GROUPS)
    await caller.post("/v1/nodes/1/pause")
    await caller.post("/v1/clock/advance", {"by": "3d", "only": ["all"]})
    assert ran == []
    await caller.post("/v1/nodes/1/resume")
    await until(lambda: len(ran) == 2)
    assert ran == [1, 0]


async def test_a_paused_node_is_killed_and_not_stopped(open_control: OpenControl) -> None:
    caller = await open_control(nodes=2)
    await caller.post("/v1/nodes/2/pause")
    for call, error in (
        ("pause", "node 2 is paused already"),
        ("stop", "node 2 is paused: resume it, or kill it"),
    ):
        assert await caller("POST", f"/v1/nodes/2/{call}") == (409, {"error": error})
    assert (await caller.post("/v1/nodes/2/kill"))["state"] == "killed"
    assert caller.control.cluster.injection.links.all_up
    assert await caller("POST", "/v1/nodes/2/resume") == (409, {"error": "node 2 is killed, not running"})
    await caller.post("/v1/nodes/2/start")
    assert await caller("POST", "/v1/nodes/2/resume") == (409, {"error": "node 2 is running, not paused"})
    await caller.post("/v1/nodes/2/pause")
    shown = await caller.post("/v1/reset")
    assert [node["state"] for node in shown["nodes"]] == ["running", "running"]


# -- partitions


async def test_the_partitions_are_shown_with_what_each_replica_has(open_control: OpenControl) -> None:
    caller = await open_control(nodes=3)
    async with producing(caller, "payments") as producer:
        await transaction(producer)
    shown = (await caller.get("/v1/partitions?topic=orders"))["partitions"]
    assert [(each["topic"], each["partition"]) for each in shown] == [("orders", index) for index in range(4)]
    first = shown[0]
    assert (first["high_watermark"], first["last_stable_offset"], sorted(first["isr"])) == (2, 2, [1, 2, 3])
    assert [(each["node"], each["log_end"], each["in_sync"]) for each in first["replicas"]] == [
        (node, 2, True) for node in (1, 2, 3)
    ]
    assert [each["node"] for each in first["replicas"] if each["state"] == "leading"] == [first["leader"]]
    assert {each["leader_epoch"] for each in first["replicas"]} == {first["leader_epoch"]}
    assert (await caller.get("/v1/partitions"))["partitions"] == shown
    everything = (await caller.get("/v1/partitions?internal=true"))["partitions"]
    assert {each["topic"] for each in everything} == {"__transaction_state", "orders"}
    assert (await caller("GET", "/v1/partitions?topic=none"))[0] == 404


async def test_of_a_killed_node_the_log_is_not_known(open_control: OpenControl) -> None:
    caller = await open_control(nodes=2)
    await caller.post("/v1/nodes/2/kill")
    for shown in (await caller.get("/v1/partitions"))["partitions"]:
        one, two = shown["replicas"]
        assert (shown["leader"], shown["isr"]) == (1, [1])
        assert (one["state"], one["log_end"]) == ("leading", 0)
        assert (two["state"], two["log_end"], two["in_sync"]) == ("killed", None, False)


async def test_a_leader_is_moved_to_a_replica_that_is_in_sync(open_control: OpenControl) -> None:
    caller = await open_control(nodes=3)
    (before, *_) = (await caller.get("/v1/partitions"))["partitions"]
    to = before["leader"] % 3 + 1
    path = "/v1/partitions/orders/0/move"
    moved = await caller.post(path, {"to": to})
    assert (moved["leader"], moved["leader_epoch"]) == (to, before["leader_epoch"] + 1)
    assert await caller.post(path, {"to": to}) == moved  # it is the leader already
    async with producing(caller, "payments") as producer:
        await transaction(producer)
    assert (await caller.get("/v1/partitions"))["partitions"][0]["high_watermark"] == 2
    await caller.post(f"/v1/nodes/{to % 3 + 1}/kill")
    assert await caller("POST", path, {"to": to % 3 + 1}) == (
        409,
        {"error": f"node {to % 3 + 1} is not running"},
    )


async def test_a_leader_moves_nowhere_where_it_cannot_be(open_control: OpenControl) -> None:
    caller = await open_control(nodes=2)
    cluster = caller.control.cluster
    await caller.post("/v1/faults", {"rule": "pause node=2"})
    leading = [state.index for state in cluster.metadata.topics["orders"].partitions if state.leader == 1]
    path = f"/v1/partitions/orders/{leading[0]}/move"
    await cluster.metadata.replication_control.alter_partition("orders", leading[0], 0, [1])
    expected = f"node 2 is not in sync for orders-{leading[0]}, only node 1"
    assert await caller("POST", path, {"to": 2}) == (409, {"error": expected})
    expected = "there is no node 3: this cluster has the nodes 1 and 2"
    assert await caller("POST", path, {"to": 3}) == (404, {"error": expected})
    status, answer = await caller("POST", "/v1/partitions/orders/9/move", {"to": 2})
    assert (status, answer["error"]) == (404, "No such partition as orders-9")


async def test_losses_are_listed_until_a_reset(caller: Caller) -> None:
    losses = caller.control.cluster.injection.losses
    losses.note(Loss(7, "orders", 0, 3, 4, 2, 5, 0, "acks=1", 0, 1, 1, [1]))
    shown = await caller.get("/v1/losses")
    assert shown["dropped"] == 0
    assert shown["losses"] == [dataclasses.asdict(losses.list()[0])]
    await caller.post("/v1/reset")
    assert await caller.get("/v1/losses") == {"losses": [], "dropped": 0}


async def test_a_coordinator_is_moved_before_and_between_transactions(open_control: OpenControl) -> None:
    caller = await open_control(nodes=3)
    for to in (2, 3):
        moved = await caller.post("/v1/coordinators/move", {"transactional_id": "payments", "to": to})
        assert (moved["topic"], moved["leader"]) == ("__transaction_state", to)
        async with producing(caller, "payments") as producer:
            await transaction(producer)
        (listed,) = (await caller.get("/v1/transactions"))["transactions"]
        assert (listed["coordinator"], listed["state"]) == (to, "CompleteCommit")
    moved = await caller.post("/v1/coordinators/move", {"group": "workers", "to": 2})
    assert (moved["topic"], moved["leader"]) == ("__consumer_offsets", 2)
    status, answer = await caller("POST", "/v1/coordinators/move", {"to": 2})
    assert (status, answer["error"]) == (400, "give a transactional_id or a group")


# -- faults


@pytest.mark.parametrize(
    "body",
    [
        {"rule": RULE},
        {"rule": rule_to_json(parse_rule(RULE))},
        rule_to_json(parse_rule(RULE)),
        {
            "on": "EndTxn",
            "match": {"transactional_id": "payments"},
            "when": {"nth": 2},
            "action": "lose-answer",
        },
    ],
)
async def test_a_rule_is_text_or_json_and_is_the_same_rule(caller: Caller, body: dict[str, Any]) -> None:
    added = await caller.post("/v1/faults", body)
    assert added["text"] == RULE
    assert await caller.get(f"/v1/faults/{added['id']}") == added
    assert (await caller.get("/v1/faults"))["faults"] == [added]
    (active,) = caller.control.faults.list()
    assert active.rule == parse_rule(RULE)


@pytest.mark.parametrize(
    "text",
    [
        "cut 1 2 one-way expires=2s",
        "slow-disk delay=5ms node=1",
        "Produce p=0.5 seed=7 version=3..5 -> error 6",
    ],
)
async def test_every_form_of_a_rule_survives_the_way(open_control: OpenControl, text: str) -> None:
    caller = await open_control(nodes=2)
    added = await caller.post("/v1/faults", {"rule": text})
    again = await caller.post("/v1/faults", {"rule": added["rule"]})
    assert again["text"] == added["text"]


@pytest.mark.parametrize("text", ["cut 1 2", "pause node=2", "Produce listener=OUTSIDE -> drop"])
async def test_a_rule_for_what_this_broker_does_not_have_is_refused(caller: Caller, text: str) -> None:
    status, answer = await caller("POST", "/v1/faults", {"rule": text})
    assert (status, answer["error"].partition(":")[0]) in (
        (400, "there is no node 2"),
        (400, "there is no listener 'OUTSIDE'; listeners"),
    )


async def test_rules_are_removed_one_by_one_or_all(caller: Caller) -> None:
    one, *_ = [await caller.post("/v1/faults", {"rule": RULE}) for _ in range(3)]
    assert (await caller.delete(f"/v1/faults/{one['id']}"))["id"] == one["id"]
    assert await caller.delete("/v1/faults") == {"cleared": 2}
    assert caller.control.faults.list() == ()


async def test_rules_of_the_start_hold_from_then_on_and_after_a_reset(open_control: OpenControl) -> None:
    first = "EndTxn nth=2 -> lose-answer"
    caller = await open_control(
        environ={"ODRADEK_FAULTS": f"{first}\ncut 1 2", "ODRADEK_TOPICS": "a:2"}, nodes=2
    )
    assert [each["text"] for each in (await caller.get("/v1/faults"))["faults"]] == [first, "cut 1 2"]
    await caller.post("/v1/faults", {"rule": "Produce -> drop"})
    await caller.delete("/v1/faults/1")
    await caller.post("/v1/reset")
    assert [each["text"] for each in (await caller.get("/v1/faults"))["faults"]] == [first, "cut 1 2"]
    assert {"orders", "a"} <= caller.control.cluster.metadata.topics.keys()


async def test_a_rule_of_the_start_for_what_there_is_not_ends_the_start(open_control: OpenControl) -> None:
    with pytest.raises(ControlConfigError, match=r"ODRADEK_FAULTS: .*9"):
        await open_control(environ={"ODRADEK_FAULTS": "cut 1 9"})


async def test_what_is_held_goes_on_when_released(caller: Caller) -> None:
    rule = await caller.post("/v1/faults", {"rule": "EndTxn transactional_id=payments -> hold"})
    path = f"/v1/faults/{rule['id']}"
    async with producing(caller, "payments") as producer:
        under_way = asyncio.ensure_future(transaction(producer))
        waited = await caller.get(f"{path}/wait?hits=1")
        assert waited["reached"]
        (held,) = waited["fault"]["held"]
        assert (held["at"], held["node"], held["transactional_id"]) == ("EndTxn", 1, "payments")
        assert not under_way.done()
        assert (await caller.post(f"{path}/release", {"transactional_id": "other"}))["released"] == 0
        released = await caller.post(f"{path}/release", {"count": 1, "transactional_id": "pay*"})
        assert released["released"] == 1
        assert released["fault"]["held"] == []
        await under_way
        (told,) = (await caller.get(path))["released"]
        assert (told["outcome"], told["errors"], told["transactional_id"]) == (
            "answered",
            ["NONE"],
            "payments",
        )


async def test_what_is_held_goes_on_to_another_rule(caller: Caller) -> None:
    rule = await caller.post("/v1/faults", {"rule": "EndTxn transactional_id=payments nth=1 -> hold"})
    async with producing(caller, "payments") as producer:
        under_way = asyncio.ensure_future(transaction(producer))
        await caller.get(f"/v1/faults/{rule['id']}/wait?hits=1")
        other = await caller.post("/v1/faults", {"rule": "EndTxn nth=1 -> error CONCURRENT_TRANSACTIONS"})
        await caller.post(f"/v1/faults/{rule['id']}/release", {"to": other["id"]})
        await under_way
    assert (await caller.get(f"/v1/faults/{other['id']}"))["hits"] == 1


async def test_to_wait_for_what_does_not_come_ends(caller: Caller) -> None:
    rule = await caller.post("/v1/faults", {"rule": RULE})
    waited = await caller.get(f"/v1/faults/{rule['id']}/wait?timeout_ms=1")
    assert waited == {"reached": False, "fault": rule}


async def test_a_rule_that_is_removed_is_waited_for_no_longer(caller: Caller) -> None:
    rule = await caller.post("/v1/faults", {"rule": RULE})
    waiting = asyncio.ensure_future(caller("GET", f"/v1/faults/{rule['id']}/wait"))
    active = caller.control.faults.get(rule["id"])
    await until(lambda: active.waiting)
    await caller.delete("/v1/faults")
    status, answer = await waiting
    assert (status, answer["error"]) == (409, f"rule {rule['id']} was removed after 0 hits")


# -- time


async def test_time_moves_on_by_a_duration_or_milliseconds(caller: Caller) -> None:
    shown = await caller.post("/v1/clock/advance", {"by": "7d"})
    week_ms = 7 * 86_400_000
    assert shown["ahead_ms"]["transactions"] == shown["ahead_ms"]["ids"] == week_ms
    assert shown["ahead_ms"]["groups"] == 0
    shown = await caller.post("/v1/clock/advance", {"by_ms": 5, "only": ["groups"]})
    assert shown["ahead_ms"]["groups"] == 5
    assert (await caller.get("/v1/clock"))["ahead_ms"] == shown["ahead_ms"] == caller.control.clock.offsets()


# -- trace


def test_the_filters_of_the_trace_are_all_offered() -> None:
    assert set(trace.Wanted.__struct_fields__) == set(filters._FIELDS)


async def test_the_trace_is_switched_on_and_shown(caller: Caller) -> None:
    async with producing(caller, "payments") as producer:
        assert (await caller.post("/v1/trace/start"))["running"]
        await transaction(producer)
        assert not (await caller.post("/v1/trace/stop"))["running"]
        await transaction(producer)
    shown = await caller.get("/v1/trace?transactional_id=payments&api=EndTxn")
    (exchange,) = shown["exchanges"]
    assert (exchange["api"], exchange["outcome"]) == ("EndTxn", "answered")
    assert exchange["request"]["transactional_id"] == "payments"
    assert "EndTxn" in exchange["line"]
    everything = (await caller.get("/v1/trace?bodies=false"))["exchanges"]
    assert len(everything) == shown["status"]["entries"] > 1
    assert "request" not in everything[0]
    last = everything[-1]["number"]
    assert (await caller.get(f"/v1/trace?since={last}"))["exchanges"] == []
    assert [each["number"] for each in (await caller.get("/v1/trace?limit=1"))["exchanges"]] == [last]


async def test_the_trace_is_followed_line_by_line(caller: Caller) -> None:
    await caller.post("/v1/trace/start")
    async with (
        producing(caller, "payments") as producer,
        caller.session.get(f"{caller.url}/v1/trace/follow?api=EndTxn&bodies=false") as answer,
    ):
        assert answer.content_type == "application/x-ndjson"
        assert json.loads(await answer.content.readline())["status"]["running"]
        for _ in range(2):
            await transaction(producer)
            assert json.loads(await answer.content.readline())["api"] == "EndTxn"
    await until(lambda: not caller.control.trace.status()["followers"])


async def test_only_so_many_clients_can_follow(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "FOLLOWERS_MAX", 0)
    status, answer = await caller("GET", "/v1/trace/follow")
    assert (status, list(answer)) == (429, ["error"])


async def test_the_trace_is_a_capture_file(caller: Caller) -> None:
    await caller.post("/v1/trace/start")
    async with producing(caller, "payments") as producer:
        await transaction(producer)
    async with caller.session.get(f"{caller.url}/v1/trace.pcap") as answer:
        assert answer.content_type == "application/vnd.tcpdump.pcap"
        data = await answer.read()
    assert data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1")
    assert b"payments" in data


# -- transactions


async def test_transactions_are_listed(caller: Caller) -> None:
    async with producing(caller, "payments") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"value", partition=2)
        (listed,) = (await caller.get("/v1/transactions"))["transactions"]
        assert (listed["transactional_id"], listed["state"]) == ("payments", "Ongoing")
        assert (listed["partitions"], listed["coordinator"]) == (["orders-2"], 1)
        await producer.abort_transaction()


@pytest.mark.parametrize("transactional_id", ["payments", "pay/ments %2F?#é"])
async def test_a_transaction_has_a_timeline_whatever_its_name(caller: Caller, transactional_id: str) -> None:
    async with producing(caller, transactional_id) as producer:
        await transaction(producer)
    path = f"{caller.url}/v1/transactions/{quote(transactional_id, safe='')}/timeline"
    async with caller.session.get(URL(path, encoded=True)) as answer:
        shown = await answer.json()
        assert answer.status == 200, shown
    assert shown["timeline"]["transactional_id"] == transactional_id
    assert shown["text"]


async def test_an_unknown_transaction_has_none(caller: Caller) -> None:
    status, answer = await caller("GET", "/v1/transactions/unknown/timeline")
    assert (status, list(answer)) == (404, ["error"])


async def test_a_state_of_a_transaction_is_awaited(caller: Caller) -> None:
    injection = caller.control.cluster.injection
    path = "/v1/transactions/payments/wait?state="
    assert await caller.get(path + "Ongoing&timeout_ms=0") == {"reached": False, "transaction": None}
    async with producing(caller, "payments") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"value", partition=2)
        waited = await caller.get(path + "Ongoing&timeout_ms=0")
        assert (waited["reached"], waited["transaction"]["partitions"]) == (True, ["orders-2"])
        waited = await caller.get(path + "CompleteCommit&timeout_ms=1")
        assert (waited["reached"], waited["transaction"]["state"]) == (False, "Ongoing")
        waiting = [
            asyncio.ensure_future(caller.get(path + states))
            for states in ("PrepareCommit", "CompleteAbort,CompleteCommit")
        ]
        await until(lambda: injection.transaction_watcher and len(caller.control.awaited_states) == 2)
        await producer.commit_transaction()
        prepared, complete = await asyncio.gather(*waiting)
    assert (prepared["reached"], prepared["transaction"]["state"]) == (True, "PrepareCommit")
    assert (complete["reached"], complete["transaction"]["state"]) == (True, "CompleteCommit")
    assert complete["transaction"]["coordinator"] == 1
    assert injection.transaction_watcher is None


async def test_a_state_that_there_is_not_is_refused(caller: Caller) -> None:
    status, answer = await caller("GET", "/v1/transactions/payments/wait?state=CompletCommit")
    assert (status, answer["error"]) == (
        400,
        "the state 'CompletCommit' is not known; did you mean CompleteCommit?",
    )
