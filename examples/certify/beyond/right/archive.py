"""Writes the orders into files of five, each named by its partition and its first and last offset."""

import json
import os
from collections import defaultdict
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

SIZE = 5
consumer = Consumer(
    {
        "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
        "group.id": "archive",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "metadata.recovery.strategy": "none",
    }
)
folder = Path(os.environ["ODRADEK_DATA"], "archive")
folder.mkdir(exist_ok=True)
waiting = defaultdict(list)


def write(partition, messages):
    name = f"orders-{partition}-{messages[0].offset():06}-{messages[-1].offset():06}.ndjson"
    new = folder / f".{name}.{os.getpid()}"
    with new.open("w") as file:
        file.writelines(json.dumps(json.loads(each.value())) + "\n" for each in messages)
        file.flush()
        os.fsync(file.fileno())
    new.rename(folder / name)


consumer.subscribe(["orders"], on_assign=lambda *_: waiting.clear(), on_revoke=lambda *_: waiting.clear())
while True:
    message = consumer.poll(0.1)
    if message is None or message.error():
        continue
    partition = message.partition()
    waiting[partition].append(message)
    if len(waiting[partition]) == SIZE:
        write(partition, waiting[partition])
        consumer.commit(
            offsets=[TopicPartition("orders", partition, message.offset() + 1)], asynchronous=False
        )
        waiting[partition] = []
