"""A program with confluent-kafka: a group member or a consume-process-produce loop (`tests.clients.contract`).

The module is run as a script, so that it can be killed, and imports nothing from the tests.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

CALL_S = 60.0
POLL_S = 0.05
RECORDS = 5
# As in tests.support.clients: a broker that a test kills is restarted at once.
PATIENCE: dict[str, str | int] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "metadata.recovery.strategy": "none",
    "connections.max.idle.ms": 1_500,
    "log_level": 0,
}


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def word() -> threading.Event:
    """Return an event that is set when the test writes a line to this program's standard input, or closes it."""
    said = threading.Event()

    def wait() -> None:
        sys.stdin.readline()
        said.set()

    threading.Thread(target=wait, daemon=True).start()
    return said


def new_consumer(bootstrap: str, protocol: str, group: str, **more: Any) -> Consumer:
    config = {
        **PATIENCE,
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 20,
        "topic.metadata.refresh.interval.ms": 200,
    }
    if protocol == "classic":
        config |= {"session.timeout.ms": 1_500, "heartbeat.interval.ms": 100}
        config |= {"partition.assignment.strategy": "range"}
    return Consumer(config | more)


def group_member(bootstrap: str, protocol: str, group: str, subscription: str, instance: str) -> None:
    more: dict[str, Any] = {}
    if instance != "-":
        more["group.instance.id"] = instance
        if protocol == "classic":
            more["session.timeout.ms"] = 45_000
    consumer = new_consumer(bootstrap, protocol, group, **more)
    consumer.subscribe([subscription])
    over = word()
    known: list[str] | None = None
    while not over.is_set():
        consumer.poll(POLL_S)
        found = sorted(f"{place.topic}-{place.partition}" for place in consumer.assignment())
        if found != (known or []):
            say(assigned=found)
        known = found
    consumer.close()


def doom(fatal: str) -> Callable[[str], None]:
    """Return a function that the loop calls with the name of each step that it reaches.

    At the step ``fatal``, such as ``send:2`` (the second "send"), the function prints the step and waits to be killed.
    """
    name, _, passages = fatal.partition(":")
    left = int(passages or 0)

    def step(reached: str) -> None:
        nonlocal left
        if reached == name:
            left -= 1
            if left == 0:
                say(here=reached)
                threading.Event().wait()

    return step


def group_loop(
    bootstrap: str, protocol: str, source: str, sink: str, group: str, transactional_id: str, fatal: str
) -> None:
    over = word()
    consumer = new_consumer(bootstrap, protocol, group)
    config = {**PATIENCE, "bootstrap.servers": bootstrap, "transactional.id": transactional_id}
    producer = Producer(config | {"linger.ms": 0})
    insist(lambda: producer.init_transactions(CALL_S))
    consumer.subscribe([source])
    loop = Loop(consumer, producer, sink, doom(fatal))
    while not over.is_set():
        read = [each for each in consumer.consume(RECORDS, POLL_S) if each.error() is None]
        if read:
            loop.process(read)
    consumer.close()


class Loop:
    def __init__(
        self, consumer: Consumer, producer: Producer, sink: str, step: Callable[[str], None]
    ) -> None:
        self._consumer, self._producer, self._sink, self._step = consumer, producer, sink, step
        self._rounds = self._committed = 0

    def process(self, read: list[Message]) -> None:
        """Process the records ``read`` in a transaction. After an abort they are read again."""
        self._step("poll")
        self._rounds += 1
        producer = self._producer
        try:
            producer.begin_transaction()
            for each in read:
                producer.produce(self._sink, b"done " + (each.value() or b""))
            producer.flush(CALL_S)
            self._step("send")
            behind = {(each.topic(), each.partition()): each.offset() for each in read}
            offsets = [
                TopicPartition(topic, partition, offset + 1)
                for (topic, partition), offset in behind.items()
                if topic is not None and partition is not None and offset is not None
            ]
            member = self._consumer.consumer_group_metadata()
            insist(lambda: producer.send_offsets_to_transaction(offsets, member, CALL_S))
            if self._rounds % 3:
                insist(lambda: producer.commit_transaction(CALL_S))
                self._step("commit")
                self._committed += len(read)
                say(committed=self._committed)
                return
        except KafkaException as failed:
            error = failed.args[0]
            if error.fatal():
                raise
            print("aborting:", error.str(), file=sys.stderr)
        insist(lambda: producer.abort_transaction(CALL_S))
        self._go_back()

    def _go_back(self) -> None:
        """Seek to the group's committed offsets after an abort: another member may have committed in the meantime."""
        mine = self._consumer.assignment()
        if not mine:
            return
        try:
            for place in self._consumer.committed(mine, CALL_S):
                self._consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))
        except KafkaException as failed:
            # The member's epoch has changed, or the partition was revoked: a rebalance sets the positions.
            print("going back:", failed, file=sys.stderr)
            raise


def insist(call: Callable[[], Any]) -> None:
    """Repeat a call while its error is retriable."""
    while True:
        try:
            call()
        except KafkaException as failed:
            if not failed.args[0].retriable():
                raise
        else:
            return


ORDERS: dict[str, Callable[..., None]] = {"group-member": group_member, "group-loop": group_loop}

if __name__ == "__main__":
    ORDERS[sys.argv[1]](*sys.argv[2:])
