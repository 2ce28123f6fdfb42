"""Starts the unmodified modules of testcontainers-python and prints the records that each has read.

python modules.py NAME=IMAGE...
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer
from testcontainers.community.kafka import KafkaContainer, RedpandaContainer

WITHIN_S = 60
CONTAINERS: dict[str, Callable[[str], Any]] = {
    "KafkaContainer": KafkaContainer,
    "KafkaContainer.with_kraft": lambda image: KafkaContainer(image).with_kraft(),
    "RedpandaContainer": RedpandaContainer,
}


def transaction(bootstrap: str) -> list[str]:
    """Abort one transaction, commit another, and return what a read_committed consumer reads."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "orders"})
    producer.init_transactions(WITHIN_S)
    for value in ("lost", "paid"):
        producer.begin_transaction()
        producer.produce("orders", value)
        producer.flush()
        (producer.commit_transaction if value == "paid" else producer.abort_transaction)()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    read = []
    while "paid" not in read:
        record = consumer.poll(WITHIN_S)
        assert record is not None, "no record"
        assert record.error() is None, record.error()
        content = record.value()
        assert content is not None, "a tombstone"
        read.append(content.decode())
    consumer.close()
    return read


for name, image in (argument.split("=") for argument in sys.argv[1:]):
    with CONTAINERS[name](image) as container:
        print(json.dumps({"module": name, "read": transaction(container.get_bootstrap_server())}), flush=True)
