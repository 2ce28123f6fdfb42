"""The proxy in front of a scripted upstream: what it forwards, what it changes, and how it handles failures."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest
import structlog

from lab.faults import parse_rule
from proxy.looking import looking_of
from proxy.options import parse
from proxy.proxy import Proxy, StartError
from proxy.wire import LANDING_BYTES
from tests.support import raw
from tests.support.deadlines import HANG_S, Deadline
from tests.support.proxy import DYING, HOST, Asked, Client, Upstream, proxy_before

HEARTBEAT = {"group_id": "g", "generation_id": 1, "member_id": "m"}


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def until(look: Callable[[], bool]) -> None:
    deadline = Deadline()
    while True:
        if look():
            return
        deadline.check(look)
        await asyncio.sleep(0)


def ok(asked: Asked) -> dict[str, Any]:
    return {"error_code": 0}


async def test_requests_and_responses_pass_byte_for_byte() -> None:
    answers = []

    def tagged(asked: Asked) -> bytes:
        plain = raw.encode_response("heartbeat", 4, asked.correlation, {"error_code": 27})
        answers.append(raw.with_unknown_tags("heartbeat", 4, plain, {9: b"later"}))
        return answers[-1]

    async with (
        Upstream({"heartbeat": tagged}) as upstream,
        proxy_before(upstream) as proxy,
        Client(proxy.port(1)) as client,
    ):
        frame = raw.encode_request("heartbeat", 4, {**HEARTBEAT, "_tags": {7: b"x"}}, 77)
        client.send_frame(frame)
        answer = await client.receive_frame()
    assert [each.frame for each in upstream.heard("heartbeat")] == [frame]
    # The proxy drops the tagged fields of the header, which no client knows.
    correlation, tags = struct.unpack_from(">iB", answer)
    assert (correlation, tags) == (77, 0)
    assert answers[0].endswith(answer[5:])
    assert b"later" in answer


async def test_each_client_has_a_connection_of_its_own_that_ends_with_it() -> None:
    async with Upstream({"heartbeat": ok}) as upstream, proxy_before(upstream) as proxy:
        before = len(upstream.connections[1])
        async with Client(proxy.port(1)) as one, Client(proxy.port(1)) as other:
            for client in (one, other, one):
                assert (await client.ask("heartbeat", 4, **HEARTBEAT))["error_code"] == 0
            opened = upstream.connections[1][before:]
            assert len(opened) == 2
        for writer in opened:
            async with asyncio.timeout(HANG_S):
                await writer.wait_closed()


async def test_a_connection_without_a_request_opens_none() -> None:
    async with Upstream() as upstream, proxy_before(upstream) as proxy:
        before = len(upstream.connections[1])
        async with Client(proxy.port(1)):
            await turns()
        assert len(upstream.connections[1]) == before


@pytest.mark.parametrize("version", raw.versions("metadata"))
async def test_metadata_names_the_listeners_of_the_proxy(version: int) -> None:
    async with Upstream(nodes=(1, 2, 7)) as upstream, proxy_before(upstream) as proxy:
        async with Client(proxy.port(1)) as client:
            answer = await client.ask("metadata", version, topics=[])
        assert {each["node_id"]: each["port"] for each in answer["brokers"]} == {
            node: proxy.port(node) for node in (1, 2, 7)
        }


@pytest.mark.parametrize("version", raw.versions("find_coordinator"))
async def test_coordinators_are_found_behind_the_proxy(version: int) -> None:
    def coordinator(asked: Asked) -> dict[str, Any]:
        where = {"node_id": 2, "host": HOST, "port": upstream.ports[2], "error_code": 0}
        away = {"key": "b", "node_id": -1, "host": "", "port": -1, "error_code": 15}
        if version < 4:
            return where
        return {"coordinators": [{"key": "a", **where}, away]}

    async with (
        Upstream({"find_coordinator": coordinator}, nodes=(1, 2)) as upstream,
        proxy_before(upstream) as proxy,
        Client(proxy.port(1)) as client,
    ):
        answer = await client.ask("find_coordinator", version, key="a", coordinator_keys=["a", "b"])
        found = answer if version < 4 else answer["coordinators"][0]
        assert (found["host"], found["port"]) == (HOST, proxy.port(2))
        if version >= 4:
            assert answer["coordinators"][1]["port"] == -1


@pytest.mark.parametrize(("api", "version"), [("produce", 13), ("produce", 9), ("fetch", 17), ("fetch", 15)])
async def test_leaders_that_a_response_names_are_found_behind_the_proxy(api: str, version: int) -> None:
    def moved(asked: Asked) -> dict[str, Any]:
        endpoint = {"node_id": 2, "host": HOST, "port": upstream.ports[2], "rack": None}
        names = version >= (10 if api == "produce" else 16)
        return {"responses": [], **({"node_endpoints": [endpoint]} if names else {})}

    async with (
        Upstream({api: moved}, nodes=(1, 2)) as upstream,
        proxy_before(upstream) as proxy,
        Client(proxy.port(1)) as client,
    ):
        answer = await client.ask(api, version, **({"acks": -1} if api == "produce" else {}))
        ports = [each["port"] for each in answer.get("node_endpoints", ())]
        assert ports == ([proxy.port(2)] if version in (13, 17) else [])


async def test_a_new_node_has_a_listener_before_a_response_names_it() -> None:
    async with Upstream({"heartbeat": ok}) as upstream, proxy_before(upstream) as proxy:
        await upstream.start(5)
        upstream.named = {1, 5}
        async with Client(proxy.port(1)) as one, Client(proxy.port(1)) as other:
            answers = await asyncio.gather(*(each.ask("metadata", 9, topics=[]) for each in (one, other)))
        assert [each["brokers"][1]["port"] for each in answers] == [proxy.port(5)] * 2
        async with Client(proxy.port(5)) as client:
            await client.ask("heartbeat", 4, **HEARTBEAT)
        assert [each.node for each in upstream.heard("heartbeat")] == [5]


async def test_a_node_that_moves_keeps_its_listener() -> None:
    async with Upstream({"heartbeat": ok}, nodes=(1, 2)) as upstream, proxy_before(upstream) as proxy:
        port = proxy.port(2)
        await upstream.stop(2)
        await upstream.start(2)
        async with Client(proxy.port(1)) as client:
            answer = await client.ask("metadata", 9, topics=[])
        assert answer["brokers"][1]["port"] == port
        async with Client(port) as client:
            await client.ask("heartbeat", 4, **HEARTBEAT)


async def test_versions_are_announced_that_both_sides_have() -> None:
    async with Upstream() as upstream, proxy_before(upstream) as proxy, Client(proxy.port(1)) as client:
        answer = await client.ask("api_versions", 4, client_software_name="x", client_software_version="1")
    found = {each["api_key"]: (each["min_version"], each["max_version"]) for each in answer["api_keys"]}
    assert 9999 not in found
    assert raw.API_KEYS["sasl_handshake"] not in found
    assert found[raw.API_KEYS["fetch"]] == (4, 18)


async def test_an_upstream_without_the_version_of_api_versions_is_asked_in_one_that_it_has() -> None:
    def older(asked: Asked) -> dict[str, Any] | bytes:
        row = {"api_key": 18, "min_version": 0, "max_version": 3}
        if asked.version <= 3:
            rows = [row, {"api_key": 3, "min_version": 0, "max_version": 9}]
            return {"error_code": 0, "api_keys": rows}
        refusal = {"error_code": 35, "api_keys": [row]}
        return raw.encode_response("api_versions", 0, asked.correlation, refusal)

    async with Upstream({"api_versions": older}) as upstream, proxy_before(upstream) as proxy:
        async with Client(proxy.port(1)) as client:
            named = {"client_software_name": "java", "client_software_version": "4.3.1"}
            answer = await client.ask("api_versions", 4, **named)
        assert answer["error_code"] == 0
        assert {each["api_key"]: each["max_version"] for each in answer["api_keys"]} == {18: 3, 3: 9}
        assert [
            (each.version, each.body.get("client_software_name")) for each in upstream.heard("api_versions")
        ][-1] == (3, "java")


async def test_a_version_that_the_proxy_cannot_decode_ends_the_connection() -> None:
    async with Upstream() as upstream, proxy_before(upstream) as proxy, Client(proxy.port(1)) as client:
        client.send_frame(struct.pack(">hhih", 9999, 0, 1, -1))
        assert await client.ended()


async def test_a_produce_without_a_response_is_followed_by_the_next_request() -> None:
    async with (
        Upstream({"produce": lambda asked: None, "heartbeat": ok}) as upstream,
        proxy_before(upstream) as proxy,
        Client(proxy.port(1)) as client,
    ):
        for _ in range(3):
            client.send("produce", 9, acks=0)
        assert (await client.ask("heartbeat", 4, **HEARTBEAT))["error_code"] == 0
    assert [each.api for each in upstream.asked[-4:]] == ["produce"] * 3 + ["heartbeat"]


async def test_requests_are_answered_in_their_order_one_at_a_time() -> None:
    order: list[int] = []

    def answered(asked: Asked) -> dict[str, Any]:
        order.append(asked.correlation)
        return {"error_code": 0}

    async with (
        Upstream({"heartbeat": answered}) as upstream,
        proxy_before(upstream) as proxy,
        Client(proxy.port(1)) as client,
    ):
        for _ in range(50):
            client.send("heartbeat", 4, **HEARTBEAT)
        frames = [await client.receive_frame() for _ in range(50)]
    assert order == [struct.unpack_from(">i", frame)[0] for frame in frames] == list(range(1, 51))


@pytest.mark.parametrize("size", [LANDING_BYTES - 60, LANDING_BYTES + 1, 3_000_000])
async def test_large_requests_and_responses_pass(size: int) -> None:
    content = bytes(range(256)) * (size // 256) + bytes(size % 256)

    def echo(asked: Asked) -> dict[str, Any]:
        return {"error_code": 0, "protocol_type": "x", "protocol_name": "y", "assignment": content}

    async with (
        Upstream({"sync_group": echo}) as upstream,
        proxy_before(upstream) as proxy,
        Client(proxy.port(1)) as client,
    ):
        for _ in range(3):
            assignment = [{"member_id": "m", "assignment": content}]
            answer = await client.ask("sync_group", 5, **HEARTBEAT, assignments=assignment)
            assert answer["assignment"] == content
    for each in upstream.heard("sync_group"):
        assert each.body["assignments"][0]["assignment"] == content


async def test_an_upstream_that_dies_in_the_middle_ends_the_connection_with_one_line() -> None:
    async with Upstream({"heartbeat": lambda asked: DYING}) as upstream, proxy_before(upstream) as proxy:
        async with Client(proxy.port(1)) as client:
            with structlog.testing.capture_logs() as lines:
                client.send("heartbeat", 4, **HEARTBEAT)
                assert await client.ended()
        (line,) = lines
        assert line["event"] == "connection closed"
        assert line["reason"] == f"node 1 of the upstream ({upstream.address}) closed the connection"
        # The upstream works again for the next connection.
        upstream.answers["heartbeat"] = ok
        async with Client(proxy.port(1)) as client:
            assert (await client.ask("heartbeat", 4, **HEARTBEAT))["error_code"] == 0


async def test_an_upstream_that_ends_an_idle_connection_ends_the_clients_without_a_line() -> None:
    async with (
        Upstream({"heartbeat": ok}) as upstream,
        proxy_before(upstream) as proxy,
        Client(proxy.port(1)) as client,
    ):
        await client.ask("heartbeat", 4, **HEARTBEAT)
        with structlog.testing.capture_logs() as lines:
            upstream.connections[1][-1].close()
            assert await client.ended()
        assert lines == []


async def test_an_upstream_that_refuses_ends_the_connection_with_one_line() -> None:
    async with Upstream({"heartbeat": ok}, nodes=(1, 2)) as upstream, proxy_before(upstream) as proxy:
        await upstream.stop(2)
        async with Client(proxy.port(2)) as client:
            with structlog.testing.capture_logs() as lines:
                client.send("heartbeat", 4, **HEARTBEAT)
                assert await client.ended()
        (line,) = lines
        assert f"node 2 of the upstream ({HOST}:{upstream.ports[2]}) cannot be reached" in line["reason"]
        assert "refused" in line["reason"].lower()


@pytest.mark.parametrize("garbage", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x00no", bytes(2)])
async def test_a_response_to_no_request_ends_the_connection(garbage: bytes) -> None:
    async with (
        Upstream({"heartbeat": lambda asked: garbage}) as upstream,
        proxy_before(upstream) as proxy,
        Client(proxy.port(1)) as client,
    ):
        client.send("heartbeat", 4, **HEARTBEAT)
        assert await client.ended()


@pytest.mark.parametrize("is_traced", [False, True], ids=["", "traced"])
@pytest.mark.parametrize(("api", "kept"), [("metadata", 4), ("metadata", -9), ("heartbeat", 4)])
async def test_a_response_that_cannot_be_read_ends_the_connection_with_one_line(
    api: str, kept: int, is_traced: bool
) -> None:
    """A response that the proxy cannot read ends the connection: the proxy reads each header, and the bodies of responses
    with addresses. The proxy forwards all other bodies unchanged."""

    def cut(asked: Asked) -> bytes:
        body = upstream.metadata(asked) if asked.api == "metadata" else {"error_code": 0}
        frame = raw.encode_response(asked.api, asked.version, asked.correlation, body)
        return frame if b"odradek-proxy" in asked.frame else frame[:kept]

    async with (
        Upstream({"metadata": cut, "heartbeat": cut}) as upstream,
        proxy_before(upstream) as proxy,
        Client(proxy.port(1)) as client,
    ):
        if is_traced:
            looking_of(proxy.proxy).trace.start()
        with structlog.testing.capture_logs() as lines:
            client.send(
                api, 9 if api == "metadata" else 4, **({"topics": []} if api == "metadata" else HEARTBEAT)
            )
            assert await client.ended()
    assert lines_of_connections(lines) == [
        f"node 1 of the upstream ({upstream.address}) sent a response that cannot be read"
    ]


def lines_of_connections(lines: list[Any]) -> list[str]:
    """The reasons of the log lines about connections. A line with a traceback has no reason and raises KeyError."""
    return [each["reason"] for each in lines if each["event"] != "event loop is late"]


async def test_a_response_that_no_one_can_read_passes_under_the_eyes_of_a_rule() -> None:
    async with (
        Upstream({"heartbeat": lambda asked: struct.pack(">iBB", asked.correlation, 0, 0)}) as upstream,
        proxy_before(upstream) as proxy,
        Client(proxy.port(1)) as client,
    ):
        looking = looking_of(proxy.proxy)
        looking.trace.start()
        looking.faults.add(parse_rule("Heartbeat -> answer error_code=27"))
        with structlog.testing.capture_logs() as lines:
            client.send("heartbeat", 4, **HEARTBEAT)
            assert await client.receive_frame() == struct.pack(">iBB", 1, 0, 0)
        assert lines_of_connections(lines) == []


@pytest.mark.parametrize(("api", "version"), [("produce", 9), ("share_fetch", 1)])
async def test_a_request_that_ends_too_early_ends_the_connection_with_one_line(
    api: str, version: int
) -> None:
    """A request that ends too early ends the connection. The proxy decodes only the field of a request that it needs."""
    async with Upstream() as upstream, proxy_before(upstream) as proxy, Client(proxy.port(1)) as client:
        with structlog.testing.capture_logs() as lines:
            header = raw.encode_header(raw.API_KEYS[api], version, 1, None, flexible=True)
            client.send_frame(header + b"\xff")
            assert await client.ended()
        assert lines_of_connections(lines) == ["malformed request"]


async def test_a_client_that_leaves_in_the_middle_leaves_nothing_behind() -> None:
    async with Upstream({"heartbeat": lambda asked: None}) as upstream, proxy_before(upstream) as proxy:
        connections = proxy.proxy.nodes[1].connections
        async with Client(proxy.port(1)) as client:
            client.send("heartbeat", 4, **HEARTBEAT)
            await until(lambda: upstream.heard("heartbeat") != [])
        await until(lambda: not connections.links)
        assert len(connections) == 0


def three_free_ports() -> int:
    """Find three consecutive free ports. Returns the first."""
    while True:
        first = raw.free_port()
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in (first + 1, first + 2):
                stack.enter_context(socket.create_server((HOST, port)))
            return first


async def test_ports_follow_the_first_one() -> None:
    async with Upstream(nodes=(1, 2, 3)) as upstream:
        free = three_free_ports()
        taken = await asyncio.start_server(lambda *_: None, HOST, free + 1)
        async with taken, proxy_before(upstream, "--port", str(free)) as proxy:
            ports = [proxy.port(node) for node in (1, 2, 3)]
    assert ports[0] == free
    assert ports[1] not in (free + 1, free)
    assert ports[2] == free + 2


async def test_a_first_port_that_is_taken_ends_the_start() -> None:
    async with Upstream() as upstream:
        port = upstream.ports[1]
        with pytest.raises(StartError, match=f"port {port} of {HOST} is in use by another process"):
            await Proxy(parse(["--upstream", upstream.address, "--port", str(port)], {})).start()


async def test_the_advertised_host_is_what_clients_are_told() -> None:
    async with (
        Upstream() as upstream,
        proxy_before(upstream, "--advertised-host", "kafka.example") as proxy,
        Client(proxy.port(1)) as client,
    ):
        (broker,) = (await client.ask("metadata", 9, topics=[]))["brokers"]
    assert (broker["host"], broker["port"]) == ("kafka.example", proxy.port(1))
