"""Consume, transform, produce: outputs and offsets in one transaction (kafka-python)."""

import sys

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

bootstrap, instance = sys.argv[1], sys.argv[2]
QUICK = {
    "bootstrap_servers": bootstrap,
    "retry_backoff_ms": 20,
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 200,
}


def process(records, member):
    producer.begin_transaction()
    sent = [
        producer.send("out", key=record.key, value=record.value.upper())
        for batch in records.values()
        for record in batch
    ]
    producer.flush()
    for each in sent:
        each.get()
    ends = {
        partition: OffsetAndMetadata(batch[-1].offset + 1, "", -1) for partition, batch in records.items()
    }
    producer.send_offsets_to_transaction(ends, member)
    producer.commit_transaction()


try:
    producer = KafkaProducer(
        **QUICK,
        transactional_id=f"copier-{instance}",
        request_timeout_ms=5_000,
        delivery_timeout_ms=10_000,
    )
    producer.init_transactions()
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
        member = consumer.group_metadata()
        if records and member.generation_id > 0:
            process(records, member)
        elif records:
            sys.exit("exiting: no longer a member of the group")
except KafkaError as failure:
    sys.exit(f"ends: {failure!r}")
