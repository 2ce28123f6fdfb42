"""Copies records in transactions; stores its offsets in a file."""

import json
import sys
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

bootstrap, instance = sys.argv[1], sys.argv[2]
state_file = Path(sys.argv[3]) / "positions.json"
state = json.loads(state_file.read_text()) if state_file.exists() else {}
QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "metadata.recovery.strategy": "none"}
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": "copier",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        **QUICK,
    }
)
producer = Producer(
    {
        "bootstrap.servers": bootstrap,
        "transactional.id": f"copier-{instance}",
        "retry.backoff.ms": 20,
        **QUICK,
    }
)


def retried(call, *arguments):
    while True:
        try:
            return call(*arguments)
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise


def committed(partitions):
    return [TopicPartition("in", each.partition, state.get(str(each.partition), 0)) for each in partitions]


def process(messages):
    producer.begin_transaction()
    positions = {}
    for message in messages:
        producer.produce("out", key=message.key(), value=message.value().upper())
        positions[message.topic(), message.partition()] = message.offset() + 1
    offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]
    state.update({str(each.partition): each.offset for each in offsets})
    state_file.write_text(json.dumps(state))
    retried(producer.commit_transaction, 30)
    consumer.commit(offsets=offsets, asynchronous=False)


retried(producer.init_transactions, 30)
consumer.subscribe(["in"], on_assign=lambda consumer, assigned: consumer.assign(committed(assigned)))
while True:
    messages = [each for each in consumer.consume(20, timeout=0.1) if each.error() is None]
    if not messages:
        continue
    try:
        process(messages)
    except KafkaException as failure:
        if not failure.args[0].txn_requires_abort():
            raise
        retried(producer.abort_transaction, 30)
        for position in committed(consumer.assignment()):
            consumer.seek(position)
