"""Numbers the orders of each customer as the lines of an account statement."""

import json
import os
from collections import Counter

import psycopg
from confluent_kafka import Consumer

consumer = Consumer(
    {
        "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
        "group.id": "statements",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "metadata.recovery.strategy": "none",
    }
)
db = psycopg.connect(os.environ["ODRADEK_POSTGRES"])
last = Counter()
consumer.subscribe(["orders"])
while True:
    messages = [each for each in consumer.consume(10, timeout=0.1) if each.error() is None]
    if not messages:
        continue
    with db.transaction():
        for message in messages:
            order = json.loads(message.value())
            last[order["customer"]] += 1
            db.execute(
                "INSERT INTO lines VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
                (order["customer"], last[order["customer"]], order["amount"]),
            )
    consumer.commit(asynchronous=False)
