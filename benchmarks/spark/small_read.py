"""Read a few records in a batch query: the time that a user at a prompt, or a test, waits."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Final

from benchmarks.figures import Figure
from benchmarks.process import others_at_rest
from benchmarks.spark import SparkRun
from benchmarks.spark.brokers import KAFKA, ODRADEK, Address, both, fill

RECORDS: Final = 10
RECORD_BYTES: Final = 100
READS: Final = 40
WARM_UP_READS: Final = 10
TOPIC: Final = "small"
NO_KAFKA: Final = "no Kafka"


def measure(run: SparkRun) -> Iterator[Figure]:
    rest = others_at_rest()
    took_s: dict[str, list[float]] = {ODRADEK: [], KAFKA: [], NO_KAFKA: []}
    with both(run.scratch / "small-read") as brokers:
        for address in brokers.values():
            fill(address.bootstrap, TOPIC, 1, RECORDS, RECORD_BYTES)
        for number in range(WARM_UP_READS + (run.rounds or run.scaled(READS))):
            for name, times_s in took_s.items():
                began = time.perf_counter()
                rows = read(run, brokers.get(name))
                if number >= WARM_UP_READS:
                    times_s.append(time.perf_counter() - began)
                if rows != RECORDS:
                    raise RuntimeError(f"{name}: {rows} of {RECORDS} records were read")
    ms = {name: statistics.median(each) * 1000 for name, each in took_s.items()}
    caused = {name: max(ms[name] - ms[NO_KAFKA], 0.0) for name in brokers}
    yield Figure(
        f"Spark batch read of {RECORDS} records: time against {KAFKA}",
        ms[ODRADEK] / ms[KAFKA],
        "of it",
        limit=0.2,
        baseline=f"{KAFKA} {ms[KAFKA]:.0f} ms; the same rows from no Kafka {ms[NO_KAFKA]:.0f} ms",
        note=f"{ms[ODRADEK]:.0f} ms ({min(took_s[ODRADEK]) * 1000:.0f} to {max(took_s[ODRADEK]) * 1000:.0f}),"
        f" median of {len(took_s[ODRADEK])}",
        other_cpu=rest,
    )
    yield Figure(
        f"Spark batch read of {RECORDS} records: what the broker adds, against {KAFKA}",
        caused[ODRADEK] / caused[KAFKA],
        "of it",
        limit=0.2,
        baseline=f"{KAFKA} {caused[KAFKA]:.0f} ms",
        note=f"{caused[ODRADEK]:.0f} ms above a read of rows that Spark has already",
        other_cpu=rest,
    )


def read(run: SparkRun, address: Address | None) -> int:
    """Read the rows in a batch query, and return their number.

    Without ``address``, Spark generates the rows, for comparison.
    """
    if address is None:
        return len(run.spark.range(0, RECORDS, 1, 1).selectExpr("cast(id as string) as value").collect())
    rows = run.spark.read.format("kafka").option("kafka.bootstrap.servers", address.bootstrap)
    return len(rows.option("subscribe", TOPIC).load().select("value").collect())
