"""Three nodes with real clients: leaders that are killed, replicas that catch up, consumers that fetch from a follower."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from confluent_kafka import Consumer

from broker.clock import Domain
from broker.cluster import Cluster
from broker.injection.losses import ACKS_1
from broker.injection.points import InjectionPoint
from broker.metadata.partition_change import Election
from broker.metadata.values import NO_LEADER
from broker.net.calls import Call
from protocol.errors import ErrorCode
from tests.broker.cluster.test_cluster import bootstrap, running
from tests.support.clients import value_of
from tests.support.content import Asked
from tests.support.turns import until

FETCH = 1


async def create(cluster: Cluster, name: str = "orders", partitions: int = 1, **configs: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap(cluster))
    await admin.start()
    try:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        await admin.create_topics([NewTopic(name, partitions, 3, topic_configs=settings)])
    finally:
        await admin.close()


def state(cluster: Cluster, index: int = 0):
    return cluster.metadata.topics["orders"].partitions[index]


def files(root: Path, index: int = 0) -> list[bytes]:
    """The content of the partition's segment files on each node."""
    return [
        b"".join(path.read_bytes() for path in sorted((root / f"node-{n}" / f"orders-{index}").glob("*.log")))
        for n in (1, 2, 3)
    ]


async def read_all(cluster: Cluster, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer("orders", bootstrap_servers=bootstrap(cluster), auto_offset_reset="earliest")
    await consumer.start()
    try:
        return [(await consumer.getone()).value for _ in range(count)]
    finally:
        await consumer.stop()


async def test_records_of_a_client_are_in_the_files_of_every_node(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await create(cluster)
        async with AIOKafkaProducer(bootstrap_servers=bootstrap(cluster), acks="all") as producer:
            for number in range(10):
                await producer.send_and_wait("orders", b"%d" % number)
        found = files(tmp_path)
        assert found[0]
        assert found[0] == found[1] == found[2]


async def test_a_producer_and_a_consumer_outlive_every_leader_in_turn(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await create(cluster, min_insync_replicas="2")
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap(cluster), enable_idempotence=True, retry_backoff_ms=10
        )
        consumer = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=bootstrap(cluster),
            auto_offset_reset="earliest",
            retry_backoff_ms=10,
            fetch_max_wait_ms=50,
        )
        async with producer, consumer:
            for number in range(6):
                leader = state(cluster).leader
                if number % 2:
                    cluster.kill_node(leader)
                await producer.send_and_wait("orders", b"%d" % number)
                assert (await consumer.getone()).value == b"%d" % number
                if number % 2:
                    await cluster.start_node(leader)
                    await until(lambda: len(state(cluster).isr) == 3)
        found = files(tmp_path)
        assert found[0] == found[1] == found[2]
        assert await read_all(cluster, 6) == [b"%d" % number for number in range(6)]


async def test_with_acks_1_a_client_loses_what_only_the_dead_leader_had(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await create(cluster)
        links, leader = cluster.injection.links, state(cluster).leader
        others = [n for n in (1, 2, 3) if n != leader]
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap(cluster), acks=1, retry_backoff_ms=10
        ) as producer:
            await producer.send_and_wait("orders", b"kept")
            for other in others:
                links.cut(leader, other)
            lost = await producer.send_and_wait("orders", b"lost")
            cluster.kill_node(leader)
            await until(lambda: state(cluster).leader in others)
            instead = await producer.send_and_wait("orders", b"instead")
            assert lost.offset == instead.offset == 1
            for other in others:
                links.mend(leader, other)
            await cluster.start_node(leader)
            await until(lambda: len(state(cluster).isr) == 3)
        assert await read_all(cluster, 2) == [b"kept", b"instead"]
        found = files(tmp_path)
        assert found[0] == found[1] == found[2]


async def test_a_preferred_leader_takes_over_again_and_a_partition_moves_under_load(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await create(cluster)
        first = state(cluster).replicas[0]
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap(cluster), acks="all", retry_backoff_ms=10
        ) as producer:
            await producer.send_and_wait("orders", b"0")
            await cluster.stop_node(first)
            await producer.send_and_wait("orders", b"1")
            await cluster.start_node(first)
            await until(lambda: first in state(cluster).isr)
            assert await cluster.metadata.replication_control.elect([("orders", 0)], Election.PREFERRED) == [
                None
            ]
            assert state(cluster).leader == first
            await producer.send_and_wait("orders", b"2")
            target = next(n for n in (1, 2, 3) if n != first)
            assert await cluster.metadata.replication_control.reassign([(("orders", 0), [target])]) == [None]
            await until(lambda: state(cluster).replicas == (target,))
            await producer.send_and_wait("orders", b"3")
        assert await read_all(cluster, 4) == [b"0", b"1", b"2", b"3"]
        kept = [(tmp_path / f"node-{n}" / "orders-0").is_dir() for n in (1, 2, 3)]
        assert kept == [n == target for n in (1, 2, 3)]


class Fetches:
    """A call listener, which records the nodes that get Fetch requests."""

    def __init__(self) -> None:
        self.asked: set[int] = set()

    def wants(self, api_key: int) -> bool:
        return api_key == FETCH

    def arrived(self, call: Call) -> bool:
        self.asked.add(call.context.node.node_id)
        return True

    def answering(self, call: Call) -> bool:
        return True


async def test_a_consumer_reads_from_the_replica_in_its_rack(tmp_path: Path) -> None:
    selector = "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector"
    racks = [word for n in (1, 2, 3) for word in ("--set", f"odradek.node.{n}.broker.rack=r{n}")]
    async with running(tmp_path, "--set", selector, *racks) as cluster:
        await create(cluster)
        async with AIOKafkaProducer(bootstrap_servers=bootstrap(cluster), acks="all") as producer:
            for number in range(3):
                await producer.send_and_wait("orders", b"%d" % number)
        near = next(n for n in (1, 2, 3) if n != state(cluster).leader)
        fetches = Fetches()
        cluster.calls.add(fetches)
        settings = {
            "bootstrap.servers": bootstrap(cluster),
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "client.rack": f"r{near}",
            "fetch.wait.max.ms": 50,
        }
        values = await asyncio.to_thread(_consume, settings, 3)
        assert values == [b"0", b"1", b"2"]
        assert fetches.asked == {state(cluster).leader, near}


def _consume(settings: dict[str, object], count: int) -> list[bytes]:
    consumer = Consumer(settings)
    consumer.subscribe(["orders"])
    values: list[bytes] = []
    while len(values) < count:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            values.append(value_of(message))
    consumer.close()
    return values


@pytest.mark.parametrize("clean", [True, False])
async def test_all_nodes_end_and_begin_again_with_everything(tmp_path: Path, clean: bool) -> None:
    async with running(tmp_path) as cluster:
        await create(cluster, min_insync_replicas="2")
        async with AIOKafkaProducer(bootstrap_servers=bootstrap(cluster), acks="all") as producer:
            for number in range(5):
                await producer.send_and_wait("orders", b"%d" % number)
        if not clean:
            for node_id in (1, 2, 3):
                cluster.kill_node(node_id)
    async with running(tmp_path) as cluster:
        assert await read_all(cluster, 5) == [b"%d" % number for number in range(5)]
        async with AIOKafkaProducer(bootstrap_servers=bootstrap(cluster), acks="all") as producer:
            assert (await producer.send_and_wait("orders", b"5")).offset == 5
        found = files(tmp_path)
        assert found[0] == found[1] == found[2]


async def test_a_consumer_of_a_replica_without_a_leader_sees_no_record_that_was_never_committed(
    tmp_path: Path,
) -> None:
    """A consumer of a replica without a leader gets no uncommitted record, even after the replica's background
    fsync. When the replica truncates the record, the loss is reported with acks=1."""
    lag_ms = 1000
    async with running(tmp_path, "--set", f"replica.lag.time.max.ms={lag_ms}") as cluster:
        await create(cluster)
        links, (leader, second, third) = cluster.injection.links, state(cluster).replicas
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap(cluster), acks=1, retry_backoff_ms=10
        ) as producer:
            await producer.send_and_wait("orders", b"committed")
            links.pause(second)
            await producer.send_and_wait("orders", b"never committed")
            links.cut(second, third)
            cluster.kill_node(leader)
            await until(lambda: state(cluster).leader == second)
            links.resume(second)
            await producer.send_and_wait("orders", b"of the second")
            await cluster.clock.advance(2 * lag_ms, {Domain.REPLICATION})
            await until(lambda: state(cluster).isr == (second,))
            # After a kill, the election of the last known leader would count as unclean.
            await cluster.stop_node(second)
        await until(lambda: state(cluster).leader == NO_LEADER)
        node = cluster.running(third)
        assert node is not None
        replica = node.replicas.get("orders", 0)
        assert replica is not None
        assert replica.unflushed
        await cluster.clock.advance(60_000, {Domain.RETENTION})
        assert not replica.unflushed, "the background fsync has run"
        port = cluster.nodes[third].listeners[0].port
        seen = await asyncio.to_thread(_fetch, port)
        assert (seen["error_code"], seen["high_watermark"]) == (0, 1)
        assert b"never committed" not in seen["records"]
        links.mend(second, third)
        await cluster.start_node(second)
        await until(lambda: third in state(cluster).isr)
        [loss] = cluster.injection.losses.list()
        assert (loss.first_offset, loss.acknowledged) == (1, ACKS_1)


def _fetch(port: int) -> dict[str, object]:
    """Send a consumer's Fetch to the node that listens on this port. Returns the partition's part of the response."""
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    with Asked("127.0.0.1", port) as ask:
        answer = ask.once(
            "fetch",
            11,
            replica_id=-1,
            max_bytes=1 << 20,
            topics=[{"topic": "orders", "partitions": [asked]}],
        )
    return answer["responses"][0]["partitions"][0]


class SlowDisk:
    """A fake fault rule that holds every write to the log of the topic "orders". The test releases the writes in
    ``held``."""

    def __init__(self) -> None:
        self.held: list[Callable[[], object]] = []

    def watches(self, point: str) -> bool:
        return point == "log.write"

    def reached(
        self, at: InjectionPoint, go_on: Callable[[], object], refuse: Callable[[ErrorCode], object]
    ) -> None:
        if at.topic == "orders":
            self.held.append(go_on)
        else:
            go_on()


@pytest.mark.parametrize("acks", [1, "all"])
async def test_on_a_slow_disk_a_producer_waits_and_the_loop_does_not(tmp_path: Path, acks: int | str) -> None:
    async with running(tmp_path, "--topic", "orders:1", nodes=1) as cluster:
        disk = SlowDisk()
        async with AIOKafkaProducer(bootstrap_servers=bootstrap(cluster), acks=acks) as producer:
            await producer.send_and_wait("orders", b"0")
            cluster.injection.points = disk
            sent = await producer.send("orders", b"1")
            await until(lambda: disk.held)
            other = await producer.partitions_for("orders")
            assert other == {0}, "other requests are served while the write blocks"
            for _ in range(100):
                await asyncio.sleep(0)
            assert not sent.done()
            cluster.injection.points = None
            disk.held.pop()()
            assert (await sent).offset == 1


async def test_a_failed_replica_of_a_deleted_topic_is_not_one_of_the_next_by_its_name(tmp_path: Path) -> None:
    async with running(tmp_path) as cluster:
        await create(cluster)
        deleted = cluster.metadata.topics["orders"].topic_id
        node = cluster.running_nodes()[0]
        partition = node.replicas.get("orders", 0)
        assert partition is not None
        partition.offline = "Input/output error"
        with structlog.testing.capture_logs() as lines:
            assert await cluster.metadata.replication_control.delete_topics([deleted]) == [None]
            await cluster.settled()
        assert [line for line in lines if line["log_level"] == "error"] == []
        await create(cluster)
        await cluster.metadata.replication_control.lose_replica("orders", deleted, 0, node.node_id)
        assert sorted(state(cluster).isr) == [1, 2, 3]
