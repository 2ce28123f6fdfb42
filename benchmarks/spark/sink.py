"""The cost of exactly-once: micro-batches of one topic, written by Spark's own sink and by ours in turns.

Our sink writes with and without the digest of a batch's rows (`contentHash`).
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from typing import Final

from benchmarks.figures import Figure
from benchmarks.process import others_at_rest
from benchmarks.spark import SparkRun
from benchmarks.spark.brokers import create, fill, odradek
from benchmarks.spark.copying import INPUT, copy

RECORDS: Final = 1_000_000
RECORD_BYTES: Final = 100
PARTITIONS: Final = 4
BATCHES: Final = 8
ROUNDS: Final = 3
NOOP, STOCK, OURS = "noop", "kafka", "odradek.exactly_once"
COUNTED = f"{OURS} contentHash=false"
SINKS: Final = (NOOP, STOCK, OURS, COUNTED)


def measure(run: SparkRun) -> Iterator[Figure]:
    records, rest = run.scaled(RECORDS), others_at_rest()
    took: dict[str, list[float]] = {sink: [] for sink in SINKS}
    with odradek(run.scratch / "sink") as broker:
        fill(broker.bootstrap, INPUT, PARTITIONS, records, RECORD_BYTES)
        for number in range(run.rounds or ROUNDS):
            # The order alternates, because the second of a pair finds a warmer machine.
            for sink in SINKS if number % 2 == 0 else reversed(SINKS):
                name = f"{re.sub(r'[ .=]', '-', sink)}-{number}"
                times_ms = _stream(run, broker.bootstrap, sink, name, records)
                run.say(f"{sink}: {[round(each) for each in times_ms]} ms")
                # The first batch of a query also starts workers and compiles plans.
                took[sink] += times_ms[1:]
    medians = {sink: statistics.median(times_ms) for sink, times_ms in took.items()}
    per_second = {sink: records / BATCHES / ms for sink, ms in medians.items()}
    yield Figure(
        "exactly-once sink: throughput against Spark's own sink",
        medians[STOCK] / medians[OURS],
        "of it",
        limit=0.8,
        higher_is_better=True,
        baseline=f"Spark's own {per_second[STOCK]:.0f} k records/s ({medians[STOCK]:.0f} ms), noop {medians[NOOP]:.0f} ms",
        note=f"{per_second[OURS]:.0f} k records/s, {medians[OURS]:.0f} ms a batch"
        f" ({min(took[OURS]):.0f} to {max(took[OURS]):.0f}); {records:,} records of {RECORD_BYTES} B,"
        f" {BATCHES} batches, {PARTITIONS} partitions",
        other_cpu=rest,
    )
    yield Figure(
        "exactly-once sink: throughput with the sum of each batch's rows, against without",
        medians[COUNTED] / medians[OURS],
        "of it",
        limit=0.9,
        higher_is_better=True,
        baseline=f"{per_second[COUNTED]:.0f} k records/s ({medians[COUNTED]:.0f} ms) with contentHash=false",
        note=f"{per_second[OURS]:.0f} k records/s, {medians[OURS]:.0f} ms a batch",
        other_cpu=rest,
    )


def _stream(run: SparkRun, bootstrap: str, sink: str, name: str, records: int) -> list[float]:
    """The durations, in milliseconds, of the micro-batches of a query that reads the whole topic."""
    create(bootstrap, name, PARTITIONS)
    per_batch = max(records // BATCHES, 1)
    kind, *options = sink.split()
    more = dict(each.split("=") for each in options)
    query = copy(run, bootstrap, kind, name, name, per_batch, ("key", "value"), more)
    done = [each for each in query.recentProgress if each["numInputRows"]]
    if sum(each["numInputRows"] for each in done) != records:
        raise RuntimeError(f"the query with the sink {sink} has not read all records of the topic")
    # Each batch takes a share of each partition, rounded down, so a small batch with the rest comes last.
    whole = [each for each in done if each["numInputRows"] > records // BATCHES // 2]
    return [float(each["durationMs"]["triggerExecution"]) for each in whole]
