"""Inbox and outbox in one database; a relay sends the events in the outbox until they are acknowledged."""

import os
import sqlite3
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

bootstrap, instance = sys.argv[1], sys.argv[2]
QUICK = {
    "bootstrap.servers": bootstrap,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "metadata.recovery.strategy": "none",
}
consumer = Consumer(
    {
        **QUICK,
        "group.id": "copier",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
)
producer = Producer({**QUICK, "enable.idempotence": True})


def connected():
    db = sqlite3.connect(f"{sys.argv[3]}/boxes.db", timeout=30, isolation_level=None)
    db.execute("pragma journal_mode=wal")
    db.execute("create table if not exists inbox(id text primary key)")
    db.execute("create table if not exists outbox(id text primary key, value text)")
    return db


def delivered(error, _):
    if error:
        os._exit(1)


def relay():
    db = connected()
    while True:
        rows = db.execute("select id, value from outbox order by rowid limit 20").fetchall()
        if not rows:
            time.sleep(0.02)
            continue
        for key, value in rows:
            producer.produce("out", value, key, on_delivery=delivered)
        if producer.flush(30):
            os._exit(1)
        db.executemany("delete from outbox where id = ?", [(key,) for key, _ in rows])


threading.Thread(target=relay, daemon=True).start()
db = connected()
consumer.subscribe(["in"])
while True:
    messages = [each for each in consumer.consume(20, timeout=0.1) if each.error() is None]
    if not messages:
        continue
    db.execute("begin immediate")
    for message in messages:
        event = f"{message.partition()}-{message.offset()}"
        if db.execute("insert or ignore into inbox values (?)", (event,)).rowcount:
            db.execute("insert into outbox values (?, ?)", (event, message.value().decode().upper()))
    db.execute("commit")
    ends = {each.partition(): each.offset() + 1 for each in messages}
    try:
        consumer.commit(
            offsets=[TopicPartition("in", partition, end) for partition, end in ends.items()],
            asynchronous=False,
        )
    except KafkaException as failure:
        sys.exit(f"ends: {failure}")
