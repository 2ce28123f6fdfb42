"""A member of a share group: acknowledges each batch, and writes its outputs."""

import sys

from confluent_kafka import KafkaException, Producer, ShareConsumer

bootstrap, instance = sys.argv[1], sys.argv[2]
QUICK = {"bootstrap.servers": bootstrap, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
consumer = ShareConsumer(
    {**QUICK, "group.id": "copier", "share.acknowledgement.mode": "explicit", "max.poll.records": 10}
)
producer = Producer({**QUICK, "enable.idempotence": True, "retry.backoff.ms": 20})


def delivered(error, _):
    if error:
        sys.exit(f"ends: {error}")


def acknowledged(messages):
    for message in messages:
        consumer.acknowledge(message)
    try:
        return {partition for partition, failure in consumer.commit_sync(30).items() if not failure}
    except KafkaException as failure:
        print(f"not acknowledged: {failure}")
        return set()


consumer.subscribe(["in"])
while True:
    messages = [each for each in consumer.poll(0.1) if each.error() is None]
    if not messages:
        continue
    mine = {(each.topic, each.partition) for each in acknowledged(messages)}
    for message in messages:
        if (message.topic(), message.partition()) in mine:
            producer.produce("out", key=message.key(), value=message.value().upper(), on_delivery=delivered)
    producer.flush()
