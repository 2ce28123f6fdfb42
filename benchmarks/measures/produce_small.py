"""Broker CPU of a Produce of one record of 100 bytes with acks=all, on one connection and on many at once."""

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
from benchmarks.process import Cost, cost_of
from benchmarks.targets import Running

TOPIC: Final = "small"
CONNECTIONS: Final = 64
LIMIT_US: Final = 60

Frames = Callable[[int], Sequence[bytes]]
"""Returns the frames of the given number of requests."""


def measure(run: Run) -> Iterator[Figure]:
    same = produce_frame(TOPIC, small_batch())

    def plainly(number: int) -> Sequence[bytes]:
        return [same] * number

    with Plain().running(run.scratch / "produce-small-plain") as target:
        plain, _ = one_connection(run, target, plainly)
    baseline = f"plain echo {plain.cpu_s * 1e6:.0f} us"
    with run.target.running(run.scratch / "produce-small") as target:
        client = Client(target.connect())
        create_topic(client, TOPIC, CONNECTIONS)
        producer_id = init_producer_id(client)
        client.close()
        cost, answers = one_connection(run, target, plainly)
        check_produced(answers)
        yield figure("CPU per small Produce, one connection", cost, baseline)
        cost, answers = one_connection(run, target, idempotent(producer_id))
        check_produced(answers)
        yield figure("CPU per small idempotent Produce, one connection", cost, baseline)
        cost, answers = many_connections(run, target)
        check_produced(answers)
        yield figure(f"CPU per small Produce, {CONNECTIONS} connections", cost, baseline)


def figure(name: str, cost: Cost, baseline: str) -> Figure:
    return Figure(
        name,
        cost.cpu_s * 1e6,
        "us",
        limit=LIMIT_US,
        baseline=baseline,
        note=f"{cost.least_cpu_s * 1e6:.0f} to {cost.most_cpu_s * 1e6:.0f}; {cost.per_second:,.0f} requests/s",
        other_cpu=cost.other_cpu,
    )


def idempotent(producer_id: int) -> Frames:
    sequences = numbers()
    return lambda number: [
        produce_frame(TOPIC, small_batch(producer_id, next(sequences))) for _ in range(number)
    ]


def one_connection(run: Run, target: Running, frames: Frames) -> tuple[Cost, list[bytes]]:
    """Send requests on one connection, one in flight. Returns the cost of a request, and the responses."""
    client = Client(target.connect())
    answers: list[bytes] = []
    ready: list[Sequence[bytes]] = []
    requests = run.scaled(10_000, 5_000)
    warm = time.monotonic() + WARM_UP_S
    while time.monotonic() < warm:
        in_turn(client, frames(500))
    cost = cost_of(
        target.pid,
        run.scaled(8, 3),
        requests,
        lambda: answers.extend(in_turn(client, ready.pop())),
        before=lambda: ready.append(frames(requests)),
    )
    client.close()
    return cost, answers


def many_connections(run: Run, target: Running) -> tuple[Cost, list[bytes]]:
    """Send one request on each connection, to different partitions, before the first response is read.

    Returns the cost of a request, and the responses.
    """
    clients = [Client(target.connect()) for _ in range(CONNECTIONS)]
    frames = [produce_frame(TOPIC, small_batch(), [index]) for index in range(CONNECTIONS)]
    answers: list[bytes] = []
    turns = run.scaled(10_000, 5_000) // CONNECTIONS

    def work() -> None:
        for _ in range(turns):
            for client, each in zip(clients, frames, strict=True):
                client.send(each)
            answers.extend(bytes(client.receive()) for client in clients)

    warm = time.monotonic() + WARM_UP_S
    while time.monotonic() < warm:
        work()
    cost = cost_of(target.pid, run.scaled(8, 3), turns * CONNECTIONS, work)
    for client in clients:
        client.close()
    return cost, answers
