"""Transactions whose coordinator, partitions and group live on different nodes, with a real client."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition

from broker.cluster import Cluster
from broker.metadata.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from protocol.hashing import partition_for
from tests.broker.cluster.test_cluster import bootstrap, running

PARTITIONS = 6


async def read_committed(servers: str) -> list[bytes | None]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        keys = [TopicPartition("orders", index) for index in range(PARTITIONS)]
        consumer.assign(keys)
        ends = await consumer.end_offsets(keys)
        values = []
        while any([await consumer.position(key) < ends[key] for key in keys]):
            for records in (await consumer.getmany(timeout_ms=200)).values():
                values += [record.value for record in records]
        return sorted(values, key=str)
    finally:
        await consumer.stop()


@pytest.mark.parametrize("transactional_id", ["a", "b", "c"])
async def test_partitions_of_all_nodes_get_their_markers(tmp_path: Path, transactional_id: str) -> None:
    async with running(tmp_path, "--topic", f"orders:{PARTITIONS}") as cluster:
        servers = bootstrap(cluster)
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id) as producer:
            for number in range(3):
                async with producer.transaction():
                    for partition in range(PARTITIONS):
                        await producer.send("orders", b"%d" % number, partition=partition)
                    await producer.send_offsets_to_transaction({TopicPartition("orders", 0): number}, "g")
            await producer.begin_transaction()
            for partition in range(PARTITIONS):
                await producer.send("orders", b"aborted", partition=partition)
            await producer.abort_transaction()
        values = await read_committed(servers)
        assert values == [b"%d" % number for number in range(3) for _ in range(PARTITIONS)]


REPLICATED = ("--set", "default.replication.factor=3", "--set", "min.insync.replicas=2")


def leader_of(cluster: Cluster, topic: str, key: str) -> int:
    partitions = cluster.metadata.topics[topic].partitions
    return partitions[partition_for(key, len(partitions))].leader


@pytest.mark.parametrize("way", ["stop", "kill"])
async def test_an_open_transaction_survives_its_coordinator(tmp_path: Path, way: str) -> None:
    async with running(tmp_path, "--topic", f"orders:{PARTITIONS}", *REPLICATED) as cluster:
        servers = bootstrap(cluster)
        async with AIOKafkaProducer(
            bootstrap_servers=servers, transactional_id="a", retry_backoff_ms=20
        ) as producer:
            for number in range(3):
                await producer.begin_transaction()
                for partition in range(PARTITIONS):
                    await producer.send_and_wait("orders", b"%d" % number, partition=partition)
                home = leader_of(cluster, TRANSACTION_STATE, "a")
                await _end(cluster, home, way)
                await producer.commit_transaction()
                assert leader_of(cluster, TRANSACTION_STATE, "a") != home
                await cluster.start_node(home)
        values = await read_committed(servers)
        assert values == [b"%d" % number for number in range(3) for _ in range(PARTITIONS)]


@pytest.mark.parametrize("way", ["stop", "kill"])
async def test_a_group_survives_its_coordinator(tmp_path: Path, way: str) -> None:
    async with running(tmp_path, "--topic", "orders:1", *REPLICATED) as cluster:
        servers = bootstrap(cluster)
        async with AIOKafkaProducer(bootstrap_servers=servers, acks="all", retry_backoff_ms=20) as producer:
            for number in range(4):
                await producer.send_and_wait("orders", b"%d" % number, partition=0)
        consumer = AIOKafkaConsumer(
            "orders",
            bootstrap_servers=servers,
            group_id="readers",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            retry_backoff_ms=20,
        )
        await consumer.start()
        try:
            seen = []
            for _ in range(2):
                seen += [(await consumer.getone()).value, (await consumer.getone()).value]
                home = leader_of(cluster, CONSUMER_OFFSETS, "readers")
                await _end(cluster, home, way)
                await consumer.commit()
                assert leader_of(cluster, CONSUMER_OFFSETS, "readers") != home
                assert await consumer.committed(TopicPartition("orders", 0)) == len(seen)
                await cluster.start_node(home)
            assert seen == [b"0", b"1", b"2", b"3"]
        finally:
            await consumer.stop()


async def _end(cluster: Cluster, node_id: int, way: str) -> None:
    if way == "stop":
        await cluster.stop_node(node_id)
    else:
        cluster.kill_node(node_id)
