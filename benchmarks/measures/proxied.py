"""The cost of the proxy: the same requests to one broker, directly and through `odradek proxy`, in alternating rounds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.client import (
    LARGE_BATCH_BYTES,
    Client,
    check_produced,
    create_topic,
    in_turn,
    large_batch,
    produce_frame,
    small_batch,
)
from benchmarks.figures import WARM_UP_S, Figure, Run
from benchmarks.process import Cost, cost_of
from benchmarks.targets import HOST, Running, Target

TOPIC: Final = "proxied"
SMALL_REQUESTS: Final = 2_000
LARGE_REQUESTS: Final = 50


class Proxied(Target):
    """The proxy in front of a running broker."""

    name = "proxy"

    def __init__(self, upstream: Running) -> None:
        self._upstream = upstream

    def command(self, port: int, data: Path, settings: Mapping[str, str]) -> Sequence[str]:
        address = ["--host", HOST, "--port", str(port)]
        return [sys.executable, "-m", "server.proxy", "--upstream", self._upstream.bootstrap, *address]


def measure(run: Run) -> Iterator[Figure]:
    with ExitStack() as stack:
        broker = stack.enter_context(run.target.running(run.scratch / "proxied"))
        direct = Client(broker.connect())
        create_topic(direct, TOPIC)
        proxy = stack.enter_context(Proxied(broker).running(run.scratch / "proxied-proxy"))
        through = Client(proxy.connect())
        small = produce_frame(TOPIC, small_batch())
        there, here = in_turns(run, (broker, direct), (proxy, through), small, SMALL_REQUESTS)
        yield Figure(
            "Produce of 100 bytes through the proxy, one in flight",
            here.per_second,
            "requests/s",
            higher_is_better=True,
            baseline=f"directly {there.per_second:,.0f} requests/s",
            note=f"{here.cpu_s * 1e6:.0f} us of the proxy's CPU each, "
            f"{1e6 / here.per_second - 1e6 / there.per_second:.0f} us longer",
            other_cpu=there.other_cpu,
        )
        large = produce_frame(TOPIC, large_batch())
        there, here = in_turns(run, (broker, direct), (proxy, through), large, LARGE_REQUESTS)
        yield Figure(
            "Produce of 1 MiB through the proxy, one in flight",
            here.per_second * LARGE_BATCH_BYTES / 1e6,
            "MB/s",
            higher_is_better=True,
            baseline=f"directly {there.per_second * LARGE_BATCH_BYTES / 1e6:,.0f} MB/s",
            note=f"{here.cpu_s * 1e3:.2f} ms of the proxy's CPU each",
            other_cpu=there.other_cpu,
        )
        direct.close()
        through.close()


def in_turns(
    run: Run, direct: tuple[Running, Client], through: tuple[Running, Client], frame: bytes, requests: int
) -> tuple[Cost, Cost]:
    """Return the cost of a request directly, and through the proxy.

    Rounds of both alternate, so that other work on the machine affects both.
    """
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    answers: list[bytes] = []

    def work(client: Client) -> None:
        answers.extend(in_turn(client, [frame] * requests))

    warm = time.monotonic() + WARM_UP_S
    while time.monotonic() < warm:
        for _, client in (direct, through):
            in_turn(client, [frame] * 10)
    for _ in range(run.scaled(8, 3)):
        for (target, client), found in zip((direct, through), costs, strict=True):
            found.append(cost_of(target.pid, 1, requests, partial(work, client)))
    check_produced(answers)
    first, second = (
        Cost(
            median(each.cpu_s for each in found),
            min(each.cpu_s for each in found),
            max(each.cpu_s for each in found),
            median(each.per_second for each in found),
            median(each.other_cpu for each in found),
        )
        for found in costs
    )
    return first, second
