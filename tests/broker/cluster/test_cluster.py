"""Starts, stops and kills of nodes in one process, as clients see them and as the metadata shows them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from broker.clock.durations import parse_duration_ms
from broker.clock.virtual import ALL_DOMAINS, VirtualTimer
from broker.cluster import Cluster, NoSuchNode, StartError
from broker.cluster.runtime import NodeState
from broker.net.calls import Call
from server.options import parse
from tests.support.turns import until


@asynccontextmanager
async def running(data_dir: Path, *arguments: str, nodes: int = 3) -> AsyncIterator[Cluster]:
    cluster = Cluster(
        parse(["--nodes", str(nodes), "--port", "0", "--data-dir", str(data_dir), *arguments], {})
    )
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()


def bootstrap(cluster: Cluster) -> str:
    return ",".join(f"127.0.0.1:{node.listeners[0].port}" for node in cluster.nodes.values())


def leaders(cluster: Cluster, topic: str) -> list[int]:
    return [state.leader for state in cluster.metadata.topics[topic].partitions]


ONE_REPLICA = ("--set", "default.replication.factor=1")


async def test_leaders_are_spread_and_every_node_serves_its_own(tmp_path: Path) -> None:
    async with running(tmp_path, "--topic", "orders:6") as cluster:
        assert sorted(leaders(cluster, "orders")) == [1, 1, 2, 2, 3, 3]
        async with AIOKafkaProducer(bootstrap_servers=bootstrap(cluster), acks="all") as producer:
            for partition in range(6):
                await producer.send_and_wait("orders", b"x", partition=partition)
        for partition, leader in enumerate(leaders(cluster, "orders")):
            assert (tmp_path / f"node-{leader}" / f"orders-{partition}").is_dir()


async def test_three_idle_nodes_have_few_timers_in_a_month(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Idle nodes skip their periodic work: connections, groups, producers, leadership and checkpoints cost few timers."""
    fired = []
    fire = VirtualTimer.fire_now
    monkeypatch.setattr(VirtualTimer, "fire_now", lambda timer: fired.append(timer) or fire(timer))
    async with running(tmp_path, "--topic", "orders:6") as cluster:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap(cluster))
        async with producer:
            await producer.send_and_wait("orders", b"x")
        await cluster.clock.advance(parse_duration_ms("30d"), ALL_DOMAINS)
    assert len(fired) < 200


@pytest.mark.parametrize("way", ["stop", "kill"])
async def test_a_stop_beside_another_end_is_refused(tmp_path: Path, way: str) -> None:
    """If a node is stopped or killed while a stop of the node is under way, the node ends once, and one of the calls
    fails."""
    async with running(
        tmp_path, "--topic", "orders:3", *("--set", "default.replication.factor=3")
    ) as cluster:
        first = asyncio.ensure_future(cluster.stop_node(2))
        await asyncio.sleep(0)
        if way == "stop":
            second = asyncio.ensure_future(cluster.stop_node(2))
            outcomes = await asyncio.gather(first, second, return_exceptions=True)
            assert sorted(map(str, outcomes)) == ["None", "node 2 is stopped, not running"]
        else:
            cluster.kill_node(2)
            with pytest.raises(NoSuchNode, match="node 2 is killed, not running"):
                await first
        await cluster.start_node(2)
        assert cluster.running(2) is not None


async def test_directories_of_all_nodes_belong_to_one_cluster(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass
    said = [(tmp_path / f"node-{n}" / "meta.properties").read_text() for n in (1, 2, 3)]
    assert len({line for text in said for line in text.splitlines() if line.startswith("cluster.id")}) == 1
    (tmp_path / "node-2" / "meta.properties").write_text(said[1].replace("cluster.id=", "cluster.id=x"))
    with pytest.raises(StartError, match="node-2 belongs to cluster x"):
        async with running(tmp_path):
            pass


async def test_a_killed_node_is_fenced_and_leads_again_what_only_it_can_lead(tmp_path: Path) -> None:
    async with running(tmp_path, "--topic", "orders:3", *ONE_REPLICA) as cluster:
        before = leaders(cluster, "orders")
        epochs = [state.leader_epoch for state in cluster.metadata.topics["orders"].partitions]
        cluster.kill_node(2)
        assert cluster.running(2) is None
        await until(lambda: cluster.metadata.brokers[2].fenced)
        assert leaders(cluster, "orders") == [-1 if leader == 2 else leader for leader in before]

        await cluster.start_node(2)
        assert not cluster.metadata.brokers[2].fenced
        assert leaders(cluster, "orders") == before
        after = [state.leader_epoch for state in cluster.metadata.topics["orders"].partitions]
        assert [new > old for new, old in zip(after, epochs, strict=True)] == [
            leader == 2 for leader in before
        ]


@pytest.mark.parametrize(("nodes", "replicas"), [(2, 2), (3, 3)])
async def test_a_killed_node_takes_no_partition_offline(tmp_path: Path, nodes: int, replicas: int) -> None:
    """In a cluster without settings every topic (from the command line, auto-created or internal) is replicated, so a kill
    of one node leaves a leader in each partition."""
    async with running(tmp_path, "--topic", "orders:3", nodes=nodes) as cluster:
        async with transaction_of(cluster, "before") as producer:
            await producer.send_and_wait("orders", b"before")
            await producer.send_and_wait("later", b"before")  # creates the topic
        topics = cluster.metadata.topics.values()
        assert {len(state.replicas) for topic in topics for state in topic.partitions} == {replicas}
        cluster.kill_node(nodes)
        await cluster.settled()
        assert all(state.leader > 0 for topic in topics for state in topic.partitions)
        async with transaction_of(cluster, "after") as producer:
            await producer.send_and_wait("later", b"after")


@asynccontextmanager
async def transaction_of(cluster: Cluster, transactional_id: str) -> AsyncIterator[AIOKafkaProducer]:
    running_nodes = ",".join(
        f"127.0.0.1:{node.listeners[0].port}"
        for node in cluster.nodes.values()
        if node.state is NodeState.RUNNING
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=running_nodes, transactional_id=transactional_id, retry_backoff_ms=20
    )
    await producer.start()
    try:
        async with producer.transaction():
            yield producer
    finally:
        await producer.stop()


async def test_a_killed_node_comes_back_on_its_port_with_what_was_written(tmp_path: Path) -> None:
    async with running(tmp_path, "--topic", "orders:3") as cluster:
        ports = [node.listeners[0].port for node in cluster.nodes.values()]
        partition = leaders(cluster, "orders").index(2)
        async with AIOKafkaProducer(bootstrap_servers=bootstrap(cluster), acks="all") as producer:
            await producer.send_and_wait("orders", b"before", partition=partition)
            cluster.kill_node(2)
            await cluster.start_node(2)
            assert [node.listeners[0].port for node in cluster.nodes.values()] == ports
            result = await producer.send_and_wait("orders", b"after", partition=partition)
        assert result.offset == 1


async def test_peers_of_a_killed_node_see_a_reset(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        reader, writer = await asyncio.open_connection("127.0.0.1", cluster.nodes[3].listeners[0].port)
        await until(lambda: len(cluster.nodes[3].connections) == 1)
        cluster.kill_node(3)
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", cluster.nodes[3].listeners[0].port)


async def test_a_kill_writes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, "--topic", "orders:3") as cluster:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap(cluster), acks="all") as producer:
            for partition in range(3):
                await producer.send_and_wait("orders", b"x", partition=partition)
        directory = tmp_path / "node-2"
        before = _contents(directory)
        cluster.kill_node(2)
        await until(lambda: cluster.metadata.brokers[2].fenced)
        for _ in range(100):
            await asyncio.sleep(0)
        assert _contents(directory) == before
        assert not (directory / ".kafka_cleanshutdown").exists()


def _contents(directory: Path) -> dict[str, bytes]:
    """The contents of all files in a log directory, by path, except for the metadata log, which the controller writes."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and "__cluster_metadata" not in str(path)
    }


async def test_a_node_that_stops_hands_over_and_leaves_complete_files(tmp_path: Path) -> None:
    async with running(tmp_path, "--topic", "orders:3", *ONE_REPLICA) as cluster:
        await cluster.stop_node(2)
        assert cluster.nodes[2].state is NodeState.STOPPED
        assert (tmp_path / "node-2" / ".kafka_cleanshutdown").exists()
        assert cluster.metadata.brokers[2].fenced
        await cluster.start_node(2)
        assert 2 in leaders(cluster, "orders")


@pytest.mark.parametrize("controlled", [True, False])
async def test_a_node_without_controlled_shutdown_closes_its_connections_before_it_is_fenced(
    tmp_path: Path, controlled: bool
) -> None:
    setting = ("--set", f"controlled.shutdown.enable={str(controlled).lower()}")
    async with running(tmp_path, "--topic", "orders:3", *setting) as cluster:
        stop = asyncio.ensure_future(cluster.stop_node(2))
        await until(lambda: cluster.nodes[2].state is NodeState.STOPPING)
        assert (2 in leaders(cluster, "orders")) is not controlled
        await stop
        assert 2 not in leaders(cluster, "orders")
        assert cluster.metadata.brokers[2].fenced
        assert (tmp_path / "node-2" / ".kafka_cleanshutdown").exists()


async def test_clients_create_topics_while_a_node_is_away(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        cluster.kill_node(3)
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap(cluster))
        await admin.start()
        try:
            await until(lambda: cluster.metadata.brokers[3].fenced)
            await admin.create_topics([NewTopic("late", 4, 2)])
        finally:
            await admin.close()
        assert {node for state in cluster.metadata.topics["late"].partitions for node in state.replicas} == {
            1,
            2,
        }


async def test_the_first_node_may_be_killed_like_any_other(tmp_path: Path) -> None:
    async with running(tmp_path, "--topic", "orders:3", *ONE_REPLICA) as cluster:
        cluster.kill_node(1)
        await until(lambda: cluster.metadata.brokers[1].fenced)
        await cluster.start_node(1)
        assert sorted(leaders(cluster, "orders")) == [1, 2, 3]


async def test_invalid_node_operations_fail_with_a_message(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        with pytest.raises(NoSuchNode, match="there is no node 7: this cluster has the nodes 1 to 3"):
            cluster.kill_node(7)
        with pytest.raises(NoSuchNode, match="node 1 is running, not stopped or killed"):
            await cluster.start_node(1)
        cluster.kill_node(1)
        with pytest.raises(NoSuchNode, match="node 1 is killed, not running"):
            cluster.kill_node(1)


async def test_the_node_that_is_asked_first_has_the_first_producer_ids(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        asked = [cluster.metadata.allocate_producer_id(node_id) for node_id in (3, 2, 1)]
        given = [each if isinstance(each, int) else await each for each in asked]
        assert given == [0, 1000, 2000]


async def test_producer_ids_of_nodes_never_overlap(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        given = []
        for _ in range(1100):
            for node_id in (1, 2, 3):
                allocated = cluster.metadata.allocate_producer_id(node_id)
                given.append(allocated if isinstance(allocated, int) else await allocated)
        assert len(set(given)) == len(given)


async def test_a_cluster_starts_again_as_it_was(tmp_path: Path) -> None:
    async with running(tmp_path, "--topic", "orders:6") as cluster:
        before, identity = leaders(cluster, "orders"), cluster.metadata.cluster_id
    async with running(tmp_path) as cluster:
        assert (leaders(cluster, "orders"), cluster.metadata.cluster_id) == (before, identity)
        assert all(node.node.replicas.directory.was_clean for node in cluster.nodes.values())


async def test_every_directory_is_complete(tmp_path: Path) -> None:
    async with running(tmp_path, "--topic", "orders:3"):
        pass
    logs = [tmp_path / f"node-{n}" / "__cluster_metadata-0" / f"{0:020d}.log" for n in (1, 2, 3)]
    assert len({path.read_bytes() for path in logs}) == 1


async def test_a_starting_node_has_the_current_metadata(tmp_path: Path) -> None:
    async with running(tmp_path, "--topic", "orders:3") as cluster:
        cluster.kill_node(2)
        await cluster.settled()
        of_the_controller, copy = (
            (tmp_path / f"node-{n}" / "__cluster_metadata-0" / f"{0:020d}.log") for n in (1, 2)
        )
        then = of_the_controller.read_bytes()
        assert copy.read_bytes() != then
        await cluster.start_node(2)
        assert copy.read_bytes() == then


class Fetches:
    """A call listener, which counts the Fetch requests."""

    def __init__(self) -> None:
        self.seen = 0

    def wants(self, api_key: int) -> bool:
        return api_key == 1

    def arrived(self, call: Call) -> bool:
        self.seen += 1
        return True

    def answering(self, call: Call) -> bool:
        return True


async def test_a_waiting_fetch_does_not_delay_other_requests(tmp_path: Path) -> None:
    """A waiting Fetch ends when another request follows it on the connection. In Kafka the other request waits for the
    Fetch, and such a wait made a small read of Spark half a second slower."""
    async with running(tmp_path, "--topic", "orders:1", nodes=1) as cluster:
        fetches = Fetches()
        cluster.calls.add(fetches)
        consumer = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=bootstrap(cluster),
            fetch_max_wait_ms=60_000,
            request_timeout_ms=90_000,
        )
        async with consumer:
            await until(lambda: fetches.seen)
            ends = await consumer.end_offsets(consumer.assignment())
        assert list(ends.values()) == [0]
