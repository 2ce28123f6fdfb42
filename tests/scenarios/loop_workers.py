"""The consume-process-produce loop as a program, for each client library, as a user would write it.

    python loop_workers.py CLIENT BOOTSTRAP SOURCE SINK STEP:N

When the step is reached for the n-th time, the program prints "here" and waits to be killed. The Java program is
``tests/clients/java/Worker.java``.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.support.deadlines import HANG_S
from tests.support.supervised import supervised

BATCH = 5
GROUP = "loop"
INSTANCE = "loop-1"  # a static member: the next process replaces it without a session timeout
TRANSACTIONAL_ID = "loop"


class Steps:
    def __init__(self, text: str) -> None:
        self._name, number = text.split(":")
        self._left = int(number)

    def reached(self, name: str) -> None:
        if name != self._name:
            return
        self._left -= 1
        if self._left == 0:
            print("here", flush=True)
            time.sleep(3600)


def confluent(bootstrap: str, source: str, sink: str, steps: Steps) -> None:
    from confluent_kafka import Consumer, KafkaException, Producer

    patience = {
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 100,
        "metadata.recovery.strategy": "none",
        "log_level": 2,
    }
    producer = Producer(
        {**patience, "transactional.id": TRANSACTIONAL_ID, "retry.backoff.ms": 20, "linger.ms": 0}
    )
    consumer = Consumer(
        {
            **patience,
            "group.id": GROUP,
            "group.instance.id": INSTANCE,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
        }
    )
    insist(lambda: producer.init_transactions(HANG_S))
    steps.reached("init")
    consumer.subscribe([source])
    while True:
        messages = [each for each in consumer.consume(BATCH, 0.2) if each.error() is None]
        if not messages:
            continue
        try:
            confluent_transaction(producer, consumer, messages, sink, steps)
        except KafkaException as failed:
            print("aborted:", failed, file=sys.stderr, flush=True)
            if not failed.args[0].txn_requires_abort():
                raise
            insist(lambda: producer.abort_transaction(HANG_S))
            for place in consumer.committed(consumer.assignment(), HANG_S):
                place.offset = max(place.offset, 0)
                consumer.seek(place)


def insist(call: Callable[[], None]) -> None:
    """Repeat a call while its error is retriable."""
    from confluent_kafka import KafkaException

    while True:
        try:
            return call()
        except KafkaException as failed:
            if not failed.args[0].retriable():
                raise


def confluent_transaction(producer: Any, consumer: Any, messages: list[Any], sink: str, steps: Steps) -> None:
    steps.reached("poll")
    producer.begin_transaction()
    steps.reached("begin")
    for each in messages:
        producer.produce(sink, f"<{each.value().decode()}>", key=each.key(), partition=each.partition())
    producer.flush(HANG_S)
    steps.reached("send")
    places = [place for place in consumer.position(consumer.assignment()) if place.offset >= 0]
    member = consumer.consumer_group_metadata()
    insist(lambda: producer.send_offsets_to_transaction(places, member, 20))
    steps.reached("offsets")
    insist(lambda: producer.commit_transaction(HANG_S))
    steps.reached("commit")


def kafka_python(bootstrap: str, source: str, sink: str, steps: Steps) -> None:
    import kafka
    from kafka.errors import KafkaError, ProducerFencedError
    from kafka.structs import OffsetAndMetadata

    patience = {
        "bootstrap_servers": bootstrap,
        "reconnect_backoff_ms": 20,
        "reconnect_backoff_max_ms": 100,
        "retry_backoff_ms": 20,
    }
    producer = kafka.KafkaProducer(**patience, transactional_id=TRANSACTIONAL_ID, max_block_ms=20_000)
    consumer = kafka.KafkaConsumer(
        source,
        **patience,
        group_id=GROUP,
        group_instance_id=INSTANCE,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        max_poll_records=BATCH,
        fetch_max_wait_ms=50,
    )
    consumer.partitions_for_topic(source)  # otherwise its first assignment may be empty, and stays empty
    producer.init_transactions()
    steps.reached("init")
    while True:
        polled = consumer.poll(200)
        if not polled:
            continue
        try:
            steps.reached("poll")
            producer.begin_transaction()
            steps.reached("begin")
            offsets = {}
            for place, records in polled.items():
                for each in records:
                    result = f"<{each.value.decode()}>".encode()
                    producer.send(sink, result, key=each.key, partition=place.partition)
                offsets[place] = OffsetAndMetadata(records[-1].offset + 1, "", -1)
            supervised(producer.flush)
            steps.reached("send")
            supervised(producer.send_offsets_to_transaction, offsets, consumer.group_metadata())
            steps.reached("offsets")
            supervised(producer.commit_transaction)
            steps.reached("commit")
        except ProducerFencedError:
            raise
        except KafkaError as failed:
            print("aborted:", repr(failed), file=sys.stderr, flush=True)
            supervised(producer.abort_transaction)
            for place in consumer.assignment():
                consumer.seek(place, consumer.committed(place) or 0)


def aiokafka(bootstrap: str, source: str, sink: str, steps: Steps) -> None:
    asyncio.run(_aiokafka(bootstrap, source, sink, steps))


async def _aiokafka(bootstrap: str, source: str, sink: str, steps: Steps) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.errors import KafkaError, ProducerFenced

    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=TRANSACTIONAL_ID, retry_backoff_ms=20
    )
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=GROUP,
        group_instance_id=INSTANCE,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        fetch_max_wait_ms=50,
        retry_backoff_ms=20,
    )
    await producer.start()
    steps.reached("init")
    await consumer.start()
    while True:
        polled: dict[Any, list[Any]] = await consumer.getmany(timeout_ms=200, max_records=BATCH)
        if not polled:
            continue
        try:
            steps.reached("poll")
            async with producer.transaction():
                steps.reached("begin")
                sent = []
                for place, records in polled.items():
                    for each in records:
                        result = f"<{each.value.decode()}>".encode()
                        sent.append(
                            await producer.send(sink, result, key=each.key, partition=place.partition)
                        )
                await asyncio.gather(*sent)
                steps.reached("send")
                offsets = {place: records[-1].offset + 1 for place, records in polled.items()}
                await producer.send_offsets_to_transaction(offsets, GROUP)
                steps.reached("offsets")
            steps.reached("commit")
        except ProducerFenced:
            raise
        except KafkaError as failed:
            print("aborted:", repr(failed), file=sys.stderr, flush=True)
            for place in consumer.assignment():
                consumer.seek(place, await consumer.committed(place) or 0)


if __name__ == "__main__":
    name, *where, step = sys.argv[1:]
    loops: dict[str, Callable[..., None]] = {
        "confluent": confluent,
        "kafka-python": kafka_python,
        "aiokafka": aiokafka,
    }
    loops[name](*where, Steps(step))
