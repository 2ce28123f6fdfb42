"""Stores orders in the database and publishes them: the database's transaction is prepared, then the events are sent."""

import json
import os
import uuid

import psycopg
from confluent_kafka import Consumer, Producer

QUICK = {
    "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "metadata.recovery.strategy": "none",
}
consumer = Consumer(
    {
        **QUICK,
        "group.id": "publisher",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
)
producer = Producer({**QUICK, "enable.idempotence": True})
db = psycopg.connect(os.environ["ODRADEK_POSTGRES"], autocommit=True)


def process(orders):
    name = f"publisher-{uuid.uuid4()}"
    db.execute("BEGIN")
    for order in orders:
        db.execute(
            "INSERT INTO results VALUES (%(id)s, %(customer)s, %(amount)s) ON CONFLICT DO NOTHING", order
        )
    db.execute(f"PREPARE TRANSACTION '{name}'")
    for order in orders:
        producer.produce("events", json.dumps(order), order["id"])
    if producer.flush(10):
        raise SystemExit("ends: the events were not acknowledged")
    db.execute(f"COMMIT PREPARED '{name}'")


consumer.subscribe(["orders"])
while True:
    messages = [each for each in consumer.consume(10, timeout=0.1) if each.error() is None]
    if messages:
        process([json.loads(each.value()) for each in messages])
        consumer.commit(asynchronous=False)
