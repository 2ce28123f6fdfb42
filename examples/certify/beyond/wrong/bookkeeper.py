"""Books each order once: the inbox has the orders that were booked."""

import json
import os

import psycopg
from confluent_kafka import Consumer

consumer = Consumer(
    {
        "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
        "group.id": "bookkeeper",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "metadata.recovery.strategy": "none",
    }
)
db = psycopg.connect(os.environ["ODRADEK_POSTGRES"], autocommit=True)


def is_new(order):
    known = db.execute("INSERT INTO inbox VALUES (%(id)s) ON CONFLICT DO NOTHING", order)
    return known.rowcount == 1


def book(order):
    with db.transaction():
        db.execute("INSERT INTO entries (id, amount) VALUES (%(id)s, %(amount)s)", order)


consumer.subscribe(["orders"])
while True:
    messages = [each for each in consumer.consume(10, timeout=0.1) if each.error() is None]
    for message in messages:
        order = json.loads(message.value())
        if is_new(order):
            book(order)
    if messages:
        consumer.commit(asynchronous=False)
