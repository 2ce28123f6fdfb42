"""Commits per second of one librdkafka producer that sends its consumer's offsets in each transaction.

The producer runs the loop consume, process, produce: one record in, one out, one commit.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any, Final

from benchmarks.client import Client, create_topic
from benchmarks.figures import WARM_UP_S, Figure, Run
from benchmarks.process import used_by
from benchmarks.targets import Running

INPUT: Final = "input"
OUTPUT: Final = "output"
PATIENCE_S: Final = 30


def measure(run: Run) -> Iterator[Figure]:
    try:
        import confluent_kafka
    except ImportError:
        run.say("transactions: skipped, because confluent-kafka is not installed (extra `demo`)")
        return
    commits = run.scaled(3_000, 1_000)
    with run.target.running(run.scratch / "transactions") as target:
        client = Client(target.connect())
        for name in (INPUT, OUTPUT):
            create_topic(client, name)
        client.close()
        # Enough records even if the warm-up is as fast as the measured run.
        fill(confluent_kafka, target, 10 * commits)
        loop = Loop(confluent_kafka, target)
        warm = time.monotonic() + WARM_UP_S
        while time.monotonic() < warm:
            loop.once()
        with used_by(target.pid) as usage:
            times_ms = sorted(loop.once() for _ in range(commits))
        loop.close()
    p50, p99 = statistics.median(times_ms), times_ms[len(times_ms) * 99 // 100]
    yield Figure(
        "commits per second, librdkafka, offsets in the transaction",
        commits / usage.wall_s,
        "1/s",
        limit=200,
        higher_is_better=True,
        baseline="Apache Kafka 4.3.1: 10",
        note=f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, broker CPU {usage.target_cpu_s / commits * 1000:.2f} ms",
        other_cpu=usage.other_cpu,
    )


def fill(confluent_kafka: Any, target: Running, records: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": target.bootstrap, "linger.ms": 50})
    for number in range(records):
        producer.produce(INPUT, value=b"%d" % number)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(PATIENCE_S):
        raise RuntimeError("the input could not be written")


class Loop:
    """One worker. Its consumer is a member of a group, so offsets are committed with that member's metadata."""

    def __init__(self, confluent_kafka: Any, target: Running) -> None:
        # Log level 0: the broker stops at the end, which needs no message.
        common = {"bootstrap.servers": target.bootstrap, "log_level": 0}
        self._consumer = confluent_kafka.Consumer(
            common
            | {
                "group.id": "workers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe([INPUT])
        self._producer = confluent_kafka.Producer(common | {"transactional.id": "worker", "linger.ms": 0})
        self._producer.init_transactions(PATIENCE_S)
        self._next_position = confluent_kafka.TopicPartition
        self.once()

    def once(self) -> float:
        """Run one transaction. Returns its milliseconds, without the wait for its input."""
        message = self._consumer.poll(PATIENCE_S)
        if message is None or message.error():
            raise RuntimeError(f"no input: {message and message.error()}")
        start = time.perf_counter()
        position = self._next_position(INPUT, message.partition(), message.offset() + 1)
        self._producer.begin_transaction()
        self._producer.produce(OUTPUT, value=message.value())
        self._producer.send_offsets_to_transaction(
            [position], self._consumer.consumer_group_metadata(), PATIENCE_S
        )
        self._producer.commit_transaction(PATIENCE_S)
        return (time.perf_counter() - start) * 1000

    def close(self) -> None:
        self._consumer.close()
        del self._producer
