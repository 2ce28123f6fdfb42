"""The demo's clients other than workers: producer of the source topic, lag monitor, consumer of the results."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

from odradek.deadlines import stretched
from odradek.demo.worker import GROUP, PATIENCE

TIMEOUT_S = stretched(60.0)
STATE_TOPIC = "__transaction_state"
# In a record of the transaction log: version i16, producer id i64, epoch i16, timeout i32, then the status.
STATUS_AT = 16
COMPLETE_COMMIT, COMPLETE_ABORT = 4, 5


class Feeding:
    """An idempotent producer that writes the flights to the source topic, in a thread."""

    def __init__(self, bootstrap: str, topic: str, lines: list[str]) -> None:
        self._errors: list[str] = []
        self._thread = threading.Thread(target=self._feed, args=(bootstrap, topic, lines), daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def check(self) -> None:
        self._thread.join(TIMEOUT_S)
        if self._errors or not self.done:
            raise RuntimeError(f"writing the flights failed: {self._errors[:1]}")

    def _feed(self, bootstrap: str, topic: str, lines: list[str]) -> None:
        producer = Producer(
            {**PATIENCE, "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 10}
        )

        def delivered(error: object, message: Message) -> None:
            if error is not None:
                self._errors.append(str(error))

        for row, line in enumerate(lines):
            while True:
                try:
                    producer.produce(topic, key=str(row), value=line, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
        if producer.flush(TIMEOUT_S):
            self._errors.append("not all records were acknowledged")


def feed(bootstrap: str, topic: str, lines: list[str]) -> Feeding:
    return Feeding(bootstrap, topic, lines)


def _consumer(bootstrap: str, isolation_level: str, group: str) -> Consumer:
    return Consumer(
        {
            **PATIENCE,
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
        }
    )


def committed_rows(bootstrap: str, topic: str, partitions: int) -> int:
    """Number of source records whose offsets the group has committed; 0 while no coordinator responds."""
    watcher = _consumer(bootstrap, "read_uncommitted", GROUP)
    try:
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        return sum(max(place.offset, 0) for place in watcher.committed(places, timeout=2))
    except KafkaException:
        return 0  # the broker is restarting
    finally:
        watcher.close()


def read_all(bootstrap: str, topic: str, isolation_level: str) -> Iterator[Message]:
    """All records of a topic up to its end, read by a consumer that assigns all partitions to itself."""
    consumer = _consumer(bootstrap, isolation_level, "reader")
    try:
        partitions = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        left = len(partitions)
        deadline = time.monotonic() + TIMEOUT_S
        while left:
            messages = consumer.consume(10_000, 0.3)
            if time.monotonic() > deadline:
                raise RuntimeError(f"{topic} could not be read to its end")
            for message in messages:
                if message.error() is None:
                    yield message
                else:
                    left -= 1
    finally:
        consumer.close()


def read_results(bootstrap: str, topic: str) -> list[str]:
    """The records that a read_committed consumer gets."""
    return [(message.value() or b"").decode() for message in read_all(bootstrap, topic, "read_committed")]


def transaction_counts(bootstrap: str) -> tuple[int, int]:
    """Numbers of (committed, aborted) transactions, counted in the records of ``__transaction_state``."""
    statuses = [
        value[STATUS_AT]
        for message in read_all(bootstrap, STATE_TOPIC, "read_uncommitted")
        if (value := message.value()) is not None
    ]
    return statuses.count(COMPLETE_COMMIT), statuses.count(COMPLETE_ABORT)
