"""Copies records with unique keys, in four threads."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

bootstrap, instance = sys.argv[1], sys.argv[2]
QUICK = {
    "bootstrap.servers": bootstrap,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "metadata.recovery.strategy": "none",
}
consumer = Consumer(
    {
        **QUICK,
        "group.id": "copier",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
)
producer = Producer({**QUICK, "enable.idempotence": True, "retry.backoff.ms": 20})


def process(message):
    time.sleep(0.02)
    key = f"{message.partition()}-{message.offset()}"
    producer.produce("out", key=key, value=message.value().upper(), on_delivery=delivered)


def delivered(error, _):
    if error:
        sys.exit(f"ends: {error}")


workers = ThreadPoolExecutor(4)
consumer.subscribe(["in"])
while True:
    producer.poll(0)
    messages = [each for each in consumer.consume(20, timeout=0.1) if each.error() is None]
    if not messages:
        continue
    for message in messages:
        workers.submit(process, message)
    ends = {each.partition(): each.offset() + 1 for each in messages}
    try:
        consumer.commit(
            offsets=[TopicPartition("in", partition, end) for partition, end in ends.items()],
            asynchronous=False,
        )
    except KafkaException as failure:
        sys.exit(f"ends: {failure}")
