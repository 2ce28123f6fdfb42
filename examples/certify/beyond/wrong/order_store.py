"""Stores the orders of the topic in the database."""

import json
import os

import psycopg
from confluent_kafka import Consumer

consumer = Consumer(
    {
        "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
        "group.id": "store",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "metadata.recovery.strategy": "none",
    }
)
db = psycopg.connect(os.environ["ODRADEK_POSTGRES"])
consumer.subscribe(["orders"])
while True:
    messages = [each for each in consumer.consume(10, timeout=0.1) if each.error() is None]
    if not messages:
        continue
    consumer.commit(asynchronous=False)
    with db.transaction():
        for message in messages:
            order = json.loads(message.value())
            db.execute(
                "INSERT INTO results VALUES (%(id)s, %(customer)s, %(amount)s) ON CONFLICT DO NOTHING", order
            )
