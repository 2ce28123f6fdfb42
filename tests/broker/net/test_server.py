"""Listeners and limits with real sockets, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
import uvloop

from broker.clock import SystemClock
from broker.config.endpoints import Endpoint
from broker.injection.points import FaultInjection
from broker.loop.life import NodeLife
from broker.net import acceptor
from broker.net.connections import ConnectionQuotas, Connections
from broker.net.ports import BindError, Ports
from broker.net.routes import Routes
from broker.net.server import Server
from broker.node import Listener, Node
from broker.node.context import RequestContext
from broker.requests.api import Api, Handler
from broker.requests.parking import ParkedHere
from broker.resources.descriptors import SLOTS
from broker.resources.unsent import WRITE_BUFFER_HIGH_BYTES
from protocol.codec import request_frame
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.deadlines import HANG_S
from tests.support.turns import until

FETCH, HEARTBEAT = 1, 12
HERE = Endpoint("PLAINTEXT", "127.0.0.1", 0)
NODE = cast(Node, SimpleNamespace(injection=FaultInjection(), life=NodeLife()))
Scenario = Callable[[], Awaitable[object]]
Run = Callable[[Scenario], object]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """A function that runs a scenario on one kind of event loop, with a timeout."""

    def run_scenario(scenario: Scenario) -> object:
        async def bounded() -> object:
            async with asyncio.timeout(HANG_S):
                return await scenario()

        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(bounded())

    return run_scenario


class Served:
    """A running server with its connections and clients."""

    def __init__(self, server: Server, connections: Connections) -> None:
        self.server = server
        self.connections = connections
        self.port = server.listeners[0].port
        self.clients: list[Client] = []

    async def client(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self.clients.append(client)
        return client


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> int:
        """Receive a response and return its correlation id."""
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return cast(int, struct.unpack_from(">i", await self.reader.readexactly(size))[0])

    async def is_closed(self) -> bool:
        """True if the broker closes the connection without sending anything before."""
        with contextlib.suppress(ConnectionResetError):
            return await self.reader.read(1) == b""
        return True


@contextlib.asynccontextmanager
async def serving(
    handlers: dict[int, Handler], limits: ConnectionQuotas | None = None
) -> AsyncIterator[Served]:
    apis = {key: Api(key, f"api_{key}", range(18), range(18), handler) for key, handler in handlers.items()}
    connections = Connections(
        NODE, Routes(apis), limits or ConnectionQuotas(), SystemClock(), asyncio.get_running_loop()
    )
    connections.watch_idleness()
    ports = Ports()
    server = Server(50, ports)
    server.bind([HERE], [])
    await server.accept(connections)
    served = Served(server, connections)
    try:
        yield served
    finally:
        server.stop_accepting()
        ports.close()
        await connections.close()
        assert len(connections) == 0
        for client in served.clients:
            client.writer.transport.abort()
        await turns(3)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def request(key: int, version: int, message: Any, correlation_id: int) -> bytes:
    return request_frame(key, version, correlation_id, "c", message)


def heartbeat(correlation_id: int) -> bytes:
    return request(HEARTBEAT, 4, HeartbeatRequest(), correlation_id)


def pong(message: object, context: RequestContext) -> HeartbeatResponse:
    return HeartbeatResponse()


# ---- listeners


@pytest.fixture
def ports() -> Iterator[Ports]:
    with contextlib.closing(Ports()) as ports:
        yield ports


def test_a_port_0_becomes_a_port_that_is_advertised_too(ports: Ports) -> None:
    server = Server(50, ports)
    try:
        inside, outside = server.bind(
            [Endpoint("INSIDE", "127.0.0.1", 0), Endpoint("OUTSIDE", "127.0.0.1", 0)],
            [Endpoint("OUTSIDE", "kafka.example.org", 9094), Endpoint("INSIDE", "inside", 0)],
        )
    finally:
        server.stop_accepting()
    assert inside.port != outside.port
    assert 0 not in (inside.port, outside.port)
    assert inside == Listener("INSIDE", "127.0.0.1", inside.port, "inside", inside.port)
    assert outside == Listener("OUTSIDE", "127.0.0.1", outside.port, "kafka.example.org", 9094)


def test_no_client_is_let_in_before_the_broker_is_ready(run: Run, ports: Ports) -> None:
    async def scenario() -> None:
        server = Server(50, ports)
        (listener,) = server.bind([HERE], [])
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", listener.port)
        server.stop_accepting()

    run(scenario)


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0", "", "::"])
def test_localhost_is_reached_by_both_of_its_addresses(run: Run, ports: Ports, host: str) -> None:
    async def scenario() -> None:
        connections = Connections(
            NODE, Routes({}), ConnectionQuotas(), SystemClock(), asyncio.get_running_loop()
        )
        server = Server(50, ports)
        (listener,) = server.bind([Endpoint("PLAINTEXT", host, 0)], [])
        await server.accept(connections)
        reached = 0
        asked = socket.getaddrinfo("localhost", listener.port, type=socket.SOCK_STREAM)
        families = {family: address[0] for family, *_, address in asked}
        if host != "localhost" and socket.has_dualstack_ipv6():
            families |= {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
        for family, address in families.items():
            with socket.socket(family) as probe:
                probe.settimeout(HANG_S)
                probe.connect((address, listener.port))
                reached += 1
        assert reached == len(families)
        server.stop_accepting()
        await connections.close()

    run(scenario)


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BindError, match=f"listener OUTSIDE: port {port} of 127.0.0.1 is in use"):
            Server(50, Ports()).bind([Endpoint("OUTSIDE", "127.0.0.1", port)], [])


def test_an_unknown_host_is_named() -> None:
    with pytest.raises(
        BindError, match=r"listener PLAINTEXT: no address is known for the host 'no\.such\.invalid'"
    ):
        Server(50, Ports()).bind([Endpoint("PLAINTEXT", "no.such.invalid", 0)], [])


def test_tcp_nodelay_is_set(run: Run) -> None:
    async def scenario() -> None:
        async with serving({HEARTBEAT: pong}) as served:
            client = await served.client()
            client.send(heartbeat(1))
            assert await client.answer() == 1
            (registered,) = served.connections._open
            connection: Any = registered
            assert connection._transport is not None
            accepted = connection._transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    run(scenario)


# ---- a client affects no other client


GARBAGE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    struct.pack(">i", 2**31 - 1) + b"x" * 1000,
    struct.pack(">i", -1),
    struct.pack(">i", 0),
    struct.pack(">i", 8) + b"\xff" * 8,
    heartbeat(1)[:4] + b"\0\x0c\0\x04" + b"\xff" * (len(heartbeat(1)) - 8),
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_affects_only_its_sender(run: Run, garbage: bytes) -> None:
    async def scenario() -> None:
        async with serving({HEARTBEAT: pong}) as served:
            good, bad = await served.client(), await served.client()
            with structlog.testing.capture_logs() as lines:
                bad.send(garbage)
                assert await bad.is_closed()
            assert len(lines) == 1
            good.send(heartbeat(7))
            assert await good.answer() == 7
            assert len(served.connections) == 1

    run(scenario)


def test_a_frame_cut_short_by_its_sender_is_forgotten(run: Run) -> None:
    async def scenario() -> None:
        async with serving({HEARTBEAT: pong}) as served:
            client = await served.client()
            client.send(heartbeat(1)[:-1])
            opened: Any = served.connections._open
            await until(lambda: any(each._frame for each in opened))
            client.writer.close()
            await until(lambda: not len(served.connections))

    run(scenario)


def test_a_client_that_reads_nothing_is_served_little(run: Run) -> None:
    size, asked = 1_000_000, 50
    handled = 0

    def big(message: FetchRequest, context: RequestContext) -> FetchResponse:
        nonlocal handled
        handled += 1
        partition = PartitionData(records=b"r" * size)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])

    async def scenario() -> None:
        async with serving({FETCH: big, HEARTBEAT: pong}) as served:
            slow = await served.client()
            # The client's own stream would otherwise buffer responses that the test does not read.
            slow.reader._transport.pause_reading()  # type: ignore[attr-defined]
            slow.send(b"".join(request(FETCH, 11, FetchRequest(), number) for number in range(asked)))
            other = await served.client()
            for number in range(500):
                other.send(heartbeat(number))
                assert await other.answer() == number
            taken_by_sockets = 8 * size
            assert 0 < handled * size < taken_by_sockets + WRITE_BUFFER_HIGH_BYTES + size
            slow.reader._transport.resume_reading()  # type: ignore[attr-defined]
            assert [await slow.answer() for _ in range(asked)] == list(range(asked))
            assert handled == asked

    run(scenario)


def test_a_parked_request_ends_with_its_connection(run: Run) -> None:
    parked: list[ParkedHere] = []

    async def park(message: object, context: RequestContext) -> object:
        parked.append(ParkedHere(gives_way=False))
        return await parked[-1]

    async def scenario() -> None:
        async with serving({HEARTBEAT: park}) as served:
            client = await served.client()
            client.send(heartbeat(1) + heartbeat(2))
            await until(lambda: len(parked) == 1)
            client.writer.close()
            await until(parked[0].done)
            assert len(parked) == 1

    run(scenario)


# ---- limits


def test_connections_above_the_limit_wait_until_one_goes(run: Run) -> None:
    async def scenario() -> None:
        async with serving({HEARTBEAT: pong}, ConnectionQuotas(connections_max=2)) as served:
            first, second = await served.client(), await served.client()
            await until(lambda: len(served.connections) == 2)
            third = await served.client()
            third.send(heartbeat(3))
            for number in range(5):
                for client in (first, second):
                    client.send(heartbeat(number))
                    assert await client.answer() == number
            assert len(served.connections) == 2
            first.writer.close()
            assert await third.answer() == 3

    run(scenario)


def test_what_the_process_may_open_limits_connections_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SLOTS, "limit", 2)
    # Connections of earlier tests, whose event loop ended before the connections did, still count.
    monkeypatch.setattr(SLOTS, "open", 0)
    monkeypatch.setattr(SLOTS, "arriving", 0)

    async def scenario() -> None:
        async with serving({HEARTBEAT: pong}) as served:
            clients = [await served.client() for _ in range(6)]
            for number, client in enumerate(clients):
                client.send(heartbeat(number))
            for number, client in enumerate(clients):
                assert await client.answer() == number
                assert len(served.connections) <= 2
                client.writer.close()
        assert (SLOTS.open, SLOTS.arriving) == (0, 0)

    run(scenario)


def test_without_descriptors_nothing_is_accepted_until_there_are_some(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = socket.socket.accept
    failures = [
        OSError(errno.EMFILE, "Too many open files"),
        OSError(errno.ENFILE, "the same, of the system"),
    ]

    def failing(listening: socket.socket) -> object:
        if failures:
            raise failures.pop()
        return accept(listening)

    monkeypatch.setattr(acceptor, "RETRY_S", 0.01)

    async def scenario() -> None:
        async with serving({HEARTBEAT: pong}) as served:
            first = await served.client()
            first.send(heartbeat(1))
            assert await first.answer() == 1
            monkeypatch.setattr(socket.socket, "accept", failing)
            with structlog.testing.capture_logs() as lines:
                second = await served.client()
                second.send(heartbeat(2))
                assert await second.answer() == 2
            assert [line["event"] for line in lines] == ["accept paused", "accept paused"]
            monkeypatch.undo()

    run(scenario)


def test_an_idle_connection_is_closed_silently(run: Run) -> None:
    async def scenario() -> None:
        async with serving({HEARTBEAT: pong}, ConnectionQuotas(idle_ms_max=1000)) as served:
            idle, busy = await served.client(), await served.client()
            with structlog.testing.capture_logs() as lines:
                closed = asyncio.ensure_future(idle.is_closed())
                number = 0
                while not closed.done():
                    busy.send(heartbeat(number))
                    assert await busy.answer() == number
                    number += 1
            assert closed.result()
            assert number > 5
            assert [line["log_level"] for line in lines] == ["debug"]

    run(scenario)


def test_a_stop_lets_responses_leave_and_waits_for_no_client(run: Run) -> None:
    parked: list[ParkedHere] = []

    async def park(message: object, context: RequestContext) -> object:
        parked.append(ParkedHere(gives_way=False))
        return await parked[-1]

    def big(message: FetchRequest, context: RequestContext) -> FetchResponse:
        partition = PartitionData(records=b"r" * 20_000_000)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])

    async def scenario() -> None:
        async with serving({HEARTBEAT: park, FETCH: big}) as served:
            reading, waiting, stuck = [await served.client() for _ in range(3)]
            reading.send(request(FETCH, 11, FetchRequest(), 1))
            waiting.send(heartbeat(2))
            stuck.reader._transport.pause_reading()  # type: ignore[attr-defined]
            stuck.send(request(FETCH, 11, FetchRequest(), 3))
            answer = asyncio.ensure_future(reading.answer())
            await until(lambda: served.connections.requests == 3)
            await served.connections.close(grace_s=0.5)
            assert await answer == 1
            assert parked[0].done()
            assert len(served.connections) == 0

    run(scenario)


@pytest.mark.parametrize("port", [0, None], ids=["chosen by the system", "named"])
def test_a_port_can_be_bound_while_old_clients_are_still_connected(port: int | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        named = free.getsockname()[1]
    ports = Ports()
    server = Server(5, ports)
    (listener,) = server.bind([Endpoint("PLAINTEXT", "127.0.0.1", named if port is None else port)], [])
    ((bound, _),) = server._sockets
    bound.listen()
    with socket.create_connection(("127.0.0.1", listener.port)):
        accepted, _ = bound.accept()
        accepted.close()
        server.stop_accepting()
        ports.close()
        successor = Server(5, ports)
        successor.bind([Endpoint("PLAINTEXT", "127.0.0.1", listener.port)], [])
        successor.stop_accepting()
        ports.close()
