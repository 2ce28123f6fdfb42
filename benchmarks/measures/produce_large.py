"""Broker CPU of a Produce of 1 MiB, one batch, acks=all."""

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
from benchmarks.process import used_by
from benchmarks.targets import Running

TOPIC: Final = "large"
# The data stays on the disk until the run ends, so the warm-up paces itself.
WARM_UP_REQUESTS: Final = 200
BLOCK: Final = 100
"""Requests between two looks at memory."""
SPARE: Final = 20


def measure(run: Run) -> Iterator[Figure]:
    request = produce_frame(TOPIC, large_batch())
    blocks = run.scaled(15, 10)
    count = blocks * BLOCK
    with run.target.running(run.scratch / "produce-large") as target:
        client = Client(target.connect())
        create_topic(client, TOPIC)
        broker = Push(target, client, request, run.scratch / "touch", blocks)
        check_produced(broker.answers)
        client.close()
    with Plain().running(run.scratch / "produce-large-plain") as target:
        client = Client(target.connect())
        plain = Push(target, client, request, run.scratch / "touch", blocks)
        client.close()
    yield Figure(
        "CPU per Produce of 1 MiB",
        broker.cpu_s / count * 1000,
        "ms",
        limit=1.0,
        baseline=f"receive and plain write {plain.cpu_s / count * 1000:.2f} ms",
        note=f"{count * LARGE_BATCH_BYTES / broker.wall_s / 1e6:.0f} MB/s, one connection, one in flight",
        other_cpu=broker.other_cpu,
    )


class Push:
    """A warm-up and then so many blocks of requests, one in flight."""

    def __init__(self, target: Running, client: Client, request: bytes, scratch: Path, blocks: int) -> None:
        self.answers: list[bytes] = []
        self.cpu_s = self.wall_s = self.other_cpu = 0.0
        for _ in range(WARM_UP_REQUESTS):
            in_turn(client, [request])
            time.sleep(WARM_UP_S / WARM_UP_REQUESTS)
        for _ in range(blocks):
            touch_memory(scratch, (BLOCK + SPARE) * LARGE_BATCH_BYTES)
            with used_by(target.pid) as usage:
                self.answers += in_turn(client, [request] * BLOCK)
            self.cpu_s += usage.target_cpu_s
            self.wall_s += usage.wall_s
            self.other_cpu += usage.other_cpu / blocks


def touch_memory(path: Path, size: int) -> None:
    """Fill the page cache and let it go again, so that the next writes find memory that the machine has.

    A virtual machine may get a page from its host only when it first touches it, and give it back when it is free for
    a second or two. To write 1 MiB into such pages takes 1 to 3 ms instead of 0.2, whoever writes.
    """
    data = bytes(LARGE_BATCH_BYTES)
    with path.open("wb", buffering=0) as file:
        for _ in range(size // len(data)):
            file.write(data)
    path.unlink()
