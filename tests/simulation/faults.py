"""Random faults. Their kinds, times and durations depend only on the seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final

from broker.clock import Domain
from broker.clock.virtual import ALL_DOMAINS, DEFAULT_DOMAINS, VirtualClock
from broker.cluster import Cluster, NoSuchNode, StartError
from broker.cluster.runtime import NodeRuntime, NodeState
from broker.injection.points import POINTS, InjectionPoint
from broker.metadata.partition_change import Election
from protocol.codec import request_codec
from protocol.errors import ErrorCode
from protocol.frame import parse_request_header
from storage.producers import TRANSACTION_VERSION_2
from tests.simulation.disks import SimDisk, Unsynced
from tests.simulation.followers import DRAFTS
from tests.simulation.network import SimNetwork
from tests.simulation.replica_faults import ReplicaFaults

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
MEAN_PAUSE_S: Final = 6.0
WRITE_TXN_MARKERS: Final = 27
SIZE_BYTES: Final = 4
LATE_MARKERS_S: Final = (0.1, 20.0)
CUT_BEHIND_MARKERS_S: Final = (0.001, 0.2)
MARKERS_S_MAX: Final = 20.0
"""Maximum seconds for which the fault ``_late_markers`` waits for a WriteTxnMarkers request."""
ACCEPT_S_MAX: Final = 20.0
"""Maximum seconds for which the fault ``_kill_at_accept`` waits for the node to accept a connection."""


class Chaos:
    """Injects faults until cancelled. ``mend`` undoes all of them."""

    def __init__(
        self,
        cluster: Cluster,
        network: SimNetwork,
        random: Random,
        clients: Sequence[str],
        say: Callable[[str], None],
        disk: SimDisk,
    ) -> None:
        self._disk = disk
        self._cluster = cluster
        self._network = network
        self._random = random
        self._clients = clients
        self._say = say
        self._tasks: list[asyncio.Task[None]] = []
        self._coming_back: set[int] = set()
        self._armed: dict[str, list[bool]] = {}
        """By injection point, one element for each of the next steps to disturb. True: the node is killed before
        the step. False: the step is delayed."""
        cluster.injection.points = self
        self._replicas = ReplicaFaults(cluster, random, say, self._kill, DRAFTS)
        self._joins_that_kill = 0
        self._alter_partition = cluster.metadata.replication_control.alter_partition
        cluster.metadata.replication_control.alter_partition = self._altering
        self._kinds = [
            *[self._kill] * 2,
            *[self._kill_at_accept] * 2,
            self._stop,
            *[self._slow_down] * 3,
            *[self._arm_point] * 6,
            *[self._lose_answers] * 2,
            self._cut_client,
            self._jump,
            self._fail_disk,
        ]
        if len(cluster.nodes) > 1:
            self._kinds += [
                self._cut_nodes,
                *[self._slow_links] * 2,
                self._pause_follower,
                self._elect,
                *[self._kill_at_join] * 2,
                *[self._late_markers] * 3,
                self._reassign,
                self._cut_power,
                *[self._replicas.lose_leader] * 2,
                *[self._replicas.hold_write] * 2,
            ]

    async def run(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            await asyncio.sleep(self._random.expovariate(1 / MEAN_PAUSE_S))
            kind = self._random.choice(self._kinds)
            self._tasks.append(asyncio.ensure_future(kind()))
        self._armed.clear()
        while self._tasks:
            await self._tasks.pop(0)

    async def mend(self) -> None:
        """Start all nodes and restore all connections."""
        self._armed.clear()
        self._joins_that_kill = 0
        self._network.mend_all()
        self._disk.mend_all()
        for node_id, runtime in self._cluster.nodes.items():
            if runtime.state is NodeState.RUNNING and self._has_lost_partitions(runtime):
                self._cluster.kill_node(node_id)
            if self._cluster.nodes[node_id].state is not NodeState.RUNNING:
                await self._cluster.start_node(node_id)

    # ---- injection points (`broker.injection.points.PointInterceptor`)

    def watches(self, point: str) -> bool:
        return bool(self._armed.get(point)) or self._replicas.watches(point)

    def reached(
        self, at: InjectionPoint, go_on: Callable[[], object], refuse: Callable[[ErrorCode], object]
    ) -> None:
        """Handle a step of the broker: kill its node before the step, delay it, or take it by calling ``go_on``."""
        where = f"{at.point} on node {at.node_id}"
        runtime = self._cluster.nodes[at.node_id]
        if not runtime.life.alive:
            go_on()
        elif self._replicas.takes(at, partial(self._late, runtime, go_on)):
            pass
        elif not self._armed.get(at.point):
            go_on()
        elif self._armed[at.point].pop():
            self._say(f"fault: dies before {where}, {runtime.state.value}")
            is_stopping = runtime.state is NodeState.STOPPING
            self._cluster.kill_node(at.node_id)
            if not is_stopping:  # otherwise the node's stop fails, and `_stop` starts the node again
                self._tasks.append(asyncio.ensure_future(self._bring_back(at.node_id)))
        elif runtime.state is not NodeState.RUNNING:
            go_on()
        else:
            delay_s = self._random.uniform(0.001, 8)
            self._say(f"fault: {where} takes {delay_s:.3f} s")
            asyncio.get_running_loop().call_later(delay_s, self._late, runtime, go_on)

    @staticmethod
    def _late(runtime: NodeRuntime, go_on: Callable[[], object]) -> None:
        if runtime.state is not NodeState.KILLED:  # a killed process does nothing any more
            go_on()

    async def _arm_point(self) -> None:
        point = self._random.choice(sorted(POINTS))
        self._armed.setdefault(point, []).append(self._random.random() < 0.6)
        self._say(f"fault: the next {point} goes wrong")

    # ---- changes of the ISR

    async def _kill_at_join(self) -> None:
        self._joins_that_kill += 1
        self._say("fault: the next follower that is to join the ISR dies")

    async def _altering(self, topic: str, index: int, leader_epoch: int, isr: Sequence[int]) -> None:
        """Handle AlterPartition. If ``_joins_that_kill`` is not 0, first kill a follower that is to join the ISR."""
        known = self._cluster.metadata.topics.get(topic)
        joining = set(isr).difference(known.partitions[index].isr) if known is not None else set()
        if self._joins_that_kill and joining and self._is_running(min(joining)):
            self._joins_that_kill -= 1
            self._tasks.append(asyncio.ensure_future(self._kill(min(joining))))
            await asyncio.sleep(0)
            await self._cluster.settled()
        await self._alter_partition(topic, index, leader_epoch, isr)

    def _node(self) -> int:
        return self._random.choice(sorted(self._cluster.nodes))

    def _port(self, node_id: int) -> int:
        return self._cluster.nodes[node_id].listeners[0].port

    async def _kill(self, node_id: int | None = None) -> None:
        node_id = self._node() if node_id is None else node_id
        if self._is_running(node_id):
            self._say(f"fault: node {node_id} is killed")
            self._cluster.kill_node(node_id)
            await self._bring_back(node_id)

    async def _kill_at_accept(self) -> None:
        """Kill a node that has accepted a connection before the connection's protocol object learns of it."""
        node_id = self._node()
        port = self._port(node_id)
        if not self._is_running(node_id):
            return
        died = asyncio.get_running_loop().create_future()

        def die() -> None:
            if self._is_running(node_id) and not died.done():
                self._say(f"fault: node {node_id} is killed in the turn of an accept")
                self._cluster.kill_node(node_id)
                died.set_result(None)

        self._network.at_next_accept(port, die)
        self._network.reset_all(port)
        await asyncio.wait([died], timeout=ACCEPT_S_MAX)
        self._network.forget_accept(port)
        if died.done():
            await self._bring_back(node_id)

    async def _late_markers(self) -> None:
        """Delay markers of a coordinator until the same markers were sent again, or until the next transaction has records.

        Either the coordinator dies after sending the markers, and the new coordinator sends them again. Or the coordinator's
        links are cut after it has sent them, and it sends them again itself, but only if each transaction has an epoch of
        its own (KIP-890). Without KIP-890 a late marker of the same coordinator cannot be distinguished from a marker of the
        producer's next transaction, and ends that transaction, in Kafka too.
        """
        late_s, dies = self._random.uniform(*LATE_MARKERS_S), self._random.random() < 0.5
        cut_s = self._random.uniform(*CUT_BEHIND_MARKERS_S)
        sent: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def behind(client_id: str) -> None:
            node_id = int(client_id.removeprefix("broker-").removesuffix("-txn-marker-sender"))
            self._say(f"fault: markers of node {node_id} are {late_s:.3f} s late")
            if not self._is_running(node_id) or sent.done():
                return
            if dies:
                self._say(f"fault: node {node_id} is killed behind its markers")
                self._cluster.kill_node(node_id)
            sent.set_result(node_id)

        self._network.hold_next(
            WRITE_TXN_MARKERS, late_s, behind, lambda frame: dies or _has_epochs_of_their_own(frame)
        )
        await asyncio.wait([sent], timeout=MARKERS_S_MAX)
        self._network.hold_no_more(WRITE_TXN_MARKERS)
        if sent.done() and dies:
            await self._bring_back(sent.result())
        elif sent.done():
            self._say(f"fault: links from node {sent.result()} are cut behind its markers for {cut_s:.3f} s")
            await self._cut_links_from(sent.result(), cut_s)

    async def _cut_links_from(self, node_id: int, cut_s: float) -> None:
        links, others = (
            self._cluster.injection.links,
            [each for each in self._cluster.nodes if each != node_id],
        )
        for each in others:
            links.cut(node_id, each)
        await asyncio.sleep(cut_s)
        for each in others:
            links.mend(node_id, each)

    async def _cut_power(self) -> None:
        """Kill a node and lose its unsynced bytes, in partitions that another in-sync replica has."""
        node_id = self._node()
        runtime = self._cluster.nodes[node_id]
        if runtime.state is not NodeState.RUNNING or not self._is_backed_up(node_id):
            return
        self._say(f"fault: node {node_id} has no power")
        unsynced = [
            Unsynced(each)
            for each in runtime.node.replicas.opened()
            if each.log.segments and each.log.flushed_offset < each.log.log_end_offset
        ]
        self._cluster.kill_node(node_id)
        for each in unsynced:
            self._say(f"fault: {each.path.parent.name}: {each.lose(self._random)}")
        await self._bring_back(node_id)

    def _is_backed_up(self, node_id: int) -> bool:
        """Whether each partition with this node in its ISR also has another running node in the ISR.

        Otherwise Kafka too would lose records.
        """
        running = {node.node_id for node in self._cluster.running_nodes()} - {node_id}
        return all(
            node_id not in state.isr or running.intersection(state.isr)
            for topic in self._cluster.metadata.topics.values()
            for state in topic.partitions
        )

    async def _fail_disk(self) -> None:
        """Make a system call fail on one node for a while. If that node's partitions go offline, restart the node."""
        node_id, failing_s = self._node(), self._random.uniform(0.1, 20)
        call = self._random.choice(("fsync", "pwritev"))
        directory = self._cluster.nodes[node_id].data_dir
        self._say(f"fault: {call} fails on node {node_id} for {failing_s:.3f} s")
        self._disk.fail(directory, call)
        await asyncio.sleep(failing_s)
        self._disk.mend(directory)
        runtime = self._cluster.nodes[node_id]
        if runtime.state is NodeState.RUNNING and self._has_lost_partitions(runtime):
            await self._kill(node_id)

    @staticmethod
    def _has_lost_partitions(runtime: NodeRuntime) -> bool:
        return any(partition.offline is not None for partition in runtime.node.replicas.opened())

    async def _stop(self) -> None:
        node_id = self._node()
        if not self._is_running(node_id):
            return
        self._say(f"fault: node {node_id} is stopped")
        try:
            await self._cluster.stop_node(node_id)
        except NoSuchNode as death:
            self._say(f"fault: {death}")
        await self._bring_back(node_id)

    async def _bring_back(self, node_id: int) -> None:
        """Start a node after a while, and again if it dies during the start. Does nothing if another fault starts it."""
        if node_id in self._coming_back:
            return
        self._coming_back.add(node_id)
        while True:
            down_s = self._random.uniform(0.01, 15)
            self._say(f"fault: node {node_id} stays away for {down_s:.3f} s")
            await asyncio.sleep(down_s)
            try:
                await self._cluster.start_node(node_id)
            except StartError as death:
                self._say(f"fault: {death}")
            else:
                self._say(f"fault: node {node_id} is back")
                self._coming_back.remove(node_id)
                return

    def _is_running(self, node_id: int) -> bool:
        return self._cluster.nodes[node_id].state is NodeState.RUNNING

    async def _slow_down(self) -> None:
        port, delay_s = self._port(self._node()), self._random.uniform(0.01, 2)
        self._say(f"fault: port {port} is slower by {delay_s:.3f} s")
        self._network.slow_down(port, delay_s)
        await asyncio.sleep(self._random.uniform(0.1, 20))
        self._network.slow_down(port, 0)

    async def _elect(self) -> None:
        """Run a preferred leader election of all partitions. It elects each preferred leader that is in the ISR."""
        metadata = self._cluster.metadata
        keys = [(topic.name, state.index) for topic in metadata.topics.values() for state in topic.partitions]
        self._say("fault: preferred leaders are elected")
        await metadata.replication_control.elect(keys, Election.PREFERRED)

    async def _reassign(self) -> None:
        """Reassign a partition to other replicas, or to the same replicas in another order."""
        metadata, nodes = self._cluster.metadata, sorted(self._cluster.nodes)
        keys = [(topic.name, state.index) for topic in metadata.topics.values() for state in topic.partitions]
        key = self._random.choice(keys)
        wanted = self._random.sample(nodes, self._random.randint(2, len(nodes)))
        self._say(f"fault: {key} moves to {wanted}")
        await metadata.replication_control.reassign([(key, wanted)])

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
        links = self._cluster.injection.links
        cuts = [(a, b), (b, a)] if both else [(a, b)]
        for each in cuts:
            links.cut(*each)
        await asyncio.sleep(cut_s)
        for each in cuts:
            links.mend(*each)

    async def _slow_links(self) -> None:
        """Delay links, so that followers get batches and high watermarks late, as over a real network."""
        slow_s = self._random.uniform(1, 60)
        delays = {
            (a, b): self._random.choice((0, 5, 50, self._random.randint(1, 800)))
            for a in self._cluster.nodes
            for b in self._cluster.nodes
            if a != b
        }
        delays = {link: delay_ms for link, delay_ms in delays.items() if delay_ms}
        self._say(f"fault: links are slower by {delays} ms for {slow_s:.3f} s")
        links = self._cluster.injection.links
        for link, delay_ms in delays.items():
            links.slow(*link, delay_ms)
        await asyncio.sleep(slow_s)
        for link, delay_ms in delays.items():
            links.quicken(*link, delay_ms)

    async def _pause_follower(self) -> None:
        node_id, paused_s = self._node(), self._random.uniform(0.1, 20)
        self._say(f"fault: replicas of node {node_id} stand still for {paused_s:.3f} s")
        self._cluster.injection.links.pause(node_id)
        await asyncio.sleep(paused_s)
        self._cluster.injection.links.resume(node_id)

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


def _has_epochs_of_their_own(frame: bytes) -> bool:
    """Whether all markers of a WriteTxnMarkers request belong to transactions with an epoch of their own (KIP-890)."""
    header = parse_request_header(frame[SIZE_BYTES:])
    codec = request_codec(header.api_key, header.api_version)
    request = codec.decode(frame[SIZE_BYTES:], header.body_offset)
    return all(marker.transaction_version >= TRANSACTION_VERSION_2 for marker in request.markers)
