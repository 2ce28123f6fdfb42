"""A member of a share group: rejects what it cannot process; the group has a dead-letter queue."""

import sys

from confluent_kafka import AcknowledgeType, KafkaException, Producer, ShareConsumer

bootstrap, instance = sys.argv[1], sys.argv[2]
QUICK = {"bootstrap.servers": bootstrap, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
consumer = ShareConsumer(
    {**QUICK, "group.id": "copier", "share.acknowledgement.mode": "explicit", "max.poll.records": 10}
)
producer = Producer({**QUICK, "enable.idempotence": True, "retry.backoff.ms": 20})


def delivered(error, _):
    if error:
        sys.exit(f"ends: {error}")


def process(message):
    if message.value().endswith(b"7"):
        return AcknowledgeType.REJECT
    producer.produce("out", key=message.key(), value=message.value().upper(), on_delivery=delivered)
    return AcknowledgeType.ACCEPT


consumer.subscribe(["in"])
while True:
    messages = [each for each in consumer.poll(0.1) if each.error() is None]
    results = [process(each) for each in messages]
    producer.flush()
    for message, result in zip(messages, results, strict=True):
        consumer.acknowledge(message, result)
    if messages:
        try:
            consumer.commit_sync(30)
        except KafkaException as failure:
            print(f"not acknowledged: {failure}")
