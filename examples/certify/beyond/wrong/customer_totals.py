"""Sums the orders of each customer."""

import json
import os

import psycopg
from confluent_kafka import Consumer

ADD = """
    INSERT INTO totals VALUES (%(customer)s, %(amount)s)
    ON CONFLICT (customer) DO UPDATE SET amount = totals.amount + excluded.amount
"""
consumer = Consumer(
    {
        "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
        "group.id": "totals",
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
    with db.transaction():
        for message in messages:
            db.execute(ADD, json.loads(message.value()))
    consumer.commit(asynchronous=False)
