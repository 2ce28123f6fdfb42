"""A starting node can be killed at every injection point and between any two turns of the loop, and can be started again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from structlog.testing import capture_logs

from broker.clock import Domain, is_dead
from broker.cluster import Cluster, NoSuchNode, StartError
from broker.cluster.runtime import NodeState
from broker.injection.points import FaultInjection, InjectionPoint
from lab.faults import Faults
from lab.faults.text import parse_rule
from protocol.errors import ErrorCode
from server.options import parse
from storage.directory import CLEAN_MARK
from tests.support.turns import until


@asynccontextmanager
async def running(
    data_dir: Path, *arguments: str, nodes: int, injection: FaultInjection | None = None
) -> AsyncIterator[Cluster]:
    settings = parse(["--nodes", str(nodes), "--port", "0", "--data-dir", str(data_dir), *arguments], {})
    cluster = Cluster(settings, injection=injection)
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    with capture_logs() as lines:
        await cluster.start()
        try:
            yield cluster
        finally:
            await cluster.stop()
    assert complaints == []
    assert [line for line in lines if line["log_level"] == "error"] == []


def bootstrap(cluster: Cluster) -> str:
    return ",".join(f"127.0.0.1:{node.listeners[0].port}" for node in cluster.nodes.values())


class Death:
    """A fault that kills a node the next time the node reaches an injection point while the node is in ``state``."""

    def __init__(
        self, cluster: Cluster, point: str, node_id: int, state: NodeState = NodeState.STARTING
    ) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._state = state
        self._point: str | None = point
        cluster.injection.points = self

    def watches(self, point: str) -> bool:
        return point == self._point

    def reached(
        self, at: InjectionPoint, go_on: Callable[[], object], refuse: Callable[[ErrorCode], object]
    ) -> None:
        if at.node_id != self._node_id or self._cluster.nodes[self._node_id].state is not self._state:
            go_on()
            return
        self._point = None
        self._cluster.kill_node(self._node_id)

    @property
    def came(self) -> bool:
        return self._point is None


def dead_timers(cluster: Cluster) -> int:
    return sum(is_dead(timer.callback) for domain in Domain for timer in cluster.clock.timers(domain))


async def dies_starting(cluster: Cluster, point: str, node_id: int) -> None:
    death = Death(cluster, point, node_id)
    with pytest.raises(StartError, match=f"node {node_id} was killed while it started"):
        await cluster.start_node(node_id)
    assert death.came, f"the start did not reach {point}"
    cluster.injection.points = None
    await cluster.settled()
    assert cluster.nodes[node_id].state is NodeState.KILLED
    assert cluster.metadata.brokers[node_id].fenced
    assert dead_timers(cluster) == 0


async def test_a_single_node_dies_at_each_step_that_finishes_a_decided_transaction(tmp_path: Path) -> None:
    async with running(tmp_path, "--topic", "orders:2", nodes=1) as cluster:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap(cluster), transactional_id="t")
        async with producer:
            await producer.begin_transaction()
            for partition in range(2):
                await producer.send_and_wait("orders", b"x", partition=partition)
            first = Death(cluster, "txn.marker", 1, NodeState.RUNNING)
            commit = asyncio.create_task(producer.commit_transaction())
            await until(lambda: first.came)
            for point in ("coordinator.load", "txn.marker", "log.write", "txn.complete.append"):
                await dies_starting(cluster, point, 1)
            await cluster.start_node(1)
            await commit
        assert await committed(cluster, "orders") == 2


async def committed(cluster: Cluster, topic: str) -> int:
    async with AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap(cluster),
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        found = 0
        while found < 2:
            found += sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
        return found


async def test_a_follower_dies_at_each_step_that_catches_up(tmp_path: Path) -> None:
    replicated = ("--set", "default.replication.factor=3", "--topic", "orders:1")
    async with running(tmp_path, *replicated, nodes=3) as cluster:
        leader = cluster.metadata.topics["orders"].partitions[0].leader
        follower = next(node_id for node_id in cluster.nodes if node_id != leader)
        cluster.kill_node(follower)
        await cluster.settled()
        async with AIOKafkaProducer(bootstrap_servers=bootstrap(cluster), acks=1) as producer:
            await producer.send_and_wait("orders", b"x")
        for point in ("replica.append", "log.write", "replica.append"):
            await dies_starting(cluster, point, follower)
        await cluster.start_node(follower)
        await until(lambda: follower in cluster.metadata.topics["orders"].partitions[0].isr)


@pytest.mark.parametrize("nodes", [1, 3])
async def test_a_node_dies_in_every_turn_of_its_start(tmp_path: Path, nodes: int) -> None:
    replicated = ("--set", f"default.replication.factor={nodes}", "--topic", "orders:3")
    async with running(tmp_path, *replicated, nodes=nodes) as cluster:
        cluster.kill_node(nodes)
        deaths = 0
        while True:
            start = asyncio.create_task(cluster.start_node(nodes))
            for _ in range(deaths + 1):
                await asyncio.sleep(0)
            if cluster.nodes[nodes].state is not NodeState.STARTING:
                break
            cluster.kill_node(nodes)
            with pytest.raises(StartError, match="killed while it started"):
                await start
            await cluster.settled()
            assert cluster.nodes[nodes].state is NodeState.KILLED
            assert cluster.metadata.brokers[nodes].fenced
            assert dead_timers(cluster) == 0
            deaths += 1
        await start
        assert deaths > 2
        assert cluster.running(nodes) is not None
        assert not cluster.metadata.brokers[nodes].fenced


async def test_a_node_is_started_in_the_turn_in_which_it_is_killed_at_its_start(tmp_path: Path) -> None:
    async with running(tmp_path, "--topic", "orders:3", nodes=1) as cluster:
        for turns in range(1, 12):
            cluster.kill_node(1)
            first = asyncio.create_task(cluster.start_node(1))
            for _ in range(turns):
                await asyncio.sleep(0)
            was_starting = cluster.nodes[1].state is NodeState.STARTING
            cluster.kill_node(1)
            second = asyncio.create_task(cluster.start_node(1))
            if was_starting:
                with pytest.raises(StartError, match="killed while it started"):
                    await first
            await second
            await cluster.settled()
            assert cluster.running(1) is not None
            assert not cluster.metadata.brokers[1].fenced


async def test_two_who_start_a_node_start_it_once(tmp_path: Path) -> None:
    async with running(tmp_path, nodes=1) as cluster:
        cluster.kill_node(1)
        first = asyncio.create_task(cluster.start_node(1))
        await asyncio.sleep(0)
        with pytest.raises(NoSuchNode, match="node 1 is starting, not stopped or killed"):
            await cluster.start_node(1)
        await first


async def test_a_node_dies_in_every_turn_of_its_stop(tmp_path: Path) -> None:
    async with running(tmp_path, "--topic", "orders:3", nodes=1) as cluster:
        deaths = 0
        while True:
            stop = asyncio.create_task(cluster.stop_node(1))
            for _ in range(deaths + 1):
                await asyncio.sleep(0)
            if cluster.nodes[1].state is NodeState.STOPPED:
                break
            cluster.kill_node(1)
            with pytest.raises(
                NoSuchNode, match=r"node 1 (was killed while it stopped|is killed, not running)"
            ):
                await stop
            assert cluster.nodes[1].state is NodeState.KILLED
            assert not (tmp_path / ".kafka_cleanshutdown").exists()
            await cluster.start_node(1)
            deaths += 1
        await stop
        assert deaths > 2
        assert (tmp_path / ".kafka_cleanshutdown").exists()
        await cluster.start_node(1)


async def test_a_rule_kills_a_node_that_starts(tmp_path: Path) -> None:
    async with running(tmp_path, "--topic", "orders:1", nodes=1) as cluster:
        faults = Faults(
            cluster.injection,
            cluster.calls,
            cluster.clock,
            kill_node=cluster.kill_node,
            running=cluster.running,
        )
        async with AIOKafkaProducer(bootstrap_servers=bootstrap(cluster), transactional_id="t") as producer:
            await producer.begin_transaction()
            await producer.send_and_wait("orders", b"x")
            rules = [faults.add(parse_rule("txn.marker nth=1 -> kill")) for _ in range(2)]
            commit = asyncio.create_task(producer.commit_transaction())
            await until(lambda: rules[0].hits)
            with pytest.raises(StartError, match="killed while it started"):
                await cluster.start_node(1)
            assert rules[1].hits == 1
            await cluster.start_node(1)
            await commit
        faults.clear()


async def test_a_single_node_that_dies_at_the_start_of_the_process_can_be_started(tmp_path: Path) -> None:
    async with (
        running(tmp_path, "--topic", "orders:1", nodes=1) as cluster,
        AIOKafkaProducer(bootstrap_servers=bootstrap(cluster), transactional_id="t") as producer,
    ):
        await producer.begin_transaction()
        await producer.send_and_wait("orders", b"x")
        await producer.commit_transaction()
    injection = FaultInjection()
    settings = parse(["--port", "0", "--data-dir", str(tmp_path)], {})
    cluster = Cluster(settings, injection=injection)
    Death(cluster, "coordinator.load", 1)
    await cluster.start()
    try:
        assert cluster.nodes[1].state is NodeState.KILLED
        await cluster.settled()
        await cluster.start_node(1)
        assert cluster.running(1) is not None
    finally:
        await cluster.stop()


async def test_the_end_of_the_process_waits_for_a_node_that_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(parse(["--nodes", "2", "--port", "0", "--data-dir", str(tmp_path)], {}))
    await cluster.start()
    replicas = cluster.nodes[2].node.replicas
    close, disk = replicas.close, asyncio.Event()

    async def close_slowly(*, clean: bool) -> bool:
        await disk.wait()
        return await close(clean=clean)

    monkeypatch.setattr(replicas, "close", close_slowly)
    stopping = asyncio.create_task(cluster.stop_node(2))
    await until(lambda: cluster.nodes[2].state is NodeState.STOPPING)
    ending = asyncio.create_task(cluster.stop())
    for _ in range(10):
        await asyncio.sleep(0)
    assert cluster.nodes[1].state is NodeState.RUNNING  # the cluster's stop waits for that of node 2
    disk.set()
    await ending
    assert stopping.done()
    assert [cluster.nodes[node_id].state for node_id in (1, 2)] == [NodeState.STOPPED, NodeState.STOPPED]
    assert (tmp_path / "node-2" / CLEAN_MARK).exists()
