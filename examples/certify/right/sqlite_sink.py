"""Stores records in SQLite: rows and offsets in one transaction of the database."""

import sqlite3
import sys

from confluent_kafka import Consumer

bootstrap, instance = sys.argv[1], sys.argv[2]
QUICK = {
    "bootstrap.servers": bootstrap,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "metadata.recovery.strategy": "none",
}
db = sqlite3.connect(f"{sys.argv[3]}/sink.db", timeout=30, isolation_level=None)
db.execute("pragma journal_mode=wal")
db.execute("create table if not exists rows(key text, value text)")
db.execute("create table if not exists positions(partition int primary key, position int)")
consumer = Consumer(
    {
        **QUICK,
        "group.id": "copier",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
)


def position(partition):
    found = db.execute("select position from positions where partition = ?", (partition,)).fetchone()
    return found[0] if found else 0


def seek(consumer, assigned):
    for each in assigned:
        each.offset = position(each.partition)
    consumer.assign(assigned)


consumer.subscribe(["in"], on_assign=seek)
while True:
    messages = [each for each in consumer.consume(20, timeout=0.1) if each.error() is None]
    if not messages:
        continue
    db.execute("begin immediate")
    for message in messages:
        if message.offset() < position(message.partition()):
            continue  # another instance has already stored it
        db.execute(
            "insert into rows values (?, ?)", (message.key().decode(), message.value().decode().upper())
        )
        db.execute(
            "insert or replace into positions values (?, ?)", (message.partition(), message.offset() + 1)
        )
    db.execute("commit")
