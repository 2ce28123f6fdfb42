"""Consume, transform, produce in a group (aiokafka): each input partition has its own transactional id.

The new owner of a partition first fences the previous one, and only then fetches the committed offset.
"""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import KafkaError, ProducerFenced

BOOTSTRAP, INSTANCE = sys.argv[1], sys.argv[2]


class Assigned(ConsumerRebalanceListener):
    def __init__(self, consumer):
        self.consumer, self.producers, self.working = consumer, {}, asyncio.Lock()
        self.rebalances = 0

    async def on_partitions_revoked(self, revoked):
        async with self.working:
            self.rebalances += 1
            for each in self.producers.values():
                await each.stop()
            self.producers.clear()

    async def on_partitions_assigned(self, assigned):
        async with self.working:
            for partition in assigned:
                self.producers[partition] = await fencing(partition)
            await self.seek(assigned)
            self.rebalances += 1

    async def seek(self, partitions):
        for partition in partitions:
            self.consumer.seek(partition, await self.consumer.committed(partition) or 0)


async def fencing(partition):
    producer = AIOKafkaProducer(
        bootstrap_servers=BOOTSTRAP, transactional_id=f"copier-{partition.partition}", retry_backoff_ms=20
    )
    await producer.start()
    async with producer.transaction():
        return producer


async def process(producer, partition, records):
    async with producer.transaction():
        sent = [await producer.send("out", key=each.key, value=each.value.upper()) for each in records]
        await asyncio.gather(*sent)
        await producer.send_offsets_to_transaction({partition: records[-1].offset + 1}, "copier")


async def main():
    consumer = AIOKafkaConsumer(
        bootstrap_servers=BOOTSTRAP,
        group_id="copier",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        retry_backoff_ms=20,
    )
    group = Assigned(consumer)
    await consumer.start()
    consumer.subscribe(["in"], listener=group)
    while True:
        before = group.rebalances
        batches = await consumer.getmany(timeout_ms=100, max_records=20)
        async with group.working:
            if group.rebalances != before or not batches.keys() <= group.producers.keys():
                await group.seek(consumer.assignment())
                continue
            for partition, records in batches.items():
                await process(group.producers[partition], partition, records)


try:
    asyncio.run(main())
except (ProducerFenced, KafkaError) as failure:
    sys.exit(f"ends: {failure!r}")
