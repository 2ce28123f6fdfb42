"""Copies records; remembers what it has copied, and skips it."""

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
copied = set()


def delivered(error, _):
    if error:
        sys.exit(f"ends: {error}")


consumer.subscribe(["in"])
while True:
    messages = [each for each in consumer.consume(20, timeout=0.1) if each.error() is None]
    if not messages:
        continue
    for message in messages:
        place = message.partition(), message.offset()
        if place not in copied:
            producer.produce("out", message.value().upper(), message.key(), on_delivery=delivered)
            copied.add(place)
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
