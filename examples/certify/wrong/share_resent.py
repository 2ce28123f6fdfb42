"""A member of a share group: accepts records when one replica has their outputs."""

import sys

from confluent_kafka import KafkaException, Producer, ShareConsumer

bootstrap, instance = sys.argv[1], sys.argv[2]
QUICK = {"bootstrap.servers": bootstrap, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
consumer = ShareConsumer(
    {**QUICK, "group.id": "copier", "share.acknowledgement.mode": "explicit", "max.poll.records": 10}
)
producer = Producer({**QUICK, "acks": 1, "retry.backoff.ms": 20})


def delivered(error, _):
    if error:
        sys.exit(f"ends: {error}")


consumer.subscribe(["in"])
while True:
    messages = [each for each in consumer.poll(0.1) if each.error() is None]
    for message in messages:
        producer.produce("out", key=message.key(), value=message.value().upper(), on_delivery=delivered)
    producer.flush()
    for message in messages:
        consumer.acknowledge(message)
    if messages:
        try:
            results = consumer.commit_sync(30)
        except KafkaException as failure:
            print(f"not acknowledged: {failure}")
            continue
        for partition, failure in results.items():
            if failure:
                print(f"not acknowledged: {partition}: {failure}")
