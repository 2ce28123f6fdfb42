"""Loads the orders into the database, and continues at the next start where it has ended."""

import json
import os
from pathlib import Path

import psycopg
from confluent_kafka import Consumer, TopicPartition

consumer = Consumer(
    {
        "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
        "group.id": "loader",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "metadata.recovery.strategy": "none",
    }
)
file = Path(os.environ["ODRADEK_DATA"], "positions.json")
positions = json.loads(file.read_text()) if file.exists() else {}


def save():
    new = file.with_suffix(".new")
    new.write_text(json.dumps(positions))
    new.rename(file)


partitions = consumer.list_topics("orders", timeout=10).topics["orders"].partitions
consumer.assign([TopicPartition("orders", each, positions.get(str(each), 0)) for each in partitions])
with psycopg.connect(os.environ["ODRADEK_POSTGRES"]) as db:
    while True:
        messages = [each for each in consumer.consume(10, timeout=0.1) if each.error() is None]
        for message in messages:
            order = json.loads(message.value())
            db.execute("INSERT INTO entries (id, amount) VALUES (%(id)s, %(amount)s)", order)
            positions[str(message.partition())] = message.offset() + 1
        if messages:
            db.commit()
            save()
