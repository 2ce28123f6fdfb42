"""Copies records in transactions, with their positions; a batch is sent again from a queue."""

import collections
import sys

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
producer = Producer({**QUICK, "transactional.id": f"copier-{instance}", "retry.backoff.ms": 20})


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


def process(records):
    producer.begin_transaction()
    positions = {}
    for partition, offset, key, value in records:
        producer.produce("out", key=key, value=value)
        positions[partition] = offset + 1
    offsets = [TopicPartition("in", partition, offset) for partition, offset in positions.items()]
    retried(producer.send_offsets_to_transaction, offsets, consumer.consumer_group_metadata(), 30)
    retried(producer.commit_transaction, 30)


def encoded(key, text):
    return key, text.encode() if text else None


retried(producer.init_transactions, 30)
consumer.subscribe(["in"], on_assign=lambda consumer, assigned: consumer.assign(committed(assigned)))
again = collections.deque()
while True:
    if again:
        records = [(partition, offset, *encoded(key, text)) for partition, offset, key, text in again]
    else:
        polled = [each for each in consumer.consume(20, timeout=0.1) if each.error() is None]
        records = [(each.partition(), each.offset(), each.key(), each.value().upper()) for each in polled]
    if not records:
        continue
    try:
        process(records)
        again.clear()
    except KafkaException as failure:
        if not failure.args[0].txn_requires_abort():
            raise
        retried(producer.abort_transaction, 30)
        again.extend((*place, value.decode()) for *place, value in records if not again)
