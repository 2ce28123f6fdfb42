"""A broker is killed with SIGKILL many times, with idempotent producers that have five requests in flight.

Each producer sends requests without a response again, oldest first, as Kafka's clients do. Batches that the broker had
appended before it died arrive as duplicates then: they are acknowledged, and are in the log once, in order.
(`tests/chaos/kill_storm.py` kills a broker a thousand times, with a real client.)
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from protocol.batch import batches, build_batch
from tests.support import raw
from tests.support.broker import Broker, StartBroker
from tests.support.deadlines import HANG_S, LONG_TEST_S

IN_FLIGHT = 5
PRODUCERS = 3
PRODUCE_VERSION = 9
FETCH_BYTES = 1 << 22
TOPIC = "storm"
SMALL_SEGMENTS = {"log.segment.bytes": "1048576", "odradek.background.flush.interval.ms": "50"}


@dataclass
class Producer:
    """An idempotent producer. Each sequence is one batch, whose value is the sequence."""

    producer_id: int
    filler: bytes
    next_sequence: int = 0
    in_flight: deque[int] = field(default_factory=deque)
    offsets: dict[int, int] = field(default_factory=dict)
    wire: raw.Wire | None = None

    def connect(self, broker: Broker) -> None:
        self.wire = raw.Wire(broker.host, broker.port, timeout=HANG_S)
        for sequence in self.in_flight:
            self._send(sequence)

    def disconnect(self) -> None:
        assert self.wire is not None
        self.wire.close()

    def fill(self) -> None:
        while len(self.in_flight) < IN_FLIGHT:
            self.in_flight.append(self.next_sequence)
            self._send(self.next_sequence)
            self.next_sequence += 1

    def take(self) -> None:
        """Receive the response to the oldest request, which must have an offset."""
        assert self.wire is not None
        correlation, body = raw.decode_response("produce", PRODUCE_VERSION, self.wire.receive_frame(20))
        sequence = self.in_flight.popleft()
        assert correlation == sequence
        [told] = body["responses"][0]["partition_responses"]
        assert told["error_code"] == 0, (self.producer_id, sequence, told)
        self.offsets[sequence] = told["base_offset"]

    def _send(self, sequence: int) -> None:
        assert self.wire is not None
        value = sequence.to_bytes(4, "big") + self.filler
        data = build_batch(
            [(time.time_ns() // 1_000_000, None, value)],
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        body = {
            "transactional_id": None,
            "acks": -1,
            "timeout": 10_000,
            "topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": data}]}],
        }
        self.wire.send_frame(raw.encode_request("produce", PRODUCE_VERSION, body, sequence))


def ask(broker: Broker, api: str, version: int, **body: Any) -> dict[str, Any]:
    wire = raw.Wire(broker.host, broker.port, timeout=HANG_S)
    try:
        wire.send_frame(raw.encode_request(api, version, body, 1))
        return raw.decode_response(api, version, wire.receive_frame(20))[1]
    finally:
        wire.close()


def stored(broker: Broker) -> Iterator[tuple[int, int, int]]:
    """Yield (offset, producer id, sequence) of each batch in the log."""
    offset = 0
    while True:
        partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": FETCH_BYTES}
        answer = ask(
            broker,
            "fetch",
            4,
            replica_id=-1,
            max_wait=0,
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            isolation_level=0,
            topics=[{"topic": TOPIC, "partitions": [partition]}],
        )
        records = answer["responses"][0]["partitions"][0]["records"]
        if not records:
            return
        for batch in batches(records):
            yield batch.base_offset, batch.producer_id, batch.base_sequence
            offset = batch.next_offset


def go_on(producers: list[Producer], broker: Broker, rng: random.Random) -> None:
    """Send again the requests without a response, then send new ones, until each producer has five without a response."""
    for producer in producers:
        producer.connect(broker)
    for _ in range(rng.randint(1, 20)):
        for producer in producers:
            producer.fill()
            producer.take()
    for producer in producers:
        producer.fill()
    if rng.random() < 0.5:
        time.sleep(rng.choice((0.001, 0.003, 0.01)))  # some batches are appended, and their responses lost


@pytest.mark.parametrize(
    ("kills", "settings", "filler_bytes"),
    [
        pytest.param(12, {}, 100, id="12 kills", marks=pytest.mark.more),
        pytest.param(
            100,
            SMALL_SEGMENTS,
            20_000,
            id="100 kills, small segments",
            marks=[pytest.mark.slow, pytest.mark.timeout(LONG_TEST_S)],
        ),
    ],
)
def test_nothing_is_lost_duplicated_or_refused(
    start_broker: StartBroker, kills: int, settings: dict[str, str], filler_bytes: int
) -> None:
    rng = random.Random(kills + filler_bytes)
    broker = start_broker(topics=[f"{TOPIC}:1"], settings=settings)
    producers = []
    for _ in range(PRODUCERS):
        given = ask(broker, "init_producer_id", 1, transactional_id=None, transaction_timeout=60_000)
        producers.append(Producer(given["producer_id"], bytes(filler_bytes)))
    for _ in range(kills):
        go_on(producers, broker, rng)
        broker.kill()
        for producer in producers:
            producer.disconnect()
        broker.start()
    for producer in producers:
        producer.connect(broker)
        while producer.in_flight:
            producer.take()
        producer.disconnect()
    in_log: dict[int, dict[int, int]] = {producer.producer_id: {} for producer in producers}
    for offset, producer_id, sequence in stored(broker):
        assert sequence == len(in_log[producer_id]), "once, and in order"
        in_log[producer_id][sequence] = offset
    assert in_log == {producer.producer_id: producer.offsets for producer in producers}
