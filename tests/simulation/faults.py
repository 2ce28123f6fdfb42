"""What goes wrong, when, and for how long: drawn from the seed alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from broker.clock import Domain
from broker.cluster import Cluster
from broker.runtime import State
from broker.virtual_clock import ALL_DOMAINS, DEFAULT_DOMAINS, VirtualClock
from tests.simulation.network import SimNetwork

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
MEAN_PAUSE_S: Final = 6.0


class Chaos:
    """Does harm until told to stop; ``mend`` takes all of it back."""

    def __init__(
        self,
        cluster: Cluster,
        network: SimNetwork,
        random: Random,
        clients: Sequence[str],
        say: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._network = network
        self._random = random
        self._clients = clients
        self._say = say
        self._tasks: list[asyncio.Task[None]] = []
        self._kinds = [
            self._kill,
            self._kill,
            self._lose_answers,
            self._lose_answers,
            self._cut_client,
            self._jump,
        ]
        if len(cluster.nodes) > 1:
            self._kinds += [self._cut_nodes, self._pause_follower]

    async def run(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            await asyncio.sleep(self._random.expovariate(1 / MEAN_PAUSE_S))
            kind = self._random.choice(self._kinds)
            self._tasks.append(asyncio.ensure_future(kind()))
        await asyncio.wait(self._tasks)
        for task in self._tasks:
            task.result()

    async def mend(self) -> None:
        """All nodes up, all lines whole."""
        self._network.mend_all()
        for node_id, runtime in self._cluster.nodes.items():
            if runtime.state is not State.RUNNING:
                await self._cluster.start_node(node_id)

    def _node(self) -> int:
        return self._random.choice(sorted(self._cluster.nodes))

    def _port(self, node_id: int) -> int:
        return self._cluster.nodes[node_id].listeners[0].port

    async def _kill(self) -> None:
        node_id, down_s = self._node(), self._random.uniform(0.01, 15)
        if self._cluster.nodes[node_id].state is not State.RUNNING:
            return
        self._say(f"fault: node {node_id} is killed for {down_s:.3f} s")
        self._cluster.kill_node(node_id)
        await asyncio.sleep(down_s)
        await self._cluster.start_node(node_id)
        self._say(f"fault: node {node_id} is back")

    async def _lose_answers(self) -> None:
        node_id, count = self._node(), self._random.randint(1, 3)
        self._say(f"fault: {count} answers of node {node_id} are lost")
        self._network.lose_answers(self._port(node_id), count)

    async def _cut_client(self) -> None:
        line = (self._random.choice(self._clients), self._port(self._node()))
        cut_s = self._random.uniform(0.1, 20)
        self._say(f"fault: {line} is cut for {cut_s:.3f} s")
        self._network.cut(line)
        await asyncio.sleep(cut_s)
        self._network.mend(line)

    async def _cut_nodes(self) -> None:
        a, b = self._random.sample(sorted(self._cluster.nodes), 2)
        cut_s, both = self._random.uniform(0.1, 20), self._random.random() < 0.5
        self._say(f"fault: link {a} -> {b} is cut for {cut_s:.3f} s, both ways: {both}")
        links = self._cluster.hooks.links
        cuts = [(a, b), (b, a)] if both else [(a, b)]
        for each in cuts:
            links.cut(*each)
        await asyncio.sleep(cut_s)
        for each in cuts:
            links.mend(*each)

    async def _pause_follower(self) -> None:
        node_id, paused_s = self._node(), self._random.uniform(0.1, 20)
        self._say(f"fault: replicas of node {node_id} stand still for {paused_s:.3f} s")
        self._cluster.hooks.links.pause(node_id)
        await asyncio.sleep(paused_s)
        self._cluster.hooks.links.resume(node_id)

    async def _jump(self) -> None:
        clock = self._cluster.clock
        assert isinstance(clock, VirtualClock)
        by_ms, domains = self._random.choice(
            [
                (self._random.randint(1, 120_000), DEFAULT_DOMAINS),
                (self._random.randint(1, HOUR_MS), frozenset({self._random.choice(list(Domain))})),
                (self._random.randint(1, HOUR_MS), ALL_DOMAINS),
                (8 * DAY_MS, frozenset({Domain.IDS})),
            ]
        )
        self._say(f"fault: {sorted(domain.value for domain in domains)} move on by {by_ms} ms")
        await clock.advance(by_ms, domains)
        self._say("fault: moved")
