"""A member of a share group: four threads process the records that it polls."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Producer, ShareConsumer

bootstrap, instance = sys.argv[1], sys.argv[2]
QUICK = {"bootstrap.servers": bootstrap, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
consumer = ShareConsumer({**QUICK, "group.id": "copier", "max.poll.records": 10})
producer = Producer({**QUICK, "enable.idempotence": True, "retry.backoff.ms": 20})


def process(message):
    time.sleep(0.02)
    producer.produce("out", key=message.key(), value=message.value().upper(), on_delivery=delivered)


def delivered(error, _):
    if error:
        sys.exit(f"ends: {error}")


workers = ThreadPoolExecutor(4)
consumer.subscribe(["in"])
while True:
    producer.poll(0)
    for message in consumer.poll(0.1):
        if message.error() is None:
            workers.submit(process, message)
