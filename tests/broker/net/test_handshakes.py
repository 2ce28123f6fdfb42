"""TLS handshakes that fail, stop in the middle or never begin, with real sockets, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
import uvloop

from broker.config.definitions import defaults
from broker.config.endpoints import Endpoint
from broker.injection.points import FaultInjection
from broker.loop.life import NodeLife
from broker.net import handshakes
from broker.net.connections import ConnectionQuotas, Connections
from broker.net.handshakes import Handshake
from broker.net.listener_security import ListenerSecurity
from broker.net.ports import Ports
from broker.net.routes import Routes
from broker.net.server import Server
from broker.node import Node
from broker.requests.api import Api
from broker.resources.descriptors import SLOTS
from broker.security.listener_configs import ListenerConfigs
from broker.security.tls.authority import Authority
from broker.security.tls.contexts import server_context
from broker.security.tls.settings import tls_settings
from protocol.messages.heartbeat import HeartbeatResponse
from storage.config_def import ConfigError
from tests.support.clock import FakeClock
from tests.support.deadlines import HANG_S
from tests.support.raw import encode_request
from tests.support.turns import until

HEARTBEAT = 12
LISTENERS = [Endpoint("SSL", "127.0.0.1", 0, "SSL"), Endpoint("PLAINTEXT", "127.0.0.1", 0)]
IDLE_MS = 20_000
Scenario = Callable[[], Awaitable[object]]
Run = Callable[[Scenario], object]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """A function that runs a scenario on one kind of event loop. The test fails if the loop reports an error, or if a
    connection slot or a descriptor is not released."""
    complaints: list[Any] = []

    def run_scenario(scenario: Scenario) -> object:
        async def bounded() -> object:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
            open_before = descriptors()
            async with asyncio.timeout(HANG_S):
                result = await scenario()
                await until(lambda: SLOTS.open == before and descriptors() <= open_before)
            return result

        before = SLOTS.open
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(bounded())

    yield run_scenario
    assert complaints == []
    assert SLOTS.arriving == 0


def descriptors() -> int:
    """Number of open sockets of this process."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(each).startswith("socket:")
    return found


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    issued = Authority.create(datetime.now(UTC)).issue("localhost", ["localhost"])
    path: Path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_bytes(issued.key_pem() + issued.chain_pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """The TLS context of a listener with ssl.client.auth."""
    authority = Authority.create(datetime.now(UTC))
    issued = authority.issue("localhost", ["localhost"])
    folder: Path = tmp_path_factory.mktemp("tls")
    (folder / "server.pem").write_bytes(issued.key_pem() + issued.chain_pem())
    (folder / "ca.pem").write_bytes(authority.certificate_pem())
    given = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "ssl.client.auth": "required",
    }
    return server_context(tls_settings(ListenerConfigs(defaults() | given, "SSL")))


def client_of(version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    """The TLS context of a client that trusts any certificate, for one version of TLS or for all."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


CLIENT = client_of()


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        CLIENT.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        connected = self.writer.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()

    def abort(self) -> None:
        self.writer.transport.abort()

    async def is_served(self) -> bool:
        """Send a Heartbeat. False if the broker has closed the connection."""
        frame = encode_request("heartbeat", 4, {"group_id": "g", "generation_id": 1, "member_id": "m"}, 7)
        self.writer.write(struct.pack(">i", len(frame)) + frame)
        return struct.unpack_from(">i", await self._reader.read(64), 4)[0:1] == (7,)

    async def end(self) -> type[Exception] | None:
        """Read until the connection ends, and return the exception that ended it, None for an orderly end."""
        try:
            while await self._reader.read(65536):
                pass
        except ConnectionError as error:
            return type(error)
        return None


class Served:
    """A node's listeners and connections."""

    def __init__(
        self, server: Server, connections: Connections, clock: FakeClock, stack: AsyncExitStack
    ) -> None:
        self.server, self.connections, self.clock = server, connections, clock
        self._stack = stack

    async def client(
        self, said: bytes = b"", *, tls: ssl.SSLContext | None = None, listener: int = 0
    ) -> Client:
        port = self.server.listeners[listener].port
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        client = Client(reader, writer)
        self._stack.callback(client.abort)
        writer.write(said)
        return client

    async def neighbour(self) -> Client:
        return await self.client(listener=1)

    async def silent(self) -> tuple[Client, Client, Client]:
        """Connect clients that stop before, in and after their ClientHello."""
        hello = client_hello()
        found = await self.client(), await self.client(hello[: len(hello) // 2]), await self.client(hello)
        await until(lambda: self.connections.accepted >= len(found))
        return found


@contextlib.asynccontextmanager
async def serving(tls: Callable[[], ssl.SSLContext], **quotas: int) -> AsyncIterator[Served]:
    apis = {HEARTBEAT: Api(HEARTBEAT, "Heartbeat", range(5), range(5), lambda *_: HeartbeatResponse())}
    node = cast(Node, SimpleNamespace(injection=FaultInjection(), life=NodeLife()))
    clock, ports = FakeClock(), Ports()
    connections = Connections(
        node,
        Routes(apis),
        ConnectionQuotas(**{"idle_ms_max": IDLE_MS, **quotas}),
        clock,
        asyncio.get_running_loop(),
        security={"SSL": ListenerSecurity(clock, tls)},
    )
    connections.watch_idleness()
    server = Server(50, ports)
    server.bind(LISTENERS, [])
    await server.accept(connections)
    async with AsyncExitStack() as stack:
        yield Served(server, connections, clock, stack)
        server.stop_accepting()
        ports.close()
        await connections.close()
        assert len(connections) == 0


def test_a_client_with_a_completed_handshake_is_served(run: Run, context: ssl.SSLContext) -> None:
    async def scenario() -> None:
        async with serving(lambda: context) as served:
            client = await served.client(tls=CLIENT)
            assert await client.is_served()
            assert len(served.connections) == 1
            (connection,) = served.connections._open
            assert (connection.connection_id, served.connections.accepted) == (1, 1)

    run(scenario)


@pytest.mark.parametrize("leave", [Client.close, Client.reset], ids=["FIN", "RST"])
def test_a_probe_that_sends_nothing_is_not_logged(
    run: Run, context: ssl.SSLContext, leave: Callable[[Client], object]
) -> None:
    """A client that connects and sends nothing, such as a TCP probe of Kubernetes or a load balancer, is not logged. A
    client that begins a handshake and stops is logged."""

    async def scenario() -> None:
        async with serving(lambda: context) as served:
            neighbour = await served.neighbour()
            with structlog.testing.capture_logs() as lines:
                for _ in range(3):
                    leave(await served.client())
                await until(lambda: served.connections.accepted == 4 and len(served.connections) == 1)
                assert lines == []
                client = await served.client(client_hello()[:20])
                await until(lambda: len(served.connections) == 2)
                leave(client)
                await until(lambda: len(served.connections) == 1)
            assert await neighbour.is_served()
        assert [line["reason"] for line in lines] == ["TLS handshake failed"]

    run(scenario)


@pytest.mark.parametrize(
    "said", [b"\0\0\0\x10not a handshake!", b"\x16\x03\x01\xff\xff" + bytes(40_000), b"GET / HTTP"]
)
def test_bytes_that_are_no_handshake_cause_one_log_line(
    run: Run, context: ssl.SSLContext, said: bytes
) -> None:
    async def scenario() -> None:
        async with serving(lambda: context) as served:
            neighbour = await served.neighbour()
            with structlog.testing.capture_logs() as lines:
                client = await served.client(said)
                await client.end()
            assert await neighbour.is_served()
            await until(lambda: len(served.connections) == 1)
        (line,) = lines
        assert (line["event"], line["reason"]) == ("connection closed", "TLS handshake failed")
        assert (line["peer"], line["connection"]) == ("127.0.0.1", 2)

    run(scenario)


@pytest.mark.parametrize(
    ("version", "alert"),
    [
        (ssl.TLSVersion.TLSv1_2, "SSLV3_ALERT_HANDSHAKE_FAILURE"),
        (ssl.TLSVersion.TLSv1_3, "TLSV13_ALERT_CERTIFICATE_REQUIRED"),
    ],
)
def test_a_rejected_client_gets_an_alert(
    run: Run, asking: ssl.SSLContext, version: ssl.TLSVersion, alert: str
) -> None:
    """A rejected client gets the same TLS alert as from Kafka. Java reports an alert as a failed authentication, and an end
    without an alert as an unavailable broker."""

    async def scenario() -> None:
        async with serving(lambda: asking) as served:
            with structlog.testing.capture_logs() as lines, pytest.raises(ssl.SSLError) as heard:
                await (await served.client(tls=client_of(version))).is_served()
            assert heard.value.reason == alert
            await until(lambda: not len(served.connections))
        (line,) = lines
        assert "peer did not return a certificate" in line["error"]

    run(scenario)


def test_a_client_that_disconnects_in_its_handshake_is_logged(run: Run, context: ssl.SSLContext) -> None:
    async def scenario() -> None:
        async with serving(lambda: context) as served:
            clients = await served.silent()
            with structlog.testing.capture_logs() as lines:
                for client in clients:
                    client.writer.close()
                await until(lambda: not len(served.connections))
        closed, reset = "the client has closed the connection", "[Errno 104] Connection reset by peer"
        # The first client has sent nothing, so it is not logged.
        assert len(lines) == 2
        assert {line["error"] for line in lines} <= {closed, reset}

    run(scenario)


def test_max_connections_counts_stalled_handshakes(run: Run, context: ssl.SSLContext) -> None:
    async def scenario() -> None:
        async with serving(lambda: context, connections_max=3) as served:
            clients = await served.silent()
            neighbour = asyncio.ensure_future((await served.neighbour()).is_served())
            await turns(20)
            assert (neighbour.done(), len(served.connections)) == (False, 3)
            clients[1].writer.close()
            assert await neighbour

    run(scenario)


def test_max_connections_per_ip_counts_stalled_handshakes(run: Run, context: ssl.SSLContext) -> None:
    async def scenario() -> None:
        async with serving(lambda: context, connections_per_ip_max=4) as served:
            clients = await served.silent()
            last = await served.client(tls=CLIENT)
            assert await last.is_served(), "a connection takes over the slot of its handshake"
            with structlog.testing.capture_logs() as lines:
                await (await served.client(client_hello())).end()
            assert [line["reason"] for line in lines] == ["max.connections.per.ip reached"]
            clients[0].writer.close()
            await until(lambda: len(served.connections) == 3)
            assert await (await served.client(tls=CLIENT)).is_served()

    run(scenario)


def test_connections_max_idle_ms_closes_stalled_handshakes(run: Run, context: ssl.SSLContext) -> None:
    async def scenario() -> None:
        async with serving(lambda: context) as served:
            clients = await served.silent()
            served.clock.advance(IDLE_MS // 2)
            late = await served.client(tls=CLIENT)
            assert await late.is_served()
            with structlog.testing.capture_logs() as lines:
                served.clock.advance(IDLE_MS // 2 + IDLE_MS // 20)
                for client in clients:
                    await client.end()
            assert [line["event"] for line in lines] == ["idle connection closed"] * 3
            assert await late.is_served()

    run(scenario)


def test_a_handshake_times_out_after_a_minute(
    run: Run, context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "HANDSHAKE_S_MAX", 0.05)

    async def scenario() -> None:
        async with serving(lambda: context) as served:
            with structlog.testing.capture_logs() as lines:
                for client in await served.silent():
                    await client.end()
                await until(lambda: len(lines) == 3)
        assert {line["reason"] for line in lines} == {"TLS handshake failed"}
        assert all("0.05 seconds" in line["error"] for line in lines)

    run(scenario)


def test_a_stop_waits_for_no_handshake(run: Run, context: ssl.SSLContext) -> None:
    async def scenario() -> None:
        async with serving(lambda: context) as served:
            clients = await served.silent()
            served.server.stop_accepting()
            await served.connections.close(grace_s=HANG_S)
            assert len(served.connections) == 0
            assert {await client.end() for client in clients} <= {None, ConnectionResetError}

    run(scenario)


@pytest.mark.parametrize("at_once", [False, True], ids=["under way", "just accepted"])
def test_a_kill_resets_stalled_handshakes(
    run: Run, context: ssl.SSLContext, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Handshake.begin

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with serving(lambda: context) as served:

            def kill() -> None:
                served.connections.life.end()
                served.server.stop_accepting()
                served.connections.reset()

            if at_once:
                monkeypatch.setattr(Handshake, "begin", lambda each: (loop.call_soon(kill), begin(each)))
                clients: Any = [await served.client(client_hello())]
            else:
                clients = await served.silent()
                kill()
            assert [await client.end() for client in clients] == [ConnectionResetError] * len(clients)
            await until(lambda: len(served.connections) == 0)

    run(scenario)


def test_a_paused_node_continues_no_handshake(run: Run, context: ssl.SSLContext) -> None:
    async def scenario() -> None:
        async with serving(lambda: context) as served:
            served.connections.pause()
            client = asyncio.ensure_future(served.client(tls=CLIENT))
            await until(lambda: len(served.connections) == 1)
            await turns(50)
            assert not client.done()
            served.connections.resume()
            assert await (await client).is_served()

    run(scenario)


def test_handshakes_of_a_paused_node_end_with_it(run: Run, context: ssl.SSLContext) -> None:
    async def scenario() -> None:
        async with serving(lambda: context) as served:
            served.connections.pause()
            clients = await served.silent()
            served.connections.reset()
            assert [await client.end() for client in clients] == [ConnectionResetError] * 3

    run(scenario)


def test_without_a_tls_context_the_connection_is_closed(run: Run) -> None:
    def no_context() -> ssl.SSLContext:
        raise ConfigError("the key store is gone")

    async def scenario() -> None:
        async with serving(no_context) as served:
            neighbour = await served.neighbour()
            with structlog.testing.capture_logs() as lines:
                await (await served.client(client_hello())).end()
            assert [(line["log_level"], line["event"]) for line in lines] == [
                ("error", "TLS handshake failed")
            ]
            assert await neighbour.is_served()

    run(scenario)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
