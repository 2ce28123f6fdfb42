"""Transactions whose coordinator, partitions and group live on different nodes, with a real client."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition

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
