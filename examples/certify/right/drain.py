"""Copies the input in transactions together with the offsets, and ends at the end of its partitions."""

import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

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
        "enable.partition.eof": True,
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


def process(messages):
    producer.begin_transaction()
    positions = {}
    for message in messages:
        producer.produce("out", key=message.key(), value=message.value().upper())
        positions[message.partition()] = message.offset() + 1
    offsets = [TopicPartition("in", partition, offset) for partition, offset in positions.items()]
    retried(producer.send_offsets_to_transaction, offsets, consumer.consumer_group_metadata(), 30)
    retried(producer.commit_transaction, 30)


def begin(consumer, assigned):
    at_end.clear()
    consumer.assign(committed(assigned))


def is_done():
    assigned = {each.partition for each in consumer.assignment()}
    return bool(assigned) and assigned <= at_end


retried(producer.init_transactions, 30)
at_end = set()
consumer.subscribe(["in"], on_assign=begin)
while not is_done():
    polled = consumer.consume(20, timeout=0.1)
    messages = [each for each in polled if each.error() is None]
    at_end |= {
        each.partition()
        for each in polled
        if each.error() and each.error().code() == KafkaError._PARTITION_EOF
    }
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
        at_end.clear()
consumer.close()
