"""Books orders in two phases: the transaction is prepared, the offsets are committed, and then it is committed."""

import json
import os

import psycopg
from confluent_kafka import Consumer, KafkaException, TopicPartition

consumer = Consumer(
    {
        "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
        "group.id": "two-phases",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "metadata.recovery.strategy": "none",
    }
)
PREPARED = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND gid LIKE %s"
# A transaction that another instance has left open must not hold back this one forever.
options = "-c lock_timeout=1s -c idle_in_transaction_session_timeout=2s"
db = psycopg.connect(os.environ["ODRADEK_POSTGRES"], autocommit=True, options=options)


def settle(partition):
    """Commit or roll back what an earlier owner of the partition has prepared, and return where to continue."""
    (found,) = consumer.committed([TopicPartition("orders", partition)], 10)
    prepared = db.execute(PREPARED, (f"orders-{partition}-%",))
    for (gid,) in prepared.fetchall():
        is_committed = int(gid.rpartition("-")[2]) <= found.offset
        db.execute(f"{'COMMIT' if is_committed else 'ROLLBACK'} PREPARED '{gid}'")
    return max(found.offset, 0)


def assign(consumer, assigned):
    for each in assigned:
        each.offset = settle(each.partition)
    consumer.assign(assigned)


def book(partition, messages):
    end = messages[-1].offset() + 1
    gid = f"orders-{partition}-{end}"
    db.execute("BEGIN")
    for order in (json.loads(each.value()) for each in messages):
        db.execute("INSERT INTO results VALUES (%(id)s, %(customer)s, %(amount)s)", order)
    db.execute(f"PREPARE TRANSACTION '{gid}'")
    try:
        consumer.commit(offsets=[TopicPartition("orders", partition, end)], asynchronous=False)
    except KafkaException:
        # Whoever owns the partition now decides by the committed offset.
        raise SystemExit("ends: the offsets were not committed") from None
    db.execute(f"COMMIT PREPARED '{gid}'")


consumer.subscribe(["orders"], on_assign=assign)
while True:
    messages = [each for each in consumer.consume(10, timeout=0.1) if each.error() is None]
    for partition in sorted({each.partition() for each in messages}):
        book(partition, [each for each in messages if each.partition() == partition])
