"""``python -m benchmarks.peers.librdkafka MEASURE``: librdkafka's clients, in a separate process.

The last line of output has the result as JSON, with the same fields as the compiled client in `benchmarks/load`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from statistics import quantiles
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, ShareConsumer, TopicPartition

from benchmarks.process import Usage, used_by

TIMEOUT_S: Final = 60.0
POLL_S: Final = 5.0
PAUSE_S: Final = 0.01
RECORD_BYTES: Final = 1024
TRANSACTION_RECORDS: Final = 10
TRANSACTION_PARTITIONS: Final = 2
READ_PARTITIONS: Final = 4
CONSUMED_AT_ONCE: Final = 10_000
Outcome = dict[str, float]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.librdkafka", description=__doc__)
    parser.add_argument("measure", choices=sorted(MEASURES))
    parser.add_argument("--address", required=True)
    parser.add_argument(
        "--pid", type=int, required=True, help="process id of the broker, to read its CPU time"
    )
    parser.add_argument("--topic", required=True)
    parser.add_argument("--warm", type=float, default=1.0)
    parser.add_argument("--measure-s", type=float, default=3.0)
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--group", help="the share group, which nobody has joined yet")
    parser.add_argument("--records", type=int, help="number of records to consume by a share consumer")
    options = parser.parse_args(arguments)
    print(json.dumps(MEASURES[options.measure](options)))
    return 0


def producer(options: argparse.Namespace, **told: Any) -> Producer:
    failed: list[str] = []

    def report(error: object, message: object) -> None:
        if error is not None:
            failed.append(str(error))

    # Log level 0: the broker stops at the end, which needs no message.
    configuration = {
        "bootstrap.servers": options.address,
        "log_level": 0,
        "delivery.report.only.error": True,
        "on_delivery": report,
        **told,
    }
    made = Producer(configuration)
    FAILED[id(made)] = failed
    return made


FAILED: dict[int, list[str]] = {}
"""Delivery errors, by producer."""


def check(made: Producer) -> None:
    if FAILED[id(made)]:
        raise SystemExit(f"not delivered: {FAILED[id(made)][0]}")


def outcome(usage: Usage, operations: int, moved: int = 0, times_s: Sequence[float] = ()) -> Outcome:
    found = {
        "operations": operations,
        "bytes": moved,
        "retries": 0,
        "wall_s": usage.wall_s,
        "broker_cpu_s": usage.target_cpu_s,
        "other_cpu": usage.other_cpu,
    }
    if len(times_s) > 1:
        cuts = quantiles(times_s, n=100)
        found |= {"p50_ms": cuts[49] * 1000, "p99_ms": cuts[98] * 1000}
    return found


# -- writing and reading ------------------------------------------------------------------------------------------


def produce(options: argparse.Namespace) -> Outcome:
    """Write as many records as the client can, with acks=all and without compression, otherwise with its defaults."""
    sender = producer(options)
    value = os.urandom(RECORD_BYTES)
    push(sender, options.topic, value, options.warm)
    with used_by(options.pid) as usage:
        sent = push(sender, options.topic, value, options.measure_s)
    check(sender)
    return outcome(usage, sent, sent * RECORD_BYTES)


def push(sender: Producer, topic: str, value: bytes, seconds: float) -> int:
    """Write until the time is over, and wait until everything is delivered."""
    sent, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        for _ in range(1000):
            while True:
                try:
                    sender.produce(topic, value)
                    break
                except BufferError:
                    sender.poll(0.001)
            sent += 1
    if sender.flush(TIMEOUT_S):
        raise SystemExit("not delivered in time")
    return sent


def latency(options: argparse.Namespace) -> Outcome:
    """Write one record of 100 bytes at a time."""
    acknowledged = threading.Event()
    sender = producer(
        options,
        **{"linger.ms": 0, "delivery.report.only.error": False, "on_delivery": lambda *_: acknowledged.set()},
    )
    value = os.urandom(100)

    def once() -> None:
        acknowledged.clear()
        sender.produce(options.topic, value)
        while not acknowledged.is_set():
            sender.poll(TIMEOUT_S)

    repeat(once, options.warm)
    with used_by(options.pid) as usage:
        times_s = repeat(once, options.measure_s)
    return outcome(usage, len(times_s), 0, times_s)


def repeat(once: Callable[[], object], seconds: float) -> list[float]:
    """Call ``once`` repeatedly for ``seconds``. Returns the seconds of each call."""
    times_s: list[float] = []
    now = time.perf_counter()
    end = now + seconds
    while now < end:
        once()
        before, now = now, time.perf_counter()
        times_s.append(now - before)
    return times_s


def reader(options: argparse.Namespace, partitions: int, offset: int) -> Consumer:
    made = Consumer(
        {
            "bootstrap.servers": options.address,
            "log_level": 0,
            "group.id": "readers",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "isolation.level": "read_committed",
        }
    )
    made.assign([TopicPartition(options.topic, index, offset) for index in range(partitions)])
    return made


def consume(options: argparse.Namespace) -> Outcome:
    """Read an existing topic from its beginning. The first tenth of it is the warm-up."""
    consumer = reader(options, READ_PARTITIONS, 0)
    parts = [TopicPartition(options.topic, index) for index in range(READ_PARTITIONS)]
    total = sum(consumer.get_watermark_offsets(part, TIMEOUT_S)[1] for part in parts)
    warmed, _ = take(consumer, total // 10)
    with used_by(options.pid) as usage:
        records, moved = take(consumer, total - warmed)
    consumer.close()
    return outcome(usage, records, moved)


def take(consumer: Consumer, wanted: int) -> tuple[int, int]:
    records = moved = 0
    while records < wanted:
        messages = consumer.consume(min(CONSUMED_AT_ONCE, wanted - records), TIMEOUT_S)
        if not messages:
            raise SystemExit(f"the consumer got only {records} of {wanted} records in time")
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            moved += len(message)
        records += len(messages)
    return records, moved


def share(options: argparse.Namespace) -> Outcome:
    """Consume records by a share consumer, which acknowledges those of each poll by the next one. The time begins with the
    first record: a new group gets its partitions only with its second or third heartbeat."""
    consumer = ShareConsumer(
        {"bootstrap.servers": options.address, "log_level": 0, "group.id": options.group}
    )
    consumer.subscribe([options.topic])
    deadline = time.perf_counter() + TIMEOUT_S
    while not polled(consumer)[0]:
        if time.perf_counter() > deadline:
            raise SystemExit("the share consumer got no record in time")
    records = moved = 0
    with used_by(options.pid) as usage:
        while records < options.records:
            count, size = polled(consumer)
            if not count:
                raise SystemExit(
                    f"the share consumer got only {records} of {options.records} records in time"
                )
            records, moved = records + count, moved + size
    consumer.close()
    return outcome(usage, records, moved)


def polled(consumer: ShareConsumer) -> tuple[int, int]:
    """Poll once. Returns the number of records and their bytes."""
    count = moved = 0
    for message in consumer.poll(POLL_S):
        if message.error():
            raise KafkaException(message.error())
        count, moved = count + 1, moved + len(message)
    return count, moved


def end_to_end(options: argparse.Namespace) -> Outcome:
    """Time from the call of produce until a consumer in the same process has the record, one record at a time."""
    sender = producer(options, **{"linger.ms": 0})
    value = os.urandom(100)
    # Write the topic's first record, at which the consumer starts.
    sender.produce(options.topic, value, partition=0)
    sender.flush(TIMEOUT_S)
    consumer = reader(options, 1, 0)
    expected(consumer)

    def once() -> None:
        sender.produce(options.topic, value, partition=0)
        expected(consumer)

    repeat(once, options.warm)
    with used_by(options.pid) as usage:
        times_s = repeat(once, options.measure_s)
    check(sender)
    consumer.close()
    return outcome(usage, len(times_s), 0, times_s)


def expected(consumer: Consumer) -> None:
    message = consumer.poll(TIMEOUT_S)
    if message is None:
        raise SystemExit("the consumer did not get the record in time")
    if message.error():
        raise KafkaException(message.error())


# -- transactions -------------------------------------------------------------------------------------------------


def transactions(options: argparse.Namespace) -> Outcome:
    """Commit transactions of ten records in two partitions and an offset. Each producer runs in its own thread."""
    # The metadata of a consumer without a group membership, as for commits from outside a group.
    consumer = Consumer({"bootstrap.servers": options.address, "log_level": 0, "group.id": "workers"})
    group = consumer.consumer_group_metadata()
    phase = {"measured": False, "ended": False}
    times_s: list[list[float]] = [[] for _ in range(options.producers)]
    failures: list[BaseException] = []
    initialised = threading.Barrier(options.producers + 1)

    def work(number: int) -> None:
        try:
            sender = producer(options, **{"transactional.id": f"{options.topic}-{number}", "linger.ms": 0})
            sender.init_transactions(TIMEOUT_S)
            initialised.wait(TIMEOUT_S)
            offset = 0
            while not phase["ended"]:
                offset += 1
                begun = time.perf_counter()
                transact(sender, options.topic, number, offset, group)
                if phase["measured"] and not phase["ended"]:
                    times_s[number].append(time.perf_counter() - begun)
            check(sender)
        except BaseException as failure:
            failures.append(failure)
            initialised.abort()
            raise

    threads = [threading.Thread(target=work, args=(number,)) for number in range(options.producers)]
    for thread in threads:
        thread.start()
    initialised.wait(TIMEOUT_S)
    time.sleep(options.warm)
    phase["measured"] = True
    with used_by(options.pid) as usage:
        time.sleep(options.measure_s)
        # If the machine is too busy for a single transaction in that time, wait for one.
        while not any(times_s) and not failures:
            time.sleep(PAUSE_S)
    phase["ended"] = True
    for thread in threads:
        thread.join()
    if failures:
        raise SystemExit(f"a producer failed: {failures[0]}")
    all_s = [each for own in times_s for each in own]
    return outcome(usage, len(all_s), 0, all_s)


def transact(sender: Producer, topic: str, number: int, offset: int, group: Any) -> None:
    sender.begin_transaction()
    for index in range(TRANSACTION_RECORDS):
        sender.produce(topic, VALUE, partition=index % TRANSACTION_PARTITIONS)
    # The mock cluster creates every topic with four partitions.
    position = TopicPartition(f"{topic}-input", number % READ_PARTITIONS, offset)
    sender.send_offsets_to_transaction([position], group, TIMEOUT_S)
    sender.commit_transaction(TIMEOUT_S)


VALUE: Final = os.urandom(100)
MEASURES: Final[dict[str, Callable[[argparse.Namespace], Outcome]]] = {
    "produce": produce,
    "latency": latency,
    "consume": consume,
    "end-to-end": end_to_end,
    "share": share,
    "transactions": transactions,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
