"""Copies records in transactions (aiokafka)."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError, ProducerFenced

BOOTSTRAP, INSTANCE = sys.argv[1], sys.argv[2]


async def main():
    producer = AIOKafkaProducer(
        bootstrap_servers=BOOTSTRAP, transactional_id=f"copier-{INSTANCE}", retry_backoff_ms=20
    )
    consumer = AIOKafkaConsumer(
        "in",
        bootstrap_servers=BOOTSTRAP,
        group_id="copier",
        auto_commit_interval_ms=500,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        retry_backoff_ms=20,
    )
    await producer.start()
    await consumer.start()
    while True:
        batches = await consumer.getmany(timeout_ms=100, max_records=20)
        if batches:
            async with producer.transaction():
                sent = [
                    await producer.send("out", key=record.key, value=record.value.upper())
                    for records in batches.values()
                    for record in records
                ]
                await asyncio.gather(*sent)


try:
    asyncio.run(main())
except (ProducerFenced, KafkaError) as failure:
    sys.exit(f"ends: {failure!r}")
