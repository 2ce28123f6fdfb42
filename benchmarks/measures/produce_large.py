"""Broker CPU of a Produce of 1 MiB, one batch, acks=all."""

from __future__ import annotations

import time
from collections.abc import Iterator
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
from benchmarks.process import Usage, used_by
from benchmarks.targets import Running

TOPIC: Final = "large"
# The data stays on the disk until the run ends, so the warm-up paces itself.
WARM_UP_REQUESTS: Final = 200


def measure(run: Run) -> Iterator[Figure]:
    request = produce_frame(TOPIC, large_batch())
    count = run.scaled(1_500, 1_000)
    with run.target.running(run.scratch / "produce-large") as target:
        client = Client(target.connect())
        create_topic(client, TOPIC)
        usage, answers = push(target, client, request, count)
        check_produced(answers)
        client.close()
    with Plain().running(run.scratch / "produce-large-plain") as target:
        client = Client(target.connect())
        plain, _ = push(target, client, request, count)
        client.close()
    yield Figure(
        "CPU per Produce of 1 MiB",
        usage.target_cpu_s / count * 1000,
        "ms",
        limit=1.0,
        baseline=f"receive and plain write {plain.target_cpu_s / count * 1000:.2f} ms",
        note=f"{count * LARGE_BATCH_BYTES / usage.wall_s / 1e6:.0f} MB/s, one connection, one in flight",
        other_cpu=usage.other_cpu,
    )


def push(target: Running, client: Client, request: bytes, count: int) -> tuple[Usage, list[bytes]]:
    for _ in range(WARM_UP_REQUESTS):
        in_turn(client, [request])
        time.sleep(WARM_UP_S / WARM_UP_REQUESTS)
    with used_by(target.pid) as usage:
        answers = in_turn(client, [request] * count)
    return usage, answers
