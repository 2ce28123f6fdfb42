"""Fault rules and the trace of a proxy: what the upstream receives, and what clients get."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from lab.faults import ActiveRule, FaultError, parse_rule
from lab.trace.json_form import to_json
from proxy.looking import ProxyLooking, looking_of
from tests.support import raw
from tests.support.deadlines import Deadline
from tests.support.proxy import Asked, Client, RunningProxy, Upstream, proxy_before

HEARTBEAT = {"group_id": "g", "generation_id": 1, "member_id": "m"}
ID = UUID(int=7)


class Stage:
    """A proxy with fault rules and a trace, and its upstream."""

    def __init__(self, upstream: Upstream, proxy: RunningProxy, looking: ProxyLooking) -> None:
        self.upstream, self.proxy, self.looking = upstream, proxy, looking

    def add(self, rule: str) -> ActiveRule:
        return self.looking.faults.add(parse_rule(rule))

    def client(self) -> Client:
        return Client(self.proxy.port(1))

    def heard(self) -> int:
        return len(self.upstream.heard("heartbeat"))


def beat(asked: Asked) -> dict[str, Any]:
    return {"error_code": 0}


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with (
        Upstream({"heartbeat": beat}, nodes=(1, 2)) as upstream,
        proxy_before(upstream, "--control-port", "0") as proxy,
    ):
        yield Stage(upstream, proxy, looking_of(proxy.proxy))


async def until(look: Any) -> None:
    deadline = Deadline()
    while True:
        if look():
            return
        deadline.check(look)
        await asyncio.sleep(0)


async def beats(client: Client) -> int:
    return int((await client.ask("heartbeat", 4, **HEARTBEAT))["error_code"])


async def test_an_error_is_answered_without_the_upstream(stage: Stage) -> None:
    stage.add("Heartbeat nth=1 -> error REBALANCE_IN_PROGRESS")
    async with stage.client() as client:
        assert [await beats(client) for _ in range(2)] == [27, 0]
    assert stage.heard() == 1


@pytest.mark.parametrize("rule", ["lose-request", "drop"])
async def test_a_lost_request_never_gets_to_the_upstream(stage: Stage, rule: str) -> None:
    stage.add(f"Heartbeat nth=1 -> {rule}")
    async with stage.client() as client:
        client.send("heartbeat", 4, **HEARTBEAT)
        assert await client.ended()
    assert stage.heard() == 0


async def test_a_lost_answer_is_one_to_a_request_that_the_upstream_has_handled(stage: Stage) -> None:
    stage.add("Heartbeat nth=1 -> lose-answer")
    async with stage.client() as client:
        client.send("heartbeat", 4, **HEARTBEAT)
        assert await client.ended()
    assert stage.heard() == 1


async def test_fields_of_a_response_are_altered(stage: Stage) -> None:
    stage.add("Heartbeat nth=1 -> answer throttle_time_ms=250")
    async with stage.client() as client:
        answers = [await client.ask("heartbeat", 4, **HEARTBEAT) for _ in range(2)]
    assert [each["throttle_time"] for each in answers] == [250, 0]
    assert stage.heard() == 2


async def test_a_doubled_request_gets_to_the_upstream_twice(stage: Stage) -> None:
    stage.add("Heartbeat nth=1 -> duplicate")
    async with stage.client() as client:
        assert await beats(client) == 0
        assert await beats(client) == 0
    await until(lambda: stage.heard() == 3)
    first, again, _ = stage.upstream.heard("heartbeat")
    assert first.frame == again.frame


async def test_a_held_request_gets_to_the_upstream_when_it_is_released(stage: Stage) -> None:
    rule = stage.add("Heartbeat group=g -> hold")
    async with stage.client() as client:
        client.send("heartbeat", 4, **HEARTBEAT)
        await until(lambda: rule.held)
        assert stage.heard() == 0
        assert stage.looking.faults.release(rule.id) == 1
        await client.receive_frame()
    assert [(each.outcome, each.errors) for each in rule.released] == [("answered", ("NONE",))]


async def test_a_detached_request_gets_to_the_upstream_without_its_client(stage: Stage) -> None:
    rule = stage.add("Heartbeat nth=1 -> detach")
    async with stage.client() as client:
        client.send("heartbeat", 4, **HEARTBEAT)
        assert await client.ended()
    assert stage.heard() == 0
    stage.looking.faults.release(rule.id)
    await until(lambda: rule.released[0].outcome == "answered")
    assert stage.heard() == 1
    # The proxy sends the released request on a connection of its own, and closes this connection after the response.
    await until(lambda: stage.upstream.connections[1][-1].is_closing())


async def test_an_overtaken_request_gets_to_the_upstream_behind_the_next_one(stage: Stage) -> None:
    stage.add("Heartbeat nth=1 -> reorder")
    async with stage.client() as client:
        client.send("heartbeat", 4, **{**HEARTBEAT, "member_id": "first"})
        assert await client.ended()
    async with stage.client() as client:
        await client.ask("heartbeat", 4, **{**HEARTBEAT, "member_id": "second"})
    await until(lambda: stage.heard() == 2)
    assert [each.body["member_id"] for each in stage.upstream.heard("heartbeat")] == ["second", "first"]


async def test_a_delayed_request_gets_there_later(stage: Stage) -> None:
    stage.add("Heartbeat nth=1 -> delay 1ms")
    async with stage.client() as client:
        assert await beats(client) == 0
    assert stage.heard() == 1


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("txn.prepare.append -> hold", "not what happens inside the nodes"),
        ("cut 1 2", "not what happens inside the nodes"),
        ("pause node=1", "not what happens inside the nodes"),
        ("slow-disk node=1 delay=1s", "not what happens inside the nodes"),
        ("Produce -> kill", "cannot kill a node of the upstream"),
        ("Produce -> crash", "cannot kill a node of the upstream"),
        ("Produce node=3 -> drop", "there is no node 3"),
    ],
)
async def test_what_a_proxy_cannot_do_is_refused_in_a_sentence(stage: Stage, rule: str, reason: str) -> None:
    with pytest.raises(FaultError, match=reason):
        stage.add(rule)


async def test_rules_meet_nodes_of_the_upstream(stage: Stage) -> None:
    stage.add("Heartbeat node=2 -> error UNKNOWN_MEMBER_ID")
    for node, code in ((1, 0), (2, 25)):
        async with Client(stage.proxy.port(node)) as client:
            assert await beats(client) == code


async def test_a_fetch_of_a_session_is_about_the_partitions_of_the_session(stage: Stage) -> None:
    def metadata(asked: Asked) -> dict[str, Any]:
        topic = {"error_code": 0, "name": "orders", "topic_id": ID, "is_internal": False, "partitions": []}
        return {**stage.upstream.metadata(asked), "topics": [topic]}

    stage.upstream.answers["metadata"] = metadata
    stage.upstream.answers["fetch"] = lambda asked: {"error_code": 0, "session_id": 5, "responses": []}
    async with stage.client() as client:
        for session_id, epoch, partition in ((0, 0, 0), (5, 1, 1)):
            wanted = {"topic_id": ID, "partitions": [{"partition": partition, "fetch_offset": 0}]}
            await client.ask("fetch", 13, session_id=session_id, session_epoch=epoch, topics=[wanted])
        rule = stage.add("Fetch topic=orders partition=1 -> error NOT_LEADER_OR_FOLLOWER")
        # The proxy requests the name of the topic once a rule needs it.
        await until(lambda: stage.proxy.proxy.topics.name(ID) == "orders")
        assert (await client.ask("fetch", 13, session_id=5, session_epoch=2))["error_code"] == 6
    assert rule.hits == 1


async def test_what_is_traced_passes_as_the_bytes_that_it_is(stage: Stage) -> None:
    def tagged(asked: Asked) -> bytes:
        plain = raw.encode_response("heartbeat", 4, asked.correlation, {"error_code": 0})
        return raw.with_unknown_tags("heartbeat", 4, plain, {9: b"later"})

    stage.upstream.answers["heartbeat"] = tagged
    stage.looking.trace.start()
    async with stage.client() as client:
        frame = raw.encode_request("heartbeat", 4, {**HEARTBEAT, "_tags": {7: b"x"}}, 77)
        client.send_frame(frame)
        answer = await client.receive_frame()
    assert b"later" in answer
    assert [each.frame for each in stage.upstream.heard("heartbeat")] == [frame]
    (exchange,) = stage.looking.trace.entries()
    assert (exchange.request, exchange.answer) == (frame, answer)
    told = to_json(exchange, stage.looking.trace.names)
    assert (told["node"], told["api"], told["request"]["group_id"]) == (1, "Heartbeat", "g")


async def test_a_malformed_request_that_is_traced_ends_its_connection(stage: Stage) -> None:
    stage.looking.trace.start()
    async with stage.client() as client:
        client.send_frame(raw.encode_request("heartbeat", 4, HEARTBEAT, 1)[:-6])
        assert await client.ended()
    assert stage.heard() == 0
