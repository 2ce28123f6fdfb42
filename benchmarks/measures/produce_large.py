"""Broker CPU of a Produce of 1 MiB in one batch, with acks=all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.client import (
    LARGE_BATCH_BYTES,
    Client,
    check_produced,
    create_topic,
    in_turn,
    large_batch,
    produce_frame,
)
from benchmarks.figures import WARM_UP_S, Figure, Run
from benchmarks.plain import Plain
from benchmarks.process import Cost, cost_of
from benchmarks.targets import Target

TOPIC: Final = "large"
# The data stays on the disk until the target ends, so the warm-up has a fixed number of requests.
WARM_UP_REQUESTS: Final = 200
REQUESTS: Final = 100
"""Requests per round: few, so that the memory that was touched before the round is still available."""
SPARE: Final = 20


def measure(run: Run) -> Iterator[Figure]:
    broker = push(run, run.target)
    plain = push(run, Plain())
    yield Figure(
        "CPU per Produce of 1 MiB",
        broker.cpu_s * 1000,
        "ms",
        limit=1.0,
        baseline=f"receive and plain write {plain.cpu_s * 1000:.2f} ms",
        note=f"{broker.least_cpu_s * 1000:.2f} to {broker.most_cpu_s * 1000:.2f};"
        f" {broker.per_second * LARGE_BATCH_BYTES / 1e6:.0f} MB/s, one in flight",
        other_cpu=broker.other_cpu,
    )


def push(run: Run, kind: Target) -> Cost:
    request = produce_frame(TOPIC, large_batch())
    answers: list[bytes] = []
    with kind.running(run.scratch / f"produce-large-{kind.name}") as target:
        client = Client(target.connect())
        if kind is run.target:
            create_topic(client, TOPIC)
        for _ in range(WARM_UP_REQUESTS):
            in_turn(client, [request])
            time.sleep(WARM_UP_S / WARM_UP_REQUESTS)

        costs = cost_of(
            target.pid,
            run.scaled(20, 10),
            REQUESTS,
            lambda: answers.extend(in_turn(client, [request] * REQUESTS)),
            before=lambda: touch_memory(run.scratch / "touch", (REQUESTS + SPARE) * LARGE_BATCH_BYTES),
        )
        client.close()
    if kind is run.target:
        check_produced(answers)
    return costs


def touch_memory(path: Path, size: int) -> None:
    """Fill the page cache and free it again, so that the next writes find memory that the machine has already.

    A virtual machine may get a page from its host only at the first access, and return it when it is free for a second or
    two. Writing 1 MiB to such pages then takes 1 to 3 ms instead of 0.2, in any program.
    """
    data = bytes(LARGE_BATCH_BYTES)
    with path.open("wb", buffering=0) as file:
        for _ in range(size // len(data)):
            file.write(data)
    path.unlink()
