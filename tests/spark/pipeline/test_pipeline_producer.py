"""The pipeline's producer, killed inside its transactions, writes every flight once and in order."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from odradek.demo import flights
from odradek.demo.clients import read_all
from odradek.spark.pipeline.departures import CLOSING, in_order
from odradek.spark.pipeline.producer import ABORT_EVERY, TRANSACTION_FLIGHTS
from odradek.spark.pipeline.programs import Program
from tests.support.broker import StartBroker
from tests.support.clients import eventually

FLIGHTS = 9_500
TOPIC = "flights"
PARTITIONS = 3


class Watched:
    """A producer that is killed once for each of the given flights, at the beginning of the flight's transaction."""

    def __init__(self, bootstrap: str, directory: Path, kill_at: list[int]) -> None:
        self.kill_at = kill_at
        self.words: list[tuple[str, int]] = []
        arguments = [bootstrap, TOPIC, PARTITIONS, "--flights", FLIGHTS]
        self.program = Program("odradek.spark.pipeline.producer", arguments, directory, self.hears)

    def hears(self, words: list[str]) -> None:
        self.words.append((words[0], int(words[1])))
        if words[0] == "begin" and int(words[1]) in self.kill_at:
            self.kill_at.remove(int(words[1]))
            self.program.kill()

    def run(self, until: int) -> int:
        self.program.start()
        self.program.tell(until)
        eventually(lambda: self.program.exit_code is not None)
        assert self.program.exit_code is not None
        return self.program.exit_code

    def number_of(self, word: str) -> int:
        return sum(said == word for said, _ in self.words)


@pytest.mark.more
def test_a_producer_that_is_killed_tells_every_flight_once_in_order(
    start_broker: StartBroker, tmp_path: Path
):
    broker = start_broker(topics=[f"{TOPIC}:{PARTITIONS}"])
    producer = Watched(broker.bootstrap, tmp_path, kill_at=[7000])
    try:
        # Flight 7000 is in the last transaction that the first producer may begin, so even a late kill finds it running.
        assert [producer.run(until) for until in (7001, FLIGHTS + 1)] == [-9, 0]
        # A further producer finds every flight written, and writes nothing.
        assert producer.run(FLIGHTS + 1) == 0
    finally:
        producer.program.kill()
    eventually(lambda: producer.number_of("done") == 2)
    assert producer.number_of("abort") >= FLIGHTS // TRANSACTION_FLIGHTS // ABORT_EVERY > 0

    told = in_order(flights.lines(flights.data_file()), FLIGHTS)
    by_partition: dict[int, list[str]] = defaultdict(list)
    for message in read_all(broker.bootstrap, TOPIC, "read_committed"):
        by_partition[message.partition() or 0].append((message.value() or b"").decode())
    assert sorted(by_partition) == list(range(PARTITIONS))
    ends = [json.loads(values.pop()) for values in by_partition.values()]
    assert [end["scheduled"] for end in ends] == [CLOSING] * PARTITIONS
    numbers = {
        partition: [json.loads(value)["row"] for value in values]
        for partition, values in by_partition.items()
    }
    assert all(each == sorted(each) for each in numbers.values())
    assert sorted(value for values in by_partition.values() for value in values) == sorted(
        each.value for each in told
    )
    seen = list(read_all(broker.bootstrap, TOPIC, "read_uncommitted"))
    assert len(seen) >= FLIGHTS + TRANSACTION_FLIGHTS
