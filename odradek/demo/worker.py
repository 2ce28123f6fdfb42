"""One worker: consumes, processes, produces and commits offsets in one transaction, in an endless loop.

A program that uses only confluent-kafka, as a user would write it. It prints its actions to standard output, each line with
a word and a number. It may be killed at any moment.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from odradek.deadlines import stretched
from odradek.demo.flights import process

GROUP = "flights"
# A killed broker starts again after a moment. librdkafka 2.16 forgets all brokers when the last one refuses the connection
# (KIP-899) and can hang while it bootstraps again, so this setting makes librdkafka keep the broker's address.
PATIENCE = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "metadata.recovery.strategy": "none",
    "log_level": 2,
}
BATCH = 2500
TIMEOUT_S = stretched(30.0)


def say(word: str, number: int = 0) -> None:
    print(word, number, flush=True)


def insist(call: Callable[[], None]) -> None:
    """Make the call, and repeat it while its error is retriable."""
    while True:
        try:
            return call()
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise


def positions(consumer: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
    """The group's committed offsets, 0 for partitions without one. Raises ``KafkaException`` if a partition has an error."""
    places = consumer.committed(partitions, TIMEOUT_S) if partitions else []
    for place in places:
        if place.error is not None:
            raise KafkaException(place.error)
        place.offset = max(place.offset, 0)
    return places


def start(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Assign the partitions, starting at the group's committed offsets (0 without one).

    librdkafka 2.16 must not look up an offset ("earliest", through ListOffsets): if a partition is revoked during
    the lookup, librdkafka fetches the partition nevertheless. When the partition is assigned again, the worker may
    get the fetched records twice.
    """
    consumer.assign(positions(consumer, partitions))


class Worker:
    def __init__(self, bootstrap: str, name: str, source: str, sink: str) -> None:
        self.sink = sink
        common = {"bootstrap.servers": bootstrap, **PATIENCE}
        self.producer = Producer(
            {
                **common,
                "transactional.id": f"flights-{name}",
                "transaction.timeout.ms": 20_000,
                "retry.backoff.ms": 20,
                "linger.ms": 5,
            }
        )
        self.consumer = Consumer(
            {
                **common,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 3_000,
                "heartbeat.interval.ms": 300,
                "fetch.wait.max.ms": 100,
            }
        )
        insist(lambda: self.producer.init_transactions(TIMEOUT_S))
        self.consumer.subscribe([source], on_assign=start)

    def run(self) -> None:
        say("ready")
        while True:
            messages = [m for m in self.consumer.consume(BATCH, timeout=0.3) if m.error() is None]
            if not messages:
                say("idle")
                continue
            try:
                self.transact(messages)
            except KafkaException as failure:
                self.recover(failure)

    def transact(self, messages: list[Message]) -> None:
        """Produce the results of the messages, and commit them with the group's offsets in one transaction.

        The offset of a partition is the offset after its last message.
        """
        say("begin", len(messages))
        self.producer.begin_transaction()
        positions: dict[tuple[str, int], int] = {}
        for message in messages:
            key, value = message.key(), message.value()
            assert key is not None
            assert value is not None
            self.producer.produce(self.sink, key=key, value=process(key.decode(), value.decode()))
            positions[message.topic() or "", message.partition() or 0] = (message.offset() or 0) + 1
        offsets = [
            TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()
        ]
        member = self.consumer.consumer_group_metadata()
        insist(lambda: self.producer.send_offsets_to_transaction(offsets, member, TIMEOUT_S))
        insist(lambda: self.producer.commit_transaction(TIMEOUT_S))
        say("commit", len(messages))

    def recover(self, failure: KafkaException) -> None:
        """Abort the transaction, and seek to the committed offsets. Raises ``failure`` again if it is not abortable."""
        error = failure.args[0]
        if not error.txn_requires_abort():
            raise failure
        insist(lambda: self.producer.abort_transaction(TIMEOUT_S))
        say("abort")
        for position in positions(self.consumer, self.consumer.assignment()):
            self.consumer.seek(position)


def _end_with_parent() -> None:
    """Exit when standard input is closed, which happens when the parent process ends."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(1)


def main() -> int:
    bootstrap, name, source, sink = sys.argv[1:]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        Worker(bootstrap, name, source, sink).run()
    except KafkaException as failure:
        print("failed", failure, file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
