"""Read a gigabyte in a batch query, from Odradek and Apache Kafka in turns: elapsed time, and CPU time of the broker."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Final

from benchmarks.figures import Figure
from benchmarks.process import others_at_rest, used_by
from benchmarks.spark import SparkRun
from benchmarks.spark.brokers import KAFKA, ODRADEK, Address, both, fill

RECORDS: Final = 1_000_000
RECORD_BYTES: Final = 1_000
PARTITIONS: Final = 4
ROUNDS: Final = 5
TOPIC: Final = "large"


def measure(run: SparkRun) -> Iterator[Figure]:
    records, rest = run.scaled(RECORDS), others_at_rest()
    took_s: dict[str, list[float]] = {ODRADEK: [], KAFKA: []}
    cpu_s: dict[str, list[float]] = {ODRADEK: [], KAFKA: []}
    with both(run.scratch / "batch-read") as brokers:
        for name, address in brokers.items():
            run.say(f"filling {name}")
            fill(address.bootstrap, TOPIC, PARTITIONS, records, RECORD_BYTES)
            # After the first read, workers, plans and the page cache are warm.
            read(run, address, records)
        for number in range(run.rounds or ROUNDS):
            for name in (ODRADEK, KAFKA) if number % 2 == 0 else (KAFKA, ODRADEK):
                began = time.perf_counter()
                with used_by(brokers[name].pid) as usage:
                    read(run, brokers[name], records)
                took_s[name].append(time.perf_counter() - began)
                cpu_s[name].append(usage.target_cpu_s)
                run.say(f"{name}: {took_s[name][-1]:.2f} s, broker CPU {cpu_s[name][-1]:.2f} s")
    time_of = {name: statistics.median(each) for name, each in took_s.items()}
    cpu_of = {name: statistics.median(each) for name, each in cpu_s.items()}
    size_gb = records * RECORD_BYTES / 1e9
    yield Figure(
        f"Spark batch read of {size_gb:.2g} GB: time against {KAFKA}",
        time_of[ODRADEK] / time_of[KAFKA],
        "of it",
        limit=1.0,
        baseline=f"{KAFKA} {time_of[KAFKA]:.2f} s",
        note=f"{time_of[ODRADEK]:.2f} s ({min(took_s[ODRADEK]):.2f} to {max(took_s[ODRADEK]):.2f}),"
        f" median of {len(took_s[ODRADEK])}; {size_gb * 1000 / time_of[ODRADEK]:.0f} MB/s",
        other_cpu=rest,
    )
    yield Figure(
        f"Spark batch read of {size_gb:.2g} GB: broker CPU against {KAFKA}",
        cpu_of[ODRADEK] / cpu_of[KAFKA],
        "of it",
        limit=1.0,
        baseline=f"{KAFKA} {cpu_of[KAFKA]:.2f} s",
        note=f"{cpu_of[ODRADEK]:.2f} s",
        other_cpu=rest,
    )


def read(run: SparkRun, address: Address, records: int) -> None:
    """Read all bytes into Spark, and do as little as possible with them."""
    rows = (
        run.spark.read.format("kafka")
        .option("kafka.bootstrap.servers", address.bootstrap)
        .option("subscribe", TOPIC)
        .load()
    )
    [[total]] = rows.selectExpr("sum(length(value))").collect()
    if total != records * RECORD_BYTES:
        raise RuntimeError(f"{address.bootstrap}: {total} bytes were read, not {records * RECORD_BYTES}")
