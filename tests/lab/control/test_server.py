"""The control port's HTTP server: rejected requests, their error sentences, and its limits."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
import structlog
from aiohttp import ClientConnectionError

from lab.control import server
from lab.control.access import ControlConfigError
from lab.control.listener import ControlListener
from tests.lab.control.conftest import JSON, Caller, OpenControl, until


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("GET", "/v1/nonsense", None, 404, "GET /openapi.json says what there is"),
        ("PUT", "/v1/faults", {}, 405, "takes DELETE or GET or POST, not PUT"),
        ("POST", "/v1/faults", b"{", 400, "the body is not JSON: it ends too early"),
        ("POST", "/v1/faults", b"\xff\xfe", 400, ""),
        ("POST", "/v1/faults", b"[" * 100_000, 400, ""),
        ("POST", "/v1/faults", [], 400, "the body: expected `object`, got `array`"),
        (
            "POST",
            "/v1/faults",
            {"rule": "x", "rul": 1},
            400,
            "the field 'rul' is not known; did you mean rule?",
        ),
        ("POST", "/v1/faults", {"rule": 1}, 400, "the field rule: expected `str"),
        ("POST", "/v1/faults", {}, 400, "needs an action"),
        ("POST", "/v1/faults", {"rule": "EndTxn -> explode"}, 400, "'explode' is not known; known"),
        ("POST", "/v1/faults", {"rule": "EndTxn -> drop", "on": "EndTxn"}, 400, "give the rule either"),
        ("POST", "/v1/faults", {"action": "drop"}, 400, "needs an API or a point"),
        ("GET", "/v1/faults/7", None, 404, "there is no rule 7"),
        ("DELETE", "/v1/faults/7", None, 404, "there is no rule 7"),
        ("POST", "/v1/faults/7/release", {}, 404, "there is no rule 7"),
        ("POST", "/v1/faults/1/release", {"to": 7}, 404, "there is no rule"),
        ("GET", "/v1/faults/7/wait?hits=1", None, 404, "there is no rule 7"),
        ("GET", "/v1/faults/x", None, 400, "the parameter fault_id: expected `int`"),
        ("GET", "/v1/faults/1/wait?hits=0", None, 400, ">= 1"),
        ("GET", "/v1/faults/1/wait?timeout_ms=99999999", None, 400, "<= 600000"),
        ("GET", "/v1/faults/1/wait?hits=1&hits=2", None, 400, "'hits' is given more than once"),
        (
            "POST",
            "/v1/faults",
            {"foo": 1},
            400,
            "the field 'foo' is not known; known: action, match, on, rule, when",
        ),
        ("POST", "/v1/faults", b'{"rule": "x"]', 400, "the body is not JSON: expected"),
        (
            "POST",
            "/v1/topics",
            {"configs": {"a.b": "1", "c.d": 2}},
            400,
            "the field configs['c.d']: expected `str`",
        ),
        (
            "GET",
            "/v1/faults/1/wait?hist=1",
            None,
            400,
            "the parameter 'hist' is not known; did you mean hits?",
        ),
        (
            "GET",
            "/v1/topics/orders/records?x=1",
            None,
            400,
            "the parameter 'x' is not known; known: contains, header, isolation, key",
        ),
        (
            "GET",
            "/v1/topics/orders/records?isolation=x",
            None,
            400,
            "'x' is not one of read_committed, read_uncommitted",
        ),
        (
            "POST",
            "/v1/topics/orders/records",
            {"end": "x"},
            400,
            "the field end: 'x' is not one of commit, abort, none",
        ),
        (
            "POST",
            "/v1/topics/orders/records",
            {"headers": [["a", 1]]},
            400,
            "the field headers[0][1]: expected `str",
        ),
        ("GET", "/v1/faults?x=1", None, 400, "takes no parameters, but x was given"),
        ("POST", "/v1/trace/start", {"x": 1}, 400, "takes no body"),
        ("POST", "/v1/clock/advance", {"by": "7 moons"}, 400, "is not a duration"),
        ("POST", "/v1/clock/advance", {"by_ms": -1}, 400, ">= 0"),
        ("POST", "/v1/clock/advance", {"by": "1s", "by_ms": 1}, 400, "give the duration, either"),
        ("POST", "/v1/clock/advance", {}, 400, "give the duration, either"),
        ("POST", "/v1/clock/advance", {"by": "1s", "only": ["tea"]}, 400, "'tea' is not a domain"),
        ("POST", "/v1/nodes/9/kill", None, 404, "there is no node 9"),
        ("POST", "/v1/nodes/1/start", None, 409, "node 1 is running, not"),
        ("POST", "/v1/nodes/-1/stop", None, 400, ">= 0"),
        ("GET", "/v1/trace?api=Nonsense", None, 400, "no API is called 'Nonsense'"),
        ("GET", "/v1/trace?limit=0", None, 400, ">= 1"),
        ("GET", "/v1/trace/follow?outcome=lost", None, 400, "no outcome is called 'lost'"),
    ],
)
async def test_bad_input_is_refused_with_a_sentence(
    caller: Caller, method: str, path: str, body: Any, status: int, says: str
) -> None:
    found, answer = await caller(method, path, body)
    assert (found, list(answer)) == (status, ["error"]), answer
    assert says in answer["error"]


async def test_headers_of_a_strange_page_are_refused(caller: Caller) -> None:
    for headers, status in (
        ({**JSON, "Host": "evil.example"}, 403),
        ({**JSON, "Origin": "https://evil.example"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({}, 415),
    ):
        found, answer = await caller("POST", "/v1/faults", b'{"rule": "EndTxn -> drop"}', headers)
        assert (found, list(answer)) == (status, ["error"])
    assert caller.control.faults.list() == ()


async def test_health_may_be_asked_by_any_name_and_says_little(open_control: OpenControl) -> None:
    caller = await open_control(token="secret")
    assert await caller("GET", "/health", headers={"Host": "kafka.test"}) == (
        200,
        {"status": "ok", "nodes": {"1": "running"}, "offline_partitions": 0},
    )


async def test_health_counts_the_partitions_that_are_offline(caller: Caller) -> None:
    await caller.post("/v1/topics/orders/records", {"partition": 0, "value": "v"})
    (node,) = caller.control.cluster.running_nodes()
    partition = next(each for each in node.replicas.opened() if each.topic == "orders")
    partition.offline = "No space left on device"
    found = await caller.get("/health")
    assert (found["status"], found["offline_partitions"]) == ("degraded", 1)
    partition.offline = None
    assert (await caller.get("/health"))["status"] == "ok"


async def test_a_token_is_asked_for_everywhere_else(open_control: OpenControl) -> None:
    caller = await open_control(token="secret")
    for path in ("/v1/cluster", "/v1/trace", "/openapi.json"):
        assert (await caller("GET", path))[0] == 401
        assert (await caller("GET", path, headers={"Authorization": "Bearer secret"}))[0] == 200
    assert (await caller("POST", "/v1/trace/start"))[0] == 401


async def test_a_large_body_is_not_read(caller: Caller) -> None:
    status, answer = await caller("POST", "/v1/faults", b"x" * (server.BODY_BYTES_MAX + 1))
    assert status == 413
    assert str(server.BODY_BYTES_MAX) in answer["error"]


async def test_a_header_that_decides_is_given_once(caller: Caller) -> None:
    host, port = caller.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"GET /v1/cluster HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    assert b" 400 " in (await reader.readline())
    writer.close()
    await writer.wait_closed()


async def test_silent_connections_do_not_close_the_port(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the port has too many connections, a new connection closes the oldest connection that has not made a call. A
    connection that waits for its response stays open."""
    monkeypatch.setattr(server, "control_connections_max", lambda: 3)
    host, port = caller.url.removeprefix("http://").split(":")
    rule = await caller.post("/v1/faults", {"rule": "EndTxn -> drop"})
    waiting = asyncio.ensure_future(caller.get(f"/v1/faults/{rule['id']}/wait"))
    await until(lambda: caller.control.faults.get(rule["id"]).waiting)
    silent = [await asyncio.open_connection(host, int(port)) for _ in range(6)]
    for reader, _ in silent[:4]:
        assert await reader.read() == b""
    await caller.get("/health")
    assert not waiting.done()
    await caller.delete(f"/v1/faults/{rule['id']}")
    await asyncio.wait([waiting])
    for _, writer in silent:
        writer.close()
        await writer.wait_closed()


async def test_so_many_calls_at_a_time(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CALLS_MAX", 1)
    rule = await caller.post("/v1/faults", {"rule": "EndTxn -> drop"})
    waiting = asyncio.ensure_future(caller.get(f"/v1/faults/{rule['id']}/wait"))
    await until(lambda: caller.control.faults.get(rule["id"]).waiting)
    status, answer = await caller("POST", "/v1/clock/advance", {"by": "1d"})
    assert (status, answer["error"]) == (429, "1 calls are under way: wait for one of them to end")
    assert (await caller.get("/health"))["status"] == "ok"
    assert len((await caller.get("/v1/faults"))["faults"]) == 1
    assert await caller.delete("/v1/faults") == {"cleared": 1}
    with pytest.raises(AssertionError, match="rule 1 was removed after 0 hits"):
        await waiting
    await caller.post("/v1/clock/advance", {"by": "1d"})


async def test_who_hangs_up_is_not_waited_for(caller: Caller) -> None:
    rule = await caller.post("/v1/faults", {"rule": "EndTxn -> drop"})
    active = caller.control.faults.get(rule["id"])
    waiting = asyncio.ensure_future(caller.get(f"/v1/faults/{rule['id']}/wait"))
    await until(lambda: active.waiting)
    waiting.cancel()
    await until(lambda: not active.waiting)


async def test_closing_it_ends_calls_that_wait(caller: Caller) -> None:
    other = ControlListener(lambda: caller.control)
    port = await other.start()
    rule = await caller.post("/v1/faults", {"rule": "EndTxn -> drop"})
    url = f"http://127.0.0.1:{port}/v1/faults/{rule['id']}/wait?timeout_ms=600000"
    waiting = asyncio.ensure_future(caller.session.get(url))
    active = caller.control.faults.get(rule["id"])
    await until(lambda: active.waiting)
    await other.close()
    with pytest.raises(ClientConnectionError):
        await waiting
    assert not active.waiting


async def test_a_port_that_is_taken_is_said_so(caller: Caller) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ControlConfigError, match=f"{port}: in use by another process"):
            await ControlListener(lambda: caller.control, port=port).start()


async def test_a_bug_is_a_500_with_a_line_in_the_log(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(caller.control.faults), "list", lambda self: 1 / 0)
    with structlog.testing.capture_logs() as lines:
        status, answer = await caller("GET", "/v1/faults")
    assert status == 500
    assert "division by zero" in answer["error"]
    events = [line["event"] for line in lines]
    assert [event for event in events if event != "event loop is late"] == ["control call failed"]


def test_the_port_may_not_be_opened_to_others_without_a_token(tmp_path: Path) -> None:
    control: Any = None
    with pytest.raises(ControlConfigError, match="requires a token"):
        ControlListener(lambda: control, host="0.0.0.0")
