"""`POST /v1/nodes/{node_id}/misroute`: which node serves a client, and when that ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from protocol.codec import read_response, request_frame
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest
from tests.lab.control.conftest import Caller, OpenControl

METADATA, API_VERSIONS = 3, 18


class Client:
    """A connection to a node's port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, api_key: int, version: int, request: object) -> Any:
        """The response; None if the connection is closed."""
        self._writer.write(request_frame(api_key, version, 1, "client", request))
        try:
            frame = await self._reader.readexactly(int.from_bytes(await self._reader.readexactly(4)))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return read_response(api_key, version, frame)

    async def served_by(self, caller: Caller) -> int | None:
        """Id of the node that serves a request of the client; None if the connection is closed."""
        request = MetadataRequest(topics=(), allow_auto_topic_creation=False)
        answer = await self.ask(METADATA, 12, request)
        return None if answer is None else caller.control.trace.entries()[-1].node_id


@asynccontextmanager
async def connected(caller: Caller, node_id: int) -> AsyncIterator[Client]:
    """A client that connects to this node's port."""
    port = caller.control.cluster.nodes[node_id].listeners[0].port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def served_by(caller: Caller, node_id: int) -> int | None:
    """Id of the node that serves a new connection to this node's port; None if the connection is closed."""
    async with connected(caller, node_id) as client:
        return await client.served_by(caller)


async def misroutes(caller: Caller) -> dict[int, int | None]:
    return {each["node_id"]: each["misrouted_to"] for each in (await caller.get("/v1/cluster"))["nodes"]}


@pytest.fixture
async def caller(open_control: OpenControl) -> Caller:
    """The control port of a broker with three nodes, whose trace is on."""
    caller = await open_control(nodes=3)
    caller.control.trace.start()
    return caller


async def test_new_connections_are_served_by_the_other_node_until_the_misroute_ends(caller: Caller) -> None:
    async with connected(caller, 2) as before:
        assert await before.served_by(caller) == 2
        assert (await caller.post("/v1/nodes/2/misroute", {"to": 1}))["misrouted_to"] == 1
        assert await misroutes(caller) == {1: None, 2: 1, 3: None}
        async with connected(caller, 2) as during:
            assert [await during.served_by(caller), await before.served_by(caller)] == [1, 2]
            assert [await served_by(caller, node_id) for node_id in (1, 3)] == [1, 3]
            assert (await caller.post("/v1/nodes/2/misroute", {"to": 2}))["misrouted_to"] is None
            assert [await served_by(caller, 2), await during.served_by(caller)] == [2, 1]
    assert [
        each.text for each in caller.control.cluster.injection.happenings if "connections" in each.text
    ] == [
        "connections to node 2 are misrouted to node 1",
        "node 2 serves its connections again",
    ]


@pytest.mark.parametrize(
    ("to", "error"),
    [(1, ErrorCode.rebootstrap_required), (2, ErrorCode.none)],
    ids=["misrouted", "not misrouted"],
)
async def test_a_client_that_sends_the_ids_it_expects_is_told(
    caller: Caller, to: int, error: ErrorCode
) -> None:
    await caller.post("/v1/nodes/2/misroute", {"to": to})
    async with connected(caller, 2) as client:
        cluster_id = caller.control.cluster.metadata.cluster_id
        request = ApiVersionsRequest(
            client_software_name="java", client_software_version="4.4.0", cluster_id=cluster_id, node_id=2
        )
        assert (await client.ask(API_VERSIONS, 5, request)).error_code == error
    assert caller.control.trace.entries()[-1].errors == ((error,) if error else ())


async def test_a_connection_is_closed_while_the_other_node_does_not_run(caller: Caller) -> None:
    await caller.post("/v1/nodes/2/misroute", {"to": 1})
    await caller.post("/v1/nodes/1/kill")
    assert await served_by(caller, 2) is None
    await caller.post("/v1/nodes/1/start")
    assert await served_by(caller, 2) == 1
    await caller.post("/v1/nodes/2/stop")
    await caller.post("/v1/nodes/2/start")
    assert await served_by(caller, 2) == 1


@pytest.mark.parametrize("act", ["reset", "snapshots/1/restore"])
async def test_a_reset_and_a_restore_end_it(caller: Caller, act: str) -> None:
    await caller.post("/v1/nodes/2/misroute", {"to": 1})
    await caller.post("/v1/snapshots")
    await caller.post(f"/v1/{act}")
    caller.control.trace.start()
    assert await misroutes(caller) == {1: None, 2: None, 3: None}
    assert await served_by(caller, 2) == 2


@pytest.mark.parametrize(("node_id", "to"), [(9, 1), (1, 9)])
async def test_a_node_that_is_not_there_is_not_found(caller: Caller, node_id: int, to: int) -> None:
    status, answer = await caller("POST", f"/v1/nodes/{node_id}/misroute", {"to": to})
    assert status == 404
    assert "there is no node 9" in answer["error"]
