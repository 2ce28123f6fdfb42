"""Copies records in transactions together with the offsets (aiokafka).

One process reads all partitions, because aiokafka sends no group generation with the offsets.
"""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced

BOOTSTRAP, INSTANCE = sys.argv[1], sys.argv[2]


async def position(consumer, partitions):
    for partition in partitions:
        consumer.seek(partition, await consumer.committed(partition) or 0)


async def main():
    producer = AIOKafkaProducer(
        bootstrap_servers=BOOTSTRAP, transactional_id="aio-copier", retry_backoff_ms=20
    )
    consumer = AIOKafkaConsumer(
        bootstrap_servers=BOOTSTRAP,
        group_id="aio-copier",
        enable_auto_commit=False,
        isolation_level="read_committed",
        retry_backoff_ms=20,
    )
    await producer.start()
    await consumer.start()
    partitions = [TopicPartition("in", index) for index in sorted(await producer.partitions_for("in"))]
    consumer.assign(partitions)
    await position(consumer, partitions)
    while True:
        batches = await consumer.getmany(timeout_ms=100, max_records=20)
        if batches:
            async with producer.transaction():
                for records in batches.values():
                    for record in records:
                        await producer.send("out", key=record.key, value=record.value.upper())
                ends = {partition: records[-1].offset + 1 for partition, records in batches.items()}
                await producer.send_offsets_to_transaction(ends, "aio-copier")


try:
    asyncio.run(main())
except (ProducerFenced, KafkaError) as failure:
    sys.exit(f"ends: {failure!r}")
