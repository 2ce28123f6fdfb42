"""Start Odradek and Apache Kafka side by side, and fill topics of both with the same records."""

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
    """Directories of the broker's partitions."""


@contextmanager
def odradek(scratch: Path) -> Iterator[Address]:
    home = scratch / "odradek"
    with Odradek().running(home) as target:
        target.connect().close()
        yield Address(target.bootstrap, target.pid, home / "data")


@contextmanager
def both(scratch: Path) -> Iterator[Mapping[str, Address]]:
    """Run Odradek and Apache Kafka at the same time, so that other load on the machine affects both."""
    # The tests' Apache Kafka: it downloads Kafka's jars, and reports what is missing.
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
    """Fill a topic with records, spread evenly over its partitions; the values are pseudo-random and always the same."""
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
