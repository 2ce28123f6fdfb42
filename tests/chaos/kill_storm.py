"""A broker that is killed with SIGKILL many times, with idempotent producers that have five batches in flight.

    python -m tests.chaos.kill_storm --rounds 20            # of 50 kills each
    python -m tests.chaos.kill_storm --rounds 0             # show the results so far

After each round all records are read: none is lost, duplicated or out of order, and no producer had a fatal error. Each
round appends a line of JSON to the results. The exit code is 0 if all rounds of this call passed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from random import Random

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from odradek import Broker
from tests.chaos.confluent_actors import FAILURES
from tests.support.deadlines import HANG_S, Deadline

RESULTS = Path(__file__).with_name("kill_storm.jsonl")
TOPIC, PARTITIONS = "numbers", 3
PRODUCERS = 2
KILLS_PER_ROUND = 50
UP_S = (0.2, 1.5)
"""Range of the seconds for which the broker runs between two kills."""
QUEUED_MAX = 500
"""Maximum unacknowledged records of a producer."""


@dataclass(frozen=True)
class Round:
    date: str
    kills: int
    sent: int
    lost: int
    duplicated: int
    reordered: int
    fatal: int

    @property
    def is_right(self) -> bool:
        return not (self.lost or self.duplicated or self.reordered or self.fatal)


class Numbers:
    """A producer that sends 0, 1, 2, ... to each partition until ``end``."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.name = name
        self.sent: Counter[int] = Counter()
        self.acknowledged: set[tuple[int, int]] = set()
        self.fatal: list[str] = []
        self._ending = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": 5,
                "batch.num.messages": 10,
                "linger.ms": 1,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._send, name=name, daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def _noting_what_is_fatal(self) -> Iterator[None]:
        """Context manager: record an error that the block raises in ``fatal``, and suppress it.

        librdkafka raises a fatal error once, in the next call. It does not call error_cb for it.
        """
        try:
            yield
        except FAILURES as failure:
            self.fatal.append(repr(failure))

    def _send(self) -> None:
        with self._noting_what_is_fatal():
            while not self._ending.is_set():
                self._send_some()

    def _send_some(self) -> None:
        for partition in range(PARTITIONS):
            number = self.sent[partition]
            self.sent[partition] += 1
            value = f"{self.name}/{number}"
            self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._delivered)
        while len(self._producer) > QUEUED_MAX and not self._ending.is_set():
            self._producer.poll(0.05)
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            value = message.value()
            assert value is not None
            self.acknowledged.add((message.partition() or 0, int(value.rpartition(b"/")[2])))

    def end(self) -> None:
        self._ending.set()
        self._thread.join()
        with self._noting_what_is_fatal():
            self._producer.flush(HANG_S)


def verdict(
    names: Sequence[str], seen: dict[int, list[str]], acknowledged: dict[str, set[tuple[int, int]]]
) -> tuple[int, int, int]:
    """Numbers of (lost, duplicated, reordered) records, from the records in each partition and the acknowledgements."""
    lost = duplicated = reordered = 0
    for name in names:
        for partition, values in seen.items():
            numbers = [int(value.rpartition("/")[2]) for value in values if value.startswith(f"{name}/")]
            duplicated += len(numbers) - len(set(numbers))
            reordered += sum(later < earlier for earlier, later in pairwise(numbers))
            lost += len({number for at, number in acknowledged[name] if at == partition} - set(numbers))
    return lost, duplicated, reordered


def read(bootstrap: str) -> dict[int, list[str]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "late", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    seen: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
    unread, deadline = set(seen), Deadline()
    try:
        while unread:
            deadline.check(f"partitions not read to the end: {sorted(unread)}")
            for message in consumer.consume(1000, 0.2):
                error, partition = message.error(), message.partition()
                assert partition is not None
                if error is None:
                    seen[partition].append((message.value() or b"").decode())
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(partition)
    finally:
        consumer.close()
    return seen


def one_round(kills: int, rng: Random) -> Round:
    date = datetime.now(UTC).isoformat(timespec="seconds")
    with (
        tempfile.TemporaryDirectory(prefix="kill-storm-") as directory,
        Broker(1, {TOPIC: PARTITIONS}, data_dir=Path(directory) / "data") as broker,
    ):
        producers = [Numbers(broker.bootstrap_servers, f"producer-{n}") for n in range(PRODUCERS)]
        for _ in range(kills):
            time.sleep(rng.uniform(*UP_S))
            broker.kill()
            broker.restart()
        for producer in producers:
            producer.end()
        names = [producer.name for producer in producers]
        acknowledged = {producer.name: producer.acknowledged for producer in producers}
        lost, duplicated, reordered = verdict(names, read(broker.bootstrap_servers), acknowledged)
    sent = sum(producer.sent.total() for producer in producers)
    return Round(date, kills, sent, lost, duplicated, reordered, sum(bool(each.fatal) for each in producers))


def load(path: Path) -> list[Round]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [Round(**json.loads(line)) for line in lines]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--kills", type=int, default=KILLS_PER_ROUND, help="number of kills in each round")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    all_right = True
    for _ in range(given.rounds):
        found = one_round(given.kills, Random(f"round {len(load(given.results))}"))
        with given.results.open("a") as file:
            file.write(json.dumps(asdict(found)) + "\n")
        print(found, flush=True)
        all_right &= found.is_right
    rounds = load(given.results)
    kills, wrong = sum(each.kills for each in rounds), sum(not each.is_right for each in rounds)
    print(f"{len(rounds)} rounds, {kills} kills, {sum(each.sent for each in rounds)} records; wrong: {wrong}")
    return 0 if all_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
