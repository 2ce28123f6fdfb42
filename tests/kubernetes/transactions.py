"""Copy numbers exactly once while the broker restarts, with one read-process-write transaction for each.

    python -m tests.kubernetes.transactions HOST:PORT COUNT

It writes 0 to COUNT-1 to `orders`, copies them to `invoices`, and reads these. It prints a line of JSON after each hundredth
transaction and at the end. An exception of a client ends its session, and the next session starts at the committed offsets.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.support.clients import FINDS_COORDINATORS, PATIENCE, offset_of, place_of, value_of
from tests.support.deadlines import TEST_S, Deadline

GROUP = TRANSACTIONAL_ID = "billing"
POLL_S = 1.0
CALL_S = 10.0
PARTITIONS = 4
EMPTY_POLLS_MAX = 15
"""Empty polls in a row after which the job checks whether it is done. Joining the group and a stopped broker cause some."""
LINES_EVERY = 100


def say(**found: Any) -> None:
    print(json.dumps(found), flush=True)


def insist(call: Callable[[], object]) -> None:
    """Repeat a call as long as the client raises a retriable error."""
    while True:
        try:
            call()
            return
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise


def read(bootstrap: str, group: str) -> Consumer:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
    }
    return Consumer(settings | PATIENCE)


def write(bootstrap: str, transactional_id: str) -> Producer:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
    producer = Producer(settings | PATIENCE | FINDS_COORDINATORS)
    insist(partial(producer.init_transactions, CALL_S))
    return producer


def fill(bootstrap: str, count: int) -> None:
    producer = write(bootstrap, "orders")
    producer.begin_transaction()
    for number in range(count):
        producer.produce("orders", str(number), partition=number % PARTITIONS)
        producer.poll(0)
    producer.commit_transaction()


class Job:
    """A job with one transactional id, in consecutive sessions."""

    def __init__(self, bootstrap: str, count: int) -> None:
        self._bootstrap, self._count = bootstrap, count
        self.committed = 0
        self.failures: Counter[str] = Counter()

    def run(self) -> None:
        while not self._is_done():
            consumer = read(self._bootstrap, GROUP)
            try:
                producer = write(self._bootstrap, TRANSACTIONAL_ID)
                consumer.subscribe(["orders"])
                self._move(consumer, producer)
            except KafkaException as failure:
                self.failures[failure.args[0].name()] += 1
            finally:
                consumer.close()

    def _move(self, consumer: Consumer, producer: Producer) -> None:
        """Copy records of `orders`, each in its own transaction, until there are none for `EMPTY_POLLS_MAX` polls.

        This is so at the end of the topic, or while the broker is down.
        """
        empty = 0
        while empty < EMPTY_POLLS_MAX:
            message = consumer.poll(POLL_S)
            if message is None:
                empty += 1
                continue
            empty = 0
            if message.error():
                raise KafkaException(message.error())
            producer.begin_transaction()
            _, partition = place_of(message)
            producer.produce("invoices", message.value(), partition=partition)
            position = TopicPartition("orders", partition, offset_of(message) + 1)
            places, member = [position], consumer.consumer_group_metadata()
            insist(partial(producer.send_offsets_to_transaction, places, member, CALL_S))
            insist(partial(producer.commit_transaction, CALL_S))
            self.committed += 1
            if self.committed % LINES_EVERY == 0:
                say(committed=self.committed)

    def _is_done(self) -> bool:
        """Whether the group has committed the end of each partition of `orders`; False if the broker cannot be reached.

        The group need not commit the offset of a marker at the end.
        """
        consumer = read(self._bootstrap, GROUP)
        try:
            topic = consumer.list_topics("orders", POLL_S).topics["orders"]
            asked = [TopicPartition("orders", index) for index in topic.partitions]
            found = consumer.committed(asked, POLL_S)
            ends = [consumer.get_watermark_offsets(each, POLL_S)[1] for each in asked]
        except KafkaException:
            return False
        finally:
            consumer.close()
        # The last offset of a partition is the marker of the transaction that wrote its records.
        return all(each.offset >= end - 1 or end == 0 for each, end in zip(found, ends, strict=True))


def moved(bootstrap: str, count: int) -> Counter[int]:
    """Number -> how often a read_committed consumer reads it from `invoices`. ``count``: how many numbers there are."""
    consumer = read(bootstrap, "audit")
    consumer.subscribe(["invoices"])
    found: Counter[int] = Counter()
    ends: dict[int, int] = {}
    read_to: dict[int, int] = {}
    deadline = Deadline(TEST_S)
    try:
        while not ends or any(read_to.get(index, 0) < end for index, end in ends.items()):
            deadline.check(f"{count} numbers are read: {found.total()}")
            for message in consumer.consume(count, POLL_S):
                if message.error():
                    raise KafkaException(message.error())
                found[int(value_of(message))] += 1
            for each in consumer.position(consumer.assignment()):
                ends[each.partition] = consumer.get_watermark_offsets(each, POLL_S)[1]
                read_to[each.partition] = max(each.offset, 0)
    finally:
        consumer.close()
    return found


def main(arguments: list[str]) -> None:
    bootstrap, count = arguments[0], int(arguments[1])
    fill(bootstrap, count)
    say(filled=count)
    job = Job(bootstrap, count)
    job.run()
    found = moved(bootstrap, count)
    verdict: dict[str, Any] = {
        "lost": [number for number in range(count) if number not in found],
        "duplicated": [number for number, times in found.items() if times > 1],
        "moved": found.total(),
        "committed": job.committed,
        "failures": job.failures,
    }
    say(**verdict)


if __name__ == "__main__":
    main(sys.argv[1:])
