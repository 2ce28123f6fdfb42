"""Stores orders, and publishes them from an outbox; the inbox has the orders that are stored."""

import json
import os
import threading
import time

import psycopg
from confluent_kafka import Consumer, Producer

DSN = os.environ["ODRADEK_POSTGRES"]
QUICK = {
    "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "metadata.recovery.strategy": "none",
}
consumer = Consumer(
    {
        **QUICK,
        "group.id": "outbox",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
)


def delivered(error, _):
    if error:
        os._exit(1)


def relay():
    producer = Producer({**QUICK, "enable.idempotence": True})
    try:
        with psycopg.connect(DSN, autocommit=True) as db:
            while True:
                rows = db.execute("SELECT id, key, payload FROM outbox ORDER BY id LIMIT 20").fetchall()
                for _, key, payload in rows:
                    producer.produce("events", payload, key, on_delivery=delivered)
                if producer.flush(30):
                    os._exit(1)
                if rows:
                    db.execute("DELETE FROM outbox WHERE id = ANY(%s)", ([each[0] for each in rows],))
                else:
                    time.sleep(0.05)
    finally:
        os._exit(1)


def store(db, order):
    if db.execute("INSERT INTO inbox VALUES (%(id)s) ON CONFLICT DO NOTHING", order).rowcount:
        db.execute("INSERT INTO entries (id, amount) VALUES (%(id)s, %(amount)s)", order)
        event = {"key": order["id"], "payload": json.dumps(order)}
        db.execute("INSERT INTO outbox (key, payload) VALUES (%(key)s, %(payload)s)", event)


threading.Thread(target=relay, daemon=True).start()
db = psycopg.connect(DSN)
consumer.subscribe(["orders"])
while True:
    messages = [each for each in consumer.consume(10, timeout=0.1) if each.error() is None]
    if not messages:
        continue
    with db.transaction():
        for message in messages:
            store(db, json.loads(message.value()))
    consumer.commit(asynchronous=False)
