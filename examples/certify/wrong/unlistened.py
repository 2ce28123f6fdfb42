"""Copies records with unique keys, each at least once; commits offsets after the flush."""

import sys

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
consumer.subscribe(["in"])
while True:
    messages = [each for each in consumer.consume(20, timeout=0.1) if each.error() is None]
    if not messages:
        continue
    for message in messages:
        producer.produce(
            "out", key=f"{message.partition()}-{message.offset()}", value=message.value().upper()
        )
    if producer.flush(30):
        sys.exit("exiting: not all records were sent")
    ends = {each.partition(): each.offset() + 1 for each in messages}
    try:
        consumer.commit(
            offsets=[TopicPartition("in", partition, end) for partition, end in ends.items()],
            asynchronous=False,
        )
    except KafkaException as failure:
        sys.exit(f"ends: {failure}")
