"""Kills all nodes and starts them again together, step by step, as at the first start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from broker.cluster.directories import start_refusal
from broker.cluster.errors import EXPECTED, StartError
from broker.cluster.runtime import DEAD
from broker.loop.life import LifeOver
from storage.directory import locked

if TYPE_CHECKING:
    from broker.cluster.cluster import Cluster
    from broker.cluster.runtime import NodeRuntime

Prepare = Callable[[list["NodeRuntime"]], Awaitable[None]]
"""Callback that registers starting nodes in the metadata, when their directories are locked but not yet read."""


@asynccontextmanager
async def all_killed(
    cluster: Cluster, forget: Callable[[], object], remember: Callable[[], object]
) -> AsyncIterator[None]:
    """Context manager: kill all nodes. The body of the ``with`` block starts them again.

    Raises ``StartError`` if another process uses the directory of a dead node (before any node is killed), or if the
    body raises one of ``EXPECTED``. ``forget`` is called when all nodes are dead, to remove rules that would affect the
    start. ``remember`` is called at the end, also after an error. Metadata changes in the body are synced together: at
    the end, or before a node handles requests.
    """
    try:
        for runtime in cluster.nodes.values():
            if runtime.state in DEAD:
                with locked(runtime.data_dir):
                    pass
        cluster.metadata.defer_syncs()
        try:
            cluster.kill_all_nodes()
            cluster.misroutes.clear()
            forget()
            try:
                yield
            finally:
                remember()
        finally:
            await cluster.metadata.sync_deferred()
    except EXPECTED as error:
        raise StartError(start_refusal(error)) from error


async def start_together(cluster: Cluster, node_ids: Iterable[int], prepare: Prepare) -> None:
    """Start nodes, and return when they handle requests. All tasks of their previous runtimes must have ended.

    Raises one of ``broker.cluster.errors.EXPECTED`` if a directory or port is not available, or if ``prepare`` fails;
    then no node runs. If a later part of a node's start fails, or the node is killed, the other nodes continue to
    start, and ``StartError`` is raised at the end. Raises ``BrokerEnding`` if the broker is stopping.
    """
    cluster.lifecycle.check()
    starts = _Starts(cluster)
    try:
        starts.lock_and_bind(node_ids)
        await prepare(starts.runtimes)
        await starts.each(_open_logs)
        await starts.each(_start_coordinators)
        await starts.create_topics()
        await cluster.metadata.sync_deferred()
        await starts.each(_enable_request_processing)
    except BaseException as error:
        starts.take_back(error)
        raise
    if starts.failures:
        raise StartError("; ".join(map(str, starts.failures)))


class _Starts:
    """The nodes that are starting, and the errors of those whose start has failed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._starting: list[tuple[NodeRuntime, NodeRuntime]] = []
        """(new runtime, previous runtime) of each node whose start has not failed."""
        self.failures: list[object] = []

    @property
    def runtimes(self) -> list[NodeRuntime]:
        return [runtime for runtime, _ in self._starting]

    def lock_and_bind(self, node_ids: Iterable[int]) -> None:
        """Lock directories and bind ports in one turn of the event loop, so that no node is killed in between."""
        for node_id in node_ids:
            before = self._cluster.nodes[node_id]
            runtime = self._cluster.new_life(before)
            self._starting.append((runtime, before))
            runtime.lock_and_bind()

    async def each(self, step: Callable[[Cluster, NodeRuntime], Awaitable[None]]) -> None:
        for runtime, before in tuple(self._starting):
            try:
                runtime.life.check()
                await step(self._cluster, runtime)
            except (*EXPECTED, LifeOver) as error:
                self._starting.remove((runtime, before))
                self.failures.append(self._cluster.take_back_start(runtime, before, error))

    async def create_topics(self) -> None:
        try:
            await self._cluster.startup_topics.create(self._cluster.metadata)
        except StartError as refusal:
            self.failures.append(refusal)

    def take_back(self, error: BaseException) -> None:
        for runtime, before in self._starting:
            self._cluster.take_back_start(runtime, before, error)


async def _open_logs(cluster: Cluster, runtime: NodeRuntime) -> None:
    cluster.open_logs(runtime)


async def _start_coordinators(cluster: Cluster, runtime: NodeRuntime) -> None:
    runtime.start_coordinators()


async def _enable_request_processing(cluster: Cluster, runtime: NodeRuntime) -> None:
    await cluster.enable_request_processing(runtime)
