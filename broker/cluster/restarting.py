"""Dead nodes that start again together, each step for all of them, as at the first start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from broker.cluster.cluster import EXPECTED, StartError
from broker.cluster.directories import start_refusal
from broker.loop.life import LifeOver

if TYPE_CHECKING:
    from broker.cluster.cluster import Cluster
    from broker.cluster.runtime import NodeRuntime

Prepare = Callable[[list["NodeRuntime"]], Awaitable[None]]
"""Called while the directories are locked and not read yet; it has the nodes registered in the metadata."""


async def start_together(cluster: Cluster, node_ids: Iterable[int], prepare: Prepare) -> None:
    """Return once these nodes serve clients. ``StartError`` if one cannot start: then none of them runs."""
    before = [cluster.nodes[node_id] for node_id in node_ids]
    await cluster.settled()
    runtimes = []
    try:
        for each in before:
            await each.await_termination()
            runtime = cluster.new_life(each)
            runtimes.append(runtime)
            runtime.lock_and_bind()
        await prepare(runtimes)
        for runtime in runtimes:
            runtime.life.check()
            cluster.open_logs(runtime)
        for runtime in runtimes:
            runtime.start_coordinators()
        for runtime in runtimes:
            async with runtime.lifecycle_lock:
                await runtime.enable_request_processing()
    except BaseException as error:
        for runtime in runtimes:
            cluster.note_loss(runtime.node_id)
            runtime.abandon()
        cluster.nodes.update({each.node_id: each for each in before})
        if isinstance(error, (*EXPECTED, LifeOver)):
            raise StartError(start_refusal(error)) from error
        raise
