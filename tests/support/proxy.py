"""Proxies for tests: one in the test's event loop in front of a scripted upstream, one as a process in front of any cluster.

async with Upstream({"heartbeat": lambda request: {"error_code": 0}}) as upstream, proxy_before(upstream) as proxy:
    async with Client(proxy.port(1)) as client:
        assert await client.ask("heartbeat", 4, group_id="g") == {...}

with ProxyProcess(tmp_path, broker.bootstrap_servers) as proxy:
    Producer({"bootstrap.servers": proxy.bootstrap_servers})
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import struct
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from odradek._server import command, ends_with_stdin
from odradek.child import Child
from proxy.options import parse
from proxy.proxy import Proxy
from tests.support import raw
from tests.support.deadlines import HANG_S, TEST_S, Deadline

Body = dict[str, Any]
Answer = Callable[["Asked"], "Body | bytes | None"]
HOST = "127.0.0.1"
SIZE = struct.Struct(">i")
NAMES = {key: name for name, key in raw.API_KEYS.items()}
DYING = b"dies"
"""Returned by a handler to close the connection instead of sending a response."""


class Asked:
    """A request that the upstream received."""

    def __init__(self, frame: bytes, node: int) -> None:
        self.frame = frame
        self.node = node
        key, self.version, self.correlation = struct.unpack_from(">hhi", frame)
        self.api = NAMES[key]

    @property
    def body(self) -> Body:
        return raw.decode_request(self.api, self.version, self.frame)


class Upstream:
    """Nodes with scripted responses: a body with kio's field names, bytes, or None for no response.

    ApiVersions and Metadata have default responses.
    """

    def __init__(self, answers: Mapping[str, Answer] | None = None, nodes: tuple[int, ...] = (1,)) -> None:
        self.answers: dict[str, Answer] = {
            "api_versions": self.versions,
            "metadata": self.metadata,
            **(answers or {}),
        }
        self.asked: list[Asked] = []
        self.ports: dict[int, int] = {}
        self.connections: dict[int, list[asyncio.StreamWriter]] = {node: [] for node in nodes}
        self.named = set(nodes)
        """Ids of the nodes that a Metadata response contains."""
        self._servers: dict[int, asyncio.Server] = {}

    async def __aenter__(self) -> Upstream:
        for node in self.connections:
            await self.start(node)
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in list(self._servers):
            await self.stop(node)

    async def start(self, node: int) -> None:
        self.connections.setdefault(node, [])
        server = await asyncio.start_server(lambda reader, writer: self._serve(node, reader, writer), HOST, 0)
        self._servers[node] = server
        self.ports[node] = server.sockets[0].getsockname()[1]

    async def stop(self, node: int) -> None:
        """Close the node's port and its connections."""
        server = self._servers.pop(node)
        server.close()
        for writer in self.connections[node]:
            writer.close()
        await server.wait_closed()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.ports[min(self.ports)]}"

    def heard(self, api: str) -> list[Asked]:
        """The requests of an API that the upstream has received."""
        return [each for each in self.asked if each.api == api and b"odradek-proxy" not in each.frame]

    async def _serve(self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections[node].append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
                asked = Asked(await reader.readexactly(size), node)
                self.asked.append(asked)
                answer = self.answers[asked.api](asked)
                if answer == DYING:
                    break
                if answer is None:
                    continue
                if not isinstance(answer, bytes):
                    fields = raw.response_fields(asked.api, asked.version)
                    body = {name: value for name, value in answer.items() if name in fields}
                    answer = raw.encode_response(asked.api, asked.version, asked.correlation, body)
                writer.write(SIZE.pack(len(answer)) + answer)
                await writer.drain()
        writer.close()

    def versions(self, asked: Asked) -> Body:
        """An ApiVersions response with every API and version of kio, and an unknown API (9999)."""
        known = [
            {"api_key": key, "min_version": min(raw.versions(name)), "max_version": max(raw.versions(name))}
            for name, key in raw.API_KEYS.items()
        ]
        return {"error_code": 0, "api_keys": [*known, {"api_key": 9999, "min_version": 0, "max_version": 3}]}

    def brokers(self) -> list[Body]:
        return [
            {"node_id": node, "host": HOST, "port": port}
            for node, port in self.ports.items()
            if node in self.named
        ]

    def metadata(self, asked: Asked) -> Body:
        return {"brokers": self.brokers(), "cluster_id": "upstream", "controller_id": 1, "topics": []}


class RunningProxy:
    """A proxy in the test's event loop."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy

    def port(self, node: int) -> int:
        return self.proxy.nodes[node].listener.port


@contextlib.asynccontextmanager
async def proxy_before(upstream: Upstream, *arguments: str) -> AsyncIterator[RunningProxy]:
    proxy = Proxy(parse(["--upstream", upstream.address, "--port", "0", *arguments], {}))
    await proxy.start()
    try:
        yield RunningProxy(proxy)
    finally:
        await proxy.stop()


class Client:
    """One connection, with methods to send requests and receive responses."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._correlation = 0

    async def __aenter__(self) -> Client:
        self.reader, self.writer = await asyncio.open_connection(HOST, self._port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    def send(self, api: str, version: int, **body: Any) -> bytes:
        """Send a request and return its frame."""
        self._correlation += 1
        frame = raw.encode_request(api, version, body, self._correlation)
        self.send_frame(frame)
        return frame

    def send_frame(self, frame: bytes) -> None:
        self.writer.write(SIZE.pack(len(frame)) + frame)

    async def receive_frame(self) -> bytes:
        async with asyncio.timeout(HANG_S):
            (size,) = SIZE.unpack(await self.reader.readexactly(SIZE.size))
            return await self.reader.readexactly(size)

    async def ask(self, api: str, version: int, **body: Any) -> Body:
        self.send(api, version, **body)
        correlation, answer = raw.decode_response(api, version, await self.receive_frame())
        assert correlation == self._correlation
        return answer

    async def ended(self) -> bool:
        """Wait for the end of the connection. Returns False if the peer has sent more bytes before."""
        async with asyncio.timeout(HANG_S):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True


class ProxyProcess:
    """Context manager that runs `odradek proxy` in front of a cluster."""

    def __init__(self, directory: Path, upstream: str, *arguments: str, control: bool = False) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log_file = directory / "proxy.log"
        given = ["--upstream", upstream, "--port", "0", "--log-format", "json", *arguments]
        if control:
            given += ["--control-port", "0"]
        self._command = command("proxy", *given, options=[ends_with_stdin()])
        self._said: Mapping[str, Any] = {}

    def __enter__(self) -> ProxyProcess:
        self._child = Child(self._command, self.log_file, holds_input=True)
        deadline = Deadline(TEST_S)
        while not self._said:
            self._said = next((each for each in self.events if each["event"] == "started"), {})
            if not self._child.is_running and not self._said:
                raise AssertionError(f"the proxy did not start:\n{self.log_file.read_text()}")
            deadline.check("the proxy starts")
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        if self._child.is_running:
            self._child.send_signal(signal.SIGTERM)
            assert self._child.wait(HANG_S) == 0
        self._child.close_input()
        assert "Traceback" not in self.log_file.read_text(), self.log_file.read_text()

    @property
    def events(self) -> list[dict[str, Any]]:
        found = []
        for line in self.log_file.read_text().splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return [each for each in found if isinstance(each, dict) and "event" in each]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(str(each).partition("://")[2] for each in self._said["advertised"])

    @property
    def control_url(self) -> str:
        return cast(str, self._said["control"])
