"""Consume, transform, produce in transactions, with a random transactional id: the group generation fences the producer."""

import sys
import uuid

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
producer = Producer({**QUICK, "transactional.id": f"copier-{uuid.uuid4()}", "retry.backoff.ms": 20})


def retried(call, *arguments):
    while True:
        try:
            return call(*arguments)
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise


def committed(partitions):
    found = retried(consumer.committed, partitions, 30)
    for each in found:
        each.offset = max(each.offset, 0)
    return found


def process(messages):
    producer.begin_transaction()
    positions = {}
    for message in messages:
        producer.produce("out", key=message.key(), value=message.value().upper())
        positions[message.partition()] = message.offset() + 1
    offsets = [TopicPartition("in", partition, offset) for partition, offset in positions.items()]
    retried(producer.send_offsets_to_transaction, offsets, consumer.consumer_group_metadata(), 30)
    retried(producer.commit_transaction, 30)


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
