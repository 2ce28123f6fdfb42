"""A dead node serves no connection, in every order of accept, kill and start."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from broker.cluster import Cluster
from protocol.codec import request_frame
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from server.options import parse
from tests.support.deadlines import HANG_S

LIST_OFFSETS, VERSION = 2, 5
CONNECTS = 20
TURNS = range(7)
"""Numbers of event loop turns from a client's connect to the kill. Accept, protocol factory and ``connection_made`` take a
turn each."""
Scenario = Callable[[], Awaitable[object]]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Scenario], object]:
    def run_scenario(scenario: Scenario) -> object:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(scenario())  # type: ignore[arg-type]

    return run_scenario


@asynccontextmanager
async def running(data_dir: Path, nodes: int) -> AsyncIterator[Cluster]:
    arguments = ["--nodes", str(nodes), "--port", "0", "--data-dir", str(data_dir), "--topic", "orders:3"]
    cluster = Cluster(parse(arguments, {}))
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()


def connect(port: int) -> socket.socket | None:
    """Connect without a turn of the event loop, so that the connection is in the listener's backlog. None if the connection
    is refused."""
    client = socket.socket()
    try:
        client.connect(("127.0.0.1", port))
    except OSError:
        client.close()
        return None
    client.settimeout(HANG_S)
    return client


def question() -> bytes:
    """A ListOffsets request, to which only a leader responds with an offset of its log."""
    latest = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
    topic = ListOffsetsTopic(name="orders", partitions=[latest])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])
    return request_frame(LIST_OFFSETS, VERSION, 1, "storm", request)


def is_answered(client: socket.socket) -> bool:
    """Send a request; True if the connection gets a response."""
    try:
        client.sendall(question())
        return bool(client.recv(4))
    except OSError:
        return False


async def answered(clients: list[socket.socket]) -> int:
    found = await asyncio.gather(*(asyncio.to_thread(is_answered, client) for client in clients))
    return sum(found)


# asyncio's own loop loses accepted sockets when their server closes in the same turn. uvloop does not.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_connection_accepted_in_the_turn_of_a_kill_is_never_served(
    run: Callable[[Scenario], object], tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with running(tmp_path, nodes=1) as cluster:
            for turns in TURNS:
                await storm(cluster, turns)

    run(scenario)


async def storm(cluster: Cluster, turns: int) -> None:
    """Connect clients, kill the node ``turns`` turns of the loop later, and start it again. Check that no client gets a
    response."""
    port = cluster.nodes[1].listeners[0].port
    clients = [client for client in (connect(port) for _ in range(CONNECTS)) if client is not None]
    assert len(clients) == CONNECTS
    try:
        for _ in range(turns):
            await asyncio.sleep(0)
        cluster.kill_node(1)
        assert await answered(clients) == 0, f"served by a dead node, killed after {turns} turns"
        await cluster.start_node(1)
        assert await answered(clients) == 0, f"served by an earlier life, killed after {turns} turns"
    finally:
        for client in clients:
            client.close()
