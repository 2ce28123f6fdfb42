"""The broker and Apache Kafka, one beside the other, and topics filled alike in both."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.targets import Odradek

KAFKA: Final = "Apache Kafka 4.3.1"
ODRADEK: Final = "odradek"
TIMEOUT_S: Final = 120


@dataclass(frozen=True)
class Address:
    bootstrap: str
    pid: int
    data: Path
    """Its partitions' directories."""


@contextmanager
def odradek(scratch: Path) -> Iterator[Address]:
    home = scratch / "odradek"
    with Odradek().running(home) as target:
        target.connect().close()
        yield Address(target.bootstrap, target.pid, home / "data")


@contextmanager
def both(scratch: Path) -> Iterator[Mapping[str, Address]]:
    """Both of them, at the same time: what the machine does meanwhile falls on both alike."""
    # The oracle of the tests: it fetches Kafka's jars, and says what is missing.
    from tests.support.kafka_oracle import kafka

    home = scratch / "kafka"
    home.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        ours = stack.enter_context(odradek(scratch))
        theirs = stack.enter_context(kafka(directory=home))
        yield {
            ODRADEK: ours,
            KAFKA: Address(f"{theirs.host}:{theirs.port}", theirs.process.pid, home / "data"),
        }


def fill(bootstrap: str, topic: str, partitions: int, records: int, size_bytes: int) -> None:
    """A topic with so many records, spread evenly; the values are random, the same ones each time."""
    from confluent_kafka import Producer

    create(bootstrap, topic, partitions)
    rng = random.Random(records)
    values = [rng.randbytes(size_bytes) for _ in range(1000)]
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 1_000_000})
    for number in range(records):
        while True:
            try:
                producer.produce(topic, values[number % len(values)], partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(TIMEOUT_S):
        raise RuntimeError(f"{topic} could not be filled")


def create(bootstrap: str, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        made.result(TIMEOUT_S)
