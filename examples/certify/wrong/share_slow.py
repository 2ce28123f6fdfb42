"""A member of a share group: looks each record up elsewhere, which takes a while."""

import sys
import time

from confluent_kafka import KafkaException, Producer, ShareConsumer

bootstrap, instance = sys.argv[1], sys.argv[2]
QUICK = {"bootstrap.servers": bootstrap, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
consumer = ShareConsumer(
    {**QUICK, "group.id": "copier", "share.acknowledgement.mode": "explicit", "max.poll.records": 30}
)
producer = Producer({**QUICK, "enable.idempotence": True, "retry.backoff.ms": 20})


def delivered(error, _):
    if error:
        sys.exit(f"ends: {error}")


consumer.subscribe(["in"])
while True:
    messages = [each for each in consumer.poll(0.1) if each.error() is None]
    for message in messages:
        time.sleep(0.05)
        producer.produce("out", key=message.key(), value=message.value().upper(), on_delivery=delivered)
    producer.flush()
    for message in messages:
        consumer.acknowledge(message)
    if messages:
        try:
            consumer.commit_sync(30)
        except KafkaException as failure:
            print(f"not acknowledged: {failure}")
