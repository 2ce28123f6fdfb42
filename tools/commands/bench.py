"""`odradek bench`: measure a broker through one connection."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import quantiles
from typing import Any, Final

import click

from protocol.messages.create_topics import CreatableTopic
from tools.client.cluster import Cluster
from tools.client.fetching import Reader
from tools.client.offsets import READ_COMMITTED
from tools.client.producing import Producer, now_ms
from tools.commands.common import HELP_NAMES, as_json, on_a_cluster, say_json, say_table
from tools.commands.topic import create_topics, delete_topics

BATCH_BYTES: Final = 1_000_000
RECORD_BYTES: Final = 1000


@click.command(context_settings=HELP_NAMES)
@click.option(
    "--megabytes",
    default=100,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Megabytes to write and to read.",
)
@click.option(
    "--requests",
    default=1000,
    show_default=True,
    type=click.IntRange(10, 1_000_000),
    help="Produce requests with one record each.",
)
@click.option(
    "--transactions",
    default=200,
    show_default=True,
    type=click.IntRange(10, 1_000_000),
    help="Transactions with two records each.",
)
@as_json
@on_a_cluster
def bench(cluster: Cluster, megabytes: int, requests: int, transactions: int, as_json: bool) -> None:
    """Measure a broker from one connection: large batches, small requests one after the other, transactions.

    The command creates its own topic, and deletes it at the end. It waits for each response, so the figures are for one
    request in flight; they compare brokers, not clients.
    """
    topic = f"odradek-bench-{os.getpid()}-{now_ms()}"
    measures: list[Callable[[], dict[str, Any]]] = [
        lambda: _write(cluster, topic, megabytes),
        lambda: _read(cluster, topic, megabytes),
        lambda: _small(cluster, topic, requests),
        lambda: _transactions(cluster, topic, transactions),
    ]
    rows = []
    with (
        _topic(cluster, topic),
        click.progressbar(length=len(measures), label="measuring", file=sys.stderr) as progress,
    ):
        for measure in measures:
            rows.append(measure())
            progress.update(1)
    if as_json:
        say_json(rows)
    else:
        say_table(
            ("MEASURE", "RATE", "P50", "P99"),
            [
                (each["measure"], each["rate"], f"{each['p50_ms']:.2f} ms", f"{each['p99_ms']:.2f} ms")
                for each in rows
            ],
        )


@contextmanager
def _topic(cluster: Cluster, topic: str) -> Iterator[None]:
    wanted = CreatableTopic(name=topic, num_partitions=2, replication_factor=-1)
    create_topics(cluster, [wanted], if_not_exists=False)
    cluster.retrying(lambda: [cluster.leader(topic, index) for index in (0, 1)])
    try:
        yield
    finally:
        delete_topics(cluster, (topic,), if_exists=True)


def _timed(times: int, act: Callable[[], object]) -> list[float]:
    """Call ``act`` repeatedly. Returns the duration of each call in seconds."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        found.append(time.perf_counter() - began)
    return found


def _row(measure: str, rate: str, seconds: list[float]) -> dict[str, Any]:
    cuts = quantiles(seconds, n=100) if len(seconds) > 1 else seconds * 99
    return {"measure": measure, "rate": rate, "p50_ms": cuts[49] * 1000, "p99_ms": cuts[98] * 1000}


def _write(cluster: Cluster, topic: str, megabytes: int) -> dict[str, Any]:
    producer = Producer(cluster)
    producer.init()
    records = [(now_ms(), None, os.urandom(RECORD_BYTES))] * (BATCH_BYTES // (RECORD_BYTES + 20))
    seconds = _timed(megabytes, lambda: producer.send(topic, 0, records))
    return _row("produce, 1 MB batches, acks=all", f"{megabytes / sum(seconds):.0f} MB/s", seconds)


def _read(cluster: Cluster, topic: str, megabytes: int) -> dict[str, Any]:
    reader = Reader(cluster, topic, 0, READ_COMMITTED)
    seconds = []
    while not reader.at_end:
        began = time.perf_counter()
        reader.skip()
        seconds.append(time.perf_counter() - began)
    return _row("fetch", f"{megabytes / sum(seconds):.0f} MB/s", seconds)


def _small(cluster: Cluster, topic: str, requests: int) -> dict[str, Any]:
    producer = Producer(cluster)
    producer.init()
    seconds = _timed(requests, lambda: producer.send(topic, 1, [(now_ms(), None, b"x")]))
    return _row(
        "produce, one record per request, acks=all", f"{requests / sum(seconds):.0f} requests/s", seconds
    )


def _transactions(cluster: Cluster, topic: str, transactions: int) -> dict[str, Any]:
    producer = Producer(cluster, transactional_id=topic)
    producer.init()

    def commit() -> None:
        for index in (0, 1):
            producer.send(topic, index, [(now_ms(), None, b"x")])
        producer.end(commit=True)

    seconds = _timed(transactions, commit)
    return _row(
        "transactions, 2 records in 2 partitions", f"{transactions / sum(seconds):.0f} commits/s", seconds
    )
