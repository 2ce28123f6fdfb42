"""Broker CPU of a Produce of one record of 100 bytes, acks=all: on one connection, and on many at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count as numbers
from typing import Final

from benchmarks.client import (
    Client,
    check_produced,
    create_topic,
    in_turn,
    init_producer_id,
    produce_frame,
    small_batch,
)
from benchmarks.figures import WARM_UP_S, Figure, Run
from benchmarks.plain import Plain
from benchmarks.process import Usage, used_by
from benchmarks.targets import Running

TOPIC: Final = "small"
CONNECTIONS: Final = 64
LIMIT_US: Final = 60
CHUNK: Final = 500

Frames = Callable[[int], Sequence[bytes]]
"""Makes the next so many requests."""


def measure(run: Run) -> Iterator[Figure]:
    count = run.scaled(20_000, 5_000)
    same = produce_frame(TOPIC, small_batch())
    with Plain().running(run.scratch / "produce-small-plain") as target:
        plain, _ = one_connection(target, lambda number: [same] * number, count)
    baseline = f"plain echo {plain.target_cpu_s / count * 1e6:.0f} us"
    with run.target.running(run.scratch / "produce-small") as target:
        client = Client(target.connect())
        create_topic(client, TOPIC, CONNECTIONS)
        producer_id = init_producer_id(client)
        client.close()
        usage, answers = one_connection(target, lambda number: [same] * number, count)
        check_produced(answers)
        yield figure("CPU per small Produce, one connection", usage, count, baseline)
        usage, answers = one_connection(target, idempotent(producer_id), count)
        check_produced(answers)
        yield figure("CPU per small idempotent Produce, one connection", usage, count, baseline)
        usage, answers = many_connections(target, count)
        check_produced(answers)
        yield figure(f"CPU per small Produce, {CONNECTIONS} connections", usage, count, baseline)


def figure(name: str, usage: Usage, count: int, baseline: str) -> Figure:
    return Figure(
        name,
        usage.target_cpu_s / count * 1e6,
        "us",
        limit=LIMIT_US,
        baseline=baseline,
        note=f"{count / usage.wall_s:,.0f} requests/s",
        other_cpu=usage.other_cpu,
    )


def idempotent(producer_id: int) -> Frames:
    sequences = numbers()
    return lambda number: [
        produce_frame(TOPIC, small_batch(producer_id, next(sequences))) for _ in range(number)
    ]


def one_connection(target: Running, frames: Frames, count: int) -> tuple[Usage, list[bytes]]:
    """One request in flight."""
    client = Client(target.connect())
    warm = time.monotonic() + WARM_UP_S
    while time.monotonic() < warm:
        in_turn(client, frames(CHUNK))
    ready = frames(count)
    with used_by(target.pid) as usage:
        answers = in_turn(client, ready)
    client.close()
    return usage, answers


def many_connections(target: Running, count: int) -> tuple[Usage, list[bytes]]:
    """One request in flight on each connection, to a partition of its own; all are sent before any is awaited."""
    clients = [Client(target.connect()) for _ in range(CONNECTIONS)]
    frames = [produce_frame(TOPIC, small_batch(), index) for index in range(CONNECTIONS)]

    def one_round() -> list[bytes]:
        for client, each in zip(clients, frames, strict=True):
            client.send(each)
        return [bytes(client.receive()) for client in clients]

    warm = time.monotonic() + WARM_UP_S
    while time.monotonic() < warm:
        one_round()
    with used_by(target.pid) as usage:
        answers = [answer for _ in range(count // CONNECTIONS) for answer in one_round()]
    for client in clients:
        client.close()
    return usage, answers
