"""Copies records; offsets are committed as soon as the records are read (kafka-python)."""

import sys

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

bootstrap = sys.argv[1]
QUICK = {
    "bootstrap_servers": bootstrap,
    "retry_backoff_ms": 20,
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 200,
}
try:
    producer = KafkaProducer(**QUICK)
    consumer = KafkaConsumer(
        "in",
        **QUICK,
        group_id="copier",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    while True:
        records = consumer.poll(timeout_ms=100, max_records=20)
        if not records:
            continue
        consumer.commit()
        sent = [
            producer.send("out", key=record.key, value=record.value.upper())
            for batch in records.values()
            for record in batch
        ]
        producer.flush()
        for each in sent:
            each.get()
except KafkaError as failure:
    sys.exit(f"ends: {failure!r}")
