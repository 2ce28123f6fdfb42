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
    WrongAnswer,
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
from benchmarks.process import Usage, used_by
from benchmarks.targets import Running

TOPIC: Final = "large"
BATCHES: Final = 32


def measure(run: Run) -> Iterator[Figure]:
    count = run.scaled(4_000, 1_000)
    with run.target.running(run.scratch / "fetch-large") as target:
        client = Client(target.connect())
        create_topic(client, TOPIC)
        check_produced(in_turn(client, [produce_frame(TOPIC, large_batch())] * BATCHES))
        frames = [fetch_frame(TOPIC, offset) for offset in range(BATCHES)]
        for each in frames:
            check(client, each)
        usage = pull(target, client, frames, count)
        client.close()
    with Plain().running(run.scratch / "fetch-large-plain") as target:
        client = Client(target.connect())
        plain = pull(target, client, [SIZE.pack(len(READ)) + READ], count)
        client.close()
    yield Figure(
        "CPU per Fetch that returns 1 MiB",
        usage.target_cpu_s / count * 1000,
        "ms",
        limit=0.5,
        baseline=f"plain pread and send {plain.target_cpu_s / count * 1000:.2f} ms",
        note=f"{count * LARGE_BATCH_BYTES / usage.wall_s / 1e6:.0f} MB/s, one connection, one in flight",
        other_cpu=usage.other_cpu,
    )


def check(client: Client, request: bytes) -> None:
    client.send(request)
    (topic,) = parse(FETCH, bytes(client.receive())).responses
    (partition,) = topic.partitions
    if partition.error_code or len(partition.records) != LARGE_BATCH_BYTES:
        raise WrongAnswer(f"Fetch: error {partition.error_code}, {len(partition.records)} bytes")


def pull(target: Running, client: Client, frames: Sequence[bytes], count: int) -> Usage:
    endless = cycle(frames)
    warm = time.monotonic() + WARM_UP_S
    while time.monotonic() < warm:
        fetch(client, next(endless))
    with used_by(target.pid) as usage:
        for each in islice(endless, count):
            fetch(client, each)
    return usage


def fetch(client: Client, request: bytes) -> None:
    client.send(request)
    if len(client.receive()) < LARGE_BATCH_BYTES:
        raise WrongAnswer("a Fetch returned less than 1 MiB")
