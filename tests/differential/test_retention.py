"""Retention removes the same segments in Apache Kafka and in this broker."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.support.broker import StartBroker
from tests.support.clients import DEADLINE_S, eventually
from tests.support.deadlines import Stopwatch
from tests.support.kafka_oracle import kafka

SETTINGS = {
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.cleaner.backoff.ms": "500",
}
DAY_MS = 86_400_000
MIB = 1 << 20


class Case(NamedTuple):
    """A topic with records of 0.7 MiB, each in its own segment: their ages, and the expected log start offset.

    Before retention runs, the test deletes the records below ``delete_before`` (DeleteRecords), none if it is 0.
    """

    configs: dict[str, str]
    ages_days: Sequence[float]
    delete_before: int
    log_start: int


CASES = {
    "timed": Case({"retention.ms": str(DAY_MS)}, (3, 2, 0, 0), 0, 2),
    "all-old": Case({"retention.ms": str(DAY_MS)}, (3, 2, 2), 0, 3),
    "in-the-way": Case({"retention.ms": str(DAY_MS)}, (3, 0, 3, 3), 0, 1),
    "future": Case({"retention.ms": str(DAY_MS)}, (3, -0.02, 3), 0, 1),
    "sized": Case({"retention.bytes": str(2 * MIB)}, (0, 0, 0, 0, 0), 0, 2),
    "sized-to-nothing": Case({"retention.bytes": "0"}, (0, 0), 0, 2),
    "deleted": Case({}, (0, 0, 0, 0), 2, 2),
    "both": Case({"cleanup.policy": "compact,delete", "retention.ms": str(DAY_MS)}, (3, 2, 0, 0), 0, 2),
    "compacted": Case({"cleanup.policy": "compact", "retention.ms": "1"}, (3, 2, 0, 0), 0, 0),
    "kept": Case({"cleanup.policy": "", "retention.ms": "1"}, (3, 2, 0, 0), 0, 0),
}


SETTLED_S = 2.0
"""Seconds in which some more retention checks run, to detect that a further segment is deleted."""


def log_starts(bootstrap: str) -> dict[str, int]:
    """Create and fill the topics; return the log start offset of each topic once retention deletes no more segments."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics(
        [
            NewTopic(
                name,
                1,
                1,
                config={"segment.bytes": str(MIB), "min.cleanable.dirty.ratio": "1", **case.configs},
            )
            for name, case in CASES.items()
        ]
    )
    for future in made.values():
        future.result(DEADLINE_S)
    now_ms = time.time_ns() // 1_000_000
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 2 * MIB, "linger.ms": 0})
    for name, case in CASES.items():
        for number, age_days in enumerate(case.ages_days):
            timestamp_ms = now_ms - int(age_days * DAY_MS)
            producer.produce(name, os.urandom(700_000), str(number).encode(), 0, timestamp=timestamp_ms)
            assert producer.flush(DEADLINE_S) == 0
        if case.delete_before:
            (deleted,) = admin.delete_records([TopicPartition(name, 0, case.delete_before)]).values()
            deleted.result(DEADLINE_S)

    def found() -> dict[str, int]:
        asked = admin.list_offsets({TopicPartition(name, 0): OffsetSpec.earliest() for name in CASES})
        return {partition.topic: future.result(DEADLINE_S).offset for partition, future in asked.items()}

    wanted = {name: case.log_start for name, case in CASES.items()}
    eventually(lambda: found() == wanted, "the expected segments are deleted")
    watch = Stopwatch()
    eventually(lambda: found() != wanted or watch.has_run_s(SETTLED_S), "no further segment is deleted")
    return found()


@pytest.mark.slow
def test_this_broker_retains_the_expected_segments(start_broker: StartBroker):
    found = log_starts(start_broker(settings=SETTINGS).bootstrap)
    assert found == {name: case.log_start for name, case in CASES.items()}


@pytest.mark.slow
@pytest.mark.java
def test_kafka_retains_the_expected_segments():
    with kafka(SETTINGS) as oracle:
        found = log_starts(f"{oracle.host}:{oracle.port}")
    assert found == {name: case.log_start for name, case in CASES.items()}
