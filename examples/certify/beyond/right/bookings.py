"""Books the amount of each order; the positions in the topic are in the same database."""

import json
import os

import psycopg
from confluent_kafka import Consumer

consumer = Consumer(
    {
        "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
        "group.id": "positions",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "metadata.recovery.strategy": "none",
    }
)
MOVE = """
    INSERT INTO positions VALUES (%(partition)s, %(end)s)
    ON CONFLICT (partition) DO UPDATE SET position = %(end)s WHERE positions.position = %(start)s
"""
db = psycopg.connect(os.environ["ODRADEK_POSTGRES"], autocommit=True)
at = {}


def seek(consumer, assigned):
    for each in assigned:
        found = db.execute(
            "SELECT position FROM positions WHERE partition = %s", (each.partition,)
        ).fetchone()
        each.offset = at[each.partition] = found[0] if found else 0
    consumer.assign(assigned)


def book(partition, messages):
    with db.transaction():
        for order in (json.loads(each.value()) for each in messages):
            db.execute("INSERT INTO entries (id, amount) VALUES (%(id)s, %(amount)s)", order)
        move = {"partition": partition, "start": at[partition], "end": messages[-1].offset() + 1}
        if not db.execute(MOVE, move).rowcount:
            raise SystemExit(f"ends: another instance has moved partition {partition}")
    at[partition] = move["end"]


consumer.subscribe(["orders"], on_assign=seek)
while True:
    messages = [each for each in consumer.consume(10, timeout=0.1) if each.error() is None]
    for partition in sorted({each.partition() for each in messages}):
        book(partition, [each for each in messages if each.partition() == partition])
