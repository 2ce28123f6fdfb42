"""Broker CPU of a Fetch that returns 1 MiB."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from typing import Final

from benchmarks.client import (
    FETCH,
    LARGE_BATCH_BYTES,
    SIZE,
    Client,
    WrongResponse,
    check_produced,
    create_topic,
    fetch_frame,
    in_turn,
    large_batch,
    parse,
    produce_frame,
)
from benchmarks.figures import WARM_UP_S, Figure, Run
from benchmarks.plain import READ, Plain
from benchmarks.process import Cost, cost_of
from benchmarks.targets import Running

TOPIC: Final = "large"
BATCHES: Final = 32
REQUESTS: Final = 500
"""Number of requests in each round."""


def measure(run: Run) -> Iterator[Figure]:
    with run.target.running(run.scratch / "fetch-large") as target:
        client = Client(target.connect())
        create_topic(client, TOPIC)
        check_produced(in_turn(client, [produce_frame(TOPIC, large_batch())] * BATCHES))
        frames = [fetch_frame(TOPIC, offset) for offset in range(BATCHES)]
        for each in frames:
            check(client, each)
        broker = pull(run, target, client, frames)
        client.close()
    with Plain().running(run.scratch / "fetch-large-plain") as target:
        client = Client(target.connect())
        plain = pull(run, target, client, [SIZE.pack(len(READ)) + READ])
        client.close()
    yield Figure(
        "CPU per Fetch that returns 1 MiB",
        broker.cpu_s * 1000,
        "ms",
        limit=0.5,
        baseline=f"plain pread and send {plain.cpu_s * 1000:.2f} ms",
        note=f"{broker.least_cpu_s * 1000:.2f} to {broker.most_cpu_s * 1000:.2f};"
        f" {broker.per_second * LARGE_BATCH_BYTES / 1e6:.0f} MB/s, one in flight",
        other_cpu=broker.other_cpu,
    )


def check(client: Client, request: bytes) -> None:
    client.send(request)
    (topic,) = parse(FETCH, bytes(client.receive())).responses
    (partition,) = topic.partitions
    if partition.error_code or len(partition.records) != LARGE_BATCH_BYTES:
        raise WrongResponse(f"Fetch: error {partition.error_code}, {len(partition.records)} bytes")


def pull(run: Run, target: Running, client: Client, frames: Sequence[bytes]) -> Cost:
    endless = cycle(frames)

    def work() -> None:
        for each in islice(endless, REQUESTS):
            fetch(client, each)

    warm = time.monotonic() + WARM_UP_S
    while time.monotonic() < warm:
        work()
    return cost_of(target.pid, run.scaled(8, 4), REQUESTS, work)


def fetch(client: Client, request: bytes) -> None:
    client.send(request)
    if len(client.receive()) < LARGE_BATCH_BYTES:
        raise WrongResponse("a Fetch returned less than 1 MiB")
