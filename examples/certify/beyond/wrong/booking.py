"""Books the amount of each order, at most seven a second."""

import json
import os
import time

import psycopg
from confluent_kafka import Consumer

consumer = Consumer(
    {
        "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
        "group.id": "booking",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "auto.commit.interval.ms": 1000,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "metadata.recovery.strategy": "none",
    }
)
consumer.subscribe(["orders"])
with psycopg.connect(os.environ["ODRADEK_POSTGRES"]) as db:
    while True:
        message = consumer.poll(1.0)
        if message is None or message.error():
            continue
        order = json.loads(message.value())
        db.execute("INSERT INTO entries (id, amount) VALUES (%s, %s)", (order["id"], order["amount"]))
        db.commit()
        time.sleep(1 / 7)
