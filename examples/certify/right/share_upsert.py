"""A member of a share group: each output has the partition and the offset of its input as key."""

import sys

from confluent_kafka import Producer, ShareConsumer

bootstrap, instance = sys.argv[1], sys.argv[2]
QUICK = {"bootstrap.servers": bootstrap, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
consumer = ShareConsumer({**QUICK, "group.id": "copier", "max.poll.records": 10})
producer = Producer({**QUICK, "enable.idempotence": True, "retry.backoff.ms": 20})


def delivered(error, _):
    if error:
        sys.exit(f"ends: {error}")


consumer.subscribe(["in"])
while True:
    for message in consumer.poll(0.1):  # accepts the records of the last poll
        if message.error() is None:
            key = f"{message.partition()}-{message.offset()}"
            producer.produce("out", key=key, value=message.value().upper(), on_delivery=delivered)
    producer.flush()
