"""A cluster in this process with its control port, and an HTTP client for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from broker.cluster import Cluster
from lab.control.listener import ControlListener
from lab.control.ports import Control
from lab.control.wiring import control_of
from server.options import parse

JSON = {"Content-Type": "application/json"}


@dataclass
class Caller:
    """An HTTP client of the control port. Requests that change something have a JSON content type."""

    session: ClientSession
    url: str
    control: Control

    async def __call__(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Call the control port. Returns (status, decoded body)."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = JSON if headers is None else headers
        async with self.session.request(method, self.url + path, data=data, headers=headers) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if text.startswith(("{", "[")) else text

    async def get(self, path: str) -> Any:
        return await self._fine("GET", path)

    async def post(self, path: str, body: object = None) -> Any:
        return await self._fine("POST", path, body)

    async def delete(self, path: str) -> Any:
        return await self._fine("DELETE", path)

    async def _fine(self, method: str, path: str, body: object = None) -> Any:
        status, answer = await self(method, path, body)
        assert status == 200, answer
        return answer


async def until(holds: Callable[[], object]) -> None:
    """Run the event loop until a condition is true. The test's timeout bounds the wait."""
    for _ in iter(lambda: bool(holds()), True):
        await asyncio.sleep(0)


async def hang(caller: Caller) -> int:
    """Open a transaction in orders-0 that no coordinator knows. Returns its producer id."""
    body = {"partition": 0, "value": "v", "transactional_id": "lost", "end": "none"}
    written = await caller.post("/v1/topics/orders/records", body)
    node = caller.control.cluster.running_nodes()[0]
    for shard in node.transactions._runtime.all():  # lose the coordinator's state
        shard.entries.clear()
    return int(written["producer_id"])


OpenControl = Callable[..., Awaitable[Caller]]


@pytest.fixture
async def open_control(tmp_path: Path) -> AsyncIterator[OpenControl]:
    """A function that starts a new cluster and opens its control port, with options of ``ControlListener``."""
    closing: list[Callable[[], Awaitable[object]]] = []

    async def open_(nodes: int = 1, environ: Mapping[str, str] | None = None, **options: Any) -> Caller:
        data_dir = str(tmp_path / f"cluster-{len(closing)}")
        arguments = ["--nodes", str(nodes), "--port", "0", "--data-dir", data_dir, "--topic", "orders:4"]
        cluster = Cluster(parse(arguments, environ or {}))
        await cluster.start()
        closing.append(cluster.stop)
        control = control_of(cluster)
        server = ControlListener(lambda: control, **options)
        await server.start()
        closing.append(server.close)
        session = ClientSession()
        closing.append(session.close)
        return Caller(session, server.url, control)

    yield open_
    for close in reversed(closing):
        await close()


@pytest.fixture
async def caller(open_control: OpenControl) -> Caller:
    """A client of a cluster with one node and default options."""
    return await open_control()
