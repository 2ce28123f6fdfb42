"""The program with aiokafka or kafka-python for the group orders of tests/clients/contract.py, in classic groups.

    python -m tests.clients.python.groups CLIENT group-member|group-loop BOOTSTRAP classic ...

Neither client supports the consumer protocol (KIP-848). aiokafka rejoins the group while the program processes
records, and sends no generation with the offsets of a transaction. So a lock delays the revocation of partitions
until the transaction has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
from collections.abc import Callable
from typing import Any

from tests.support.supervised import supervised

RECORDS = 5
MEMBER = {
    "enable_auto_commit": False,
    "auto_offset_reset": "earliest",
    "isolation_level": "read_committed",
    "session_timeout_ms": 1_500,
    "heartbeat_interval_ms": 100,
    "fetch_max_wait_ms": 20,
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


class Teller:
    """Prints each change of a member's assignment."""

    def __init__(self) -> None:
        self._known: list[str] = []

    def look(self, assignment: Any) -> None:
        found = sorted(f"{place.topic}-{place.partition}" for place in assignment)
        if found != self._known:
            say(assigned=found)
            self._known = found


def options(group: str, instance: str = "-") -> dict[str, Any]:
    return {"group_id": group, **MEMBER, **({} if instance == "-" else {"group_instance_id": instance})}


# ---- aiokafka


async def aiokafka_member(bootstrap: str, _: str, group: str, topic: str, instance: str) -> None:
    from aiokafka import AIOKafkaConsumer

    over, teller = word(), Teller()
    async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, **options(group, instance)) as consumer:
        while not over.is_set():
            await consumer.getmany(timeout_ms=50)
            teller.look(consumer.assignment())


async def aiokafka_loop(
    bootstrap: str, _: str, source: str, sink: str, group: str, transactional_id: str, fatal: str
) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
    from aiokafka.errors import KafkaError

    working, rebalances = asyncio.Lock(), 0

    class Patient(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            nonlocal rebalances
            async with working:
                rebalances += 1

        async def on_partitions_assigned(self, assigned: Any) -> None:
            pass

    over, step, rounds, committed = word(), doom(fatal), 0, 0
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    async with producer, AIOKafkaConsumer(bootstrap_servers=bootstrap, **options(group)) as consumer:
        consumer.subscribe([source], listener=Patient())
        while not over.is_set():
            before = rebalances
            read = await consumer.getmany(timeout_ms=50, max_records=RECORDS)
            records = [record for each in read.values() for record in each]
            async with working:
                if rebalances != before:
                    # The partitions may have been revoked.
                    await go_back(consumer)
                    continue
                if not records:
                    continue
                step("poll")
                rounds += 1
                try:
                    await producer.begin_transaction()
                    for record in records:
                        await producer.send_and_wait(sink, b"done " + record.value)
                    step("send")
                    behind = {place: each[-1].offset + 1 for place, each in read.items()}
                    await producer.send_offsets_to_transaction(behind, group)
                    if rounds % 3:
                        await producer.commit_transaction()
                        step("commit")
                        committed += len(records)
                        say(committed=committed)
                        continue
                except KafkaError as failed:
                    print("aborting:", failed, file=sys.stderr)
                await producer.abort_transaction()
                await go_back(consumer)


async def go_back(consumer: Any) -> None:
    """Seek to the group's committed offsets. aiokafka's ``seek_to_committed`` ignores partitions without a commit."""
    for place in consumer.assignment():
        consumer.seek(place, await consumer.committed(place) or 0)


# ---- kafka-python


def kafka_python_member(bootstrap: str, _: str, group: str, topic: str, instance: str) -> None:
    from kafka import KafkaConsumer

    over, teller = word(), Teller()
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, **options(group, instance))
    # A leader without the topic's metadata assigns no partitions.
    consumer.partitions_for_topic(topic)
    while not over.is_set():
        consumer.poll(500)
        teller.look(consumer.assignment())
    consumer.close(autocommit=False)


def connected(client: Any, *topics: str, **config: Any) -> Any:
    """Create a client, and retry until the broker is reachable.

    kafka-python 3.0 can wait for a dead broker until ``bootstrap_timeout_ms`` is over, which is 30 s by default.
    """
    from kafka.errors import KafkaTimeoutError

    while True:
        try:
            return client(*topics, **config, bootstrap_timeout_ms=5_000)
        except KafkaTimeoutError as failed:
            print("connecting again:", failed, file=sys.stderr)


def kafka_python_producer(bootstrap: str, transactional_id: str) -> Any:
    from kafka import KafkaProducer

    # kafka-python 3.0 can lose AddPartitionsToTxn when the broker dies: its records wait, unsent, until they expire
    # (two minutes by default), and the partition stays pending.
    made = connected(
        KafkaProducer,
        bootstrap_servers=bootstrap,
        transactional_id=transactional_id,
        request_timeout_ms=5_000,
        delivery_timeout_ms=10_000,
    )
    supervised(made.init_transactions)
    return made


def kafka_python_loop(
    bootstrap: str, _: str, source: str, sink: str, group: str, transactional_id: str, fatal: str
) -> None:
    from kafka import KafkaConsumer, OffsetAndMetadata
    from kafka.errors import KafkaError

    over, step, rounds, committed = word(), doom(fatal), 0, 0
    producer = kafka_python_producer(bootstrap, transactional_id)
    consumer = connected(
        KafkaConsumer, source, bootstrap_servers=bootstrap, max_poll_records=RECORDS, **options(group)
    )
    consumer.partitions_for_topic(source)
    while not over.is_set():
        read = consumer.poll(500)
        # Get the group metadata before the transaction, not when the offsets are sent: once a heartbeat has reported
        # that the consumer is no longer a member, kafka-python's metadata has no generation, and offsets without a
        # generation are not fenced (KIP-447). Records that were read without a generation are read again, as a member
        # that rejoins begins at the committed offsets.
        membership = consumer.group_metadata()
        if not read or membership.generation_id < 0:
            continue
        step("poll")
        rounds += 1
        try:
            producer.begin_transaction()
            sent = [producer.send(sink, b"done " + record.value) for each in read.values() for record in each]
            for each in sent:
                each.get()
            step("send")
            behind = {place: OffsetAndMetadata(each[-1].offset + 1, "", -1) for place, each in read.items()}
            supervised(producer.send_offsets_to_transaction, behind, membership)
            if rounds % 3:
                supervised(producer.commit_transaction)
                step("commit")
                committed += len(sent)
                say(committed=committed)
                continue
            supervised(producer.abort_transaction)
        except KafkaError as failed:
            print("a new producer:", failed, file=sys.stderr)
            # kafka-python 3.0 keeps offsets that the group's coordinator has refused, even when their transaction is
            # aborted, and sends them in the next one: their records would be skipped.
            with contextlib.suppress(KafkaError):
                producer.close(timeout=0)
            producer = kafka_python_producer(bootstrap, transactional_id)
        for place in consumer.assignment():
            consumer.seek(place, consumer.committed(place) or 0)
    consumer.close(autocommit=False)
    with contextlib.suppress(KafkaError):
        producer.close()


ORDERS: dict[tuple[str, str], Callable[..., Any]] = {
    ("aiokafka", "group-member"): lambda *words: asyncio.run(aiokafka_member(*words)),
    ("aiokafka", "group-loop"): lambda *words: asyncio.run(aiokafka_loop(*words)),
    ("kafka-python", "group-member"): kafka_python_member,
    ("kafka-python", "group-loop"): kafka_python_loop,
}

if __name__ == "__main__":
    ORDERS[sys.argv[1], sys.argv[2]](*sys.argv[3:])
