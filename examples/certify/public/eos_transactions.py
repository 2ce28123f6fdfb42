"""Reads one partition to its end, and writes the processed records in transactions together with the offset.

Works like confluent-kafka-python's examples/eos_transactions.py: one manually assigned partition, a commit after a number of
records and at the end, and no error handling.
"""

import sys
from base64 import b64encode

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

RECORDS_PER_TRANSACTION = 20

bootstrap = sys.argv[1]
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": "eos-example",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
)
producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "eos-transactions"})


def commit():
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
    )
    producer.commit_transaction()


def encoded(content):
    return None if content is None else b64encode(content)


consumer.assign([TopicPartition("in", 0)])
producer.init_transactions()
producer.begin_transaction()
count = 0
while True:
    producer.poll(0)
    message = consumer.poll(timeout=1.0)
    if message is None:
        continue
    if message.error():
        if message.error().code() == KafkaError._PARTITION_EOF:
            break
        continue
    producer.produce("out", encoded(message.value()), encoded(message.key()))
    count += 1
    if count % RECORDS_PER_TRANSACTION == 0:
        commit()
        producer.begin_transaction()
commit()
consumer.close()
