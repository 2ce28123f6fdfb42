"""A broker in this process with its trace, and a real client that connects over TCP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiokafka
import pytest

from broker.cluster import Cluster
from lab.trace.trace import Trace
from server.options import parse


class TracedBroker:
    """A cluster and its trace."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.trace = Trace(cluster.calls, cluster.clock, names=cluster.metadata.topic_name)

    @property
    def port(self) -> int:
        return self.cluster.first.listeners[0].port

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @contextlib.asynccontextmanager
    async def producer(self, transactional_id: str) -> AsyncIterator[aiokafka.AIOKafkaProducer]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, transactional_id=transactional_id, retry_backoff_ms=20
        )
        await producer.start()
        try:
            yield producer
        finally:
            await producer.stop()


StartTraced = Callable[..., Awaitable[TracedBroker]]


@pytest.fixture
async def start_traced(tmp_path: Path) -> AsyncIterator[StartTraced]:
    """A function that starts a broker with these arguments. All of them are stopped at the end of the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(*arguments: str) -> TracedBroker:
            cluster = Cluster(parse(["--port", "0", "--data-dir", str(tmp_path / "data"), *arguments], {}))
            await cluster.start()
            stack.push_async_callback(cluster.stop)
            return TracedBroker(cluster)

        yield start


@pytest.fixture
async def broker(start_traced: StartTraced) -> TracedBroker:
    """A broker with one node and the topic orders of two partitions."""
    return await start_traced("--topic", "orders:2")
